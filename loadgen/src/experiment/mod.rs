//! Experiments, for a real run and a simulated one: strategies, their instances, and those
//! instances' events. Pure, but for [`Experiment::read`].
//!
//! Every strategy has as many instances in all: those that one without redundancy would have, and
//! the redundant ones, which [`Arm::resolve`] gives to whatever the strategy needs.

mod arm;
mod check;
#[cfg(test)]
mod tests;

pub use arm::{Arm, EQUAL_RESOURCES, ResolvedArm, Role};

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::anyhow;
use parapet_config::faults::FaultProfile;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::compare::Settings;
use crate::payload::WireEncoding;
use crate::schedule::Arrivals;
use crate::simulate::Surroundings;

/// Experiment that `parapet-loadgen compare` runs and `parapet-loadgen simulate` simulates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Experiment {
    pub model: String,
    pub seed: u64,
    pub rate: f64,
    pub arrivals: Arrivals,
    pub requests: usize,
    /// Blocks into which each strategy's requests are cut; the strategies take turns after each.
    pub blocks: usize,
    /// Requests to each strategy before its first block, which count for nothing: they fill
    /// connections and percentiles.
    pub warm_up: usize,
    /// Repeats of a block in which the generator was late, at once and for the strategy alone: its
    /// lateness depends on nothing that was measured. Blocks with events are not repeated.
    pub repeats: usize,
    pub timeout_ms: u64,
    pub encoding: WireEncoding,
    pub baseline: String,
    /// The cluster; not needed where every strategy has a frontend that runs already.
    pub instances: Instances,
    pub faults: FaultProfile,
    /// Events of single instances, in the blocks of every strategy.
    pub events: Vec<Event>,
    pub strategies: Vec<Arm>,
    pub simulation: Surroundings,
}

impl Default for Experiment {
    fn default() -> Self {
        Self {
            model: String::new(),
            seed: 1,
            rate: 0.0,
            arrivals: Arrivals::Poisson,
            requests: 0,
            blocks: 10,
            warm_up: 300,
            repeats: 2,
            timeout_ms: 2_000,
            encoding: WireEncoding::Binary,
            baseline: String::new(),
            instances: Instances::default(),
            faults: FaultProfile::default(),
            events: Vec::new(),
            strategies: Vec::new(),
            simulation: Surroundings::default(),
        }
    }
}

/// The cluster's size. Every strategy has the same number of instances; it differs what they do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Instances {
    /// Serve the deployed model under every strategy.
    pub deployed: usize,
    /// Serve what the strategy makes of them: parity models, a backup, replicas, nothing.
    pub redundant: usize,
    /// Requests that an instance is given at a time.
    pub slots: u32,
}

impl Default for Instances {
    fn default() -> Self {
        Self { deployed: 0, redundant: 0, slots: 1 }
    }
}

/// Something done to one instance, once in the block of each strategy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// The block, from 0.
    pub block: usize,
    pub after_s: f64,
    pub what: What,
    /// To which instance, from 0; the redundant ones come after the deployed ones.
    pub instance: usize,
    /// Seconds until it runs again; a killed instance is started anew after the block in any case.
    pub for_s: Option<f64>,
}

impl Event {
    /// Its beginning and end in seconds since the start, with blocks of this length; `None` if its
    /// block ends before it. As in a real comparison, none lasts longer than its block.
    pub(crate) fn span_s(&self, block_s: f64) -> Option<[f64; 2]> {
        let until_s = self.for_s.map_or(block_s, |for_s| self.after_s + for_s).min(block_s);
        let start_s = self.block as f64 * block_s;
        (self.after_s < until_s).then_some([self.after_s, until_s].map(|at_s| start_s + at_s))
    }
}

// Shown as what was done to the instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::Display)]
#[serde(rename_all = "lowercase")]
pub enum What {
    #[strum(to_string = "stopped")]
    Freeze,
    #[strum(to_string = "killed")]
    Kill,
}

impl Experiment {
    pub fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.strategies.iter().map(|arm| arm.name.as_str())
    }

    /// Returns true if any strategy needs instances and a frontend started for it.
    pub fn starts_processes(&self) -> bool {
        self.strategies.iter().any(|arm| arm.url.is_none())
    }

    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let file = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|error| anyhow!("{file}: cannot read the experiment: {error}"))?;
        let experiment: Self = parapet_config::toml_file::parse(&text)
            .map_err(|mistake| anyhow!("{file}: {mistake}"))?;
        experiment.check(path)?;
        Ok(experiment)
    }

    pub(crate) fn fault_profile(&self) -> FaultProfile {
        FaultProfile { seed: self.faults.seed ^ self.seed, ..self.faults.clone() }
    }

    pub fn models(&self) -> Vec<String> {
        let mut models = vec![self.model.clone()];
        for arm in self.strategies.iter().filter(|arm| arm.url.is_none()) {
            for model in arm.parity_models.iter().chain(&arm.backup_model) {
                if !models.contains(model) {
                    models.push(model.clone());
                }
            }
        }
        models
    }

    /// Settings of a report, with the files of samples and classes.
    pub(crate) fn settings(
        &self,
        (images, labels): (String, Option<String>),
        notes: BTreeMap<String, String>,
    ) -> Settings {
        Settings {
            model: self.model.clone(),
            seed: self.seed,
            arrivals: self.arrivals,
            rate: self.rate,
            blocks: self.blocks,
            block_s: self.block_s(),
            timeout_ms: self.timeout_ms,
            encoding: self.encoding,
            deadline_ms: None,
            images,
            labels,
            notes,
        }
    }

    pub fn block_s(&self) -> f64 {
        self.requests as f64 / self.rate / self.blocks as f64
    }

    /// The requests of each block; the first ones take what does not divide.
    pub fn block_requests(&self) -> Vec<usize> {
        let (each, more) = (self.requests / self.blocks, self.requests % self.blocks);
        (0..self.blocks).map(|block| each + usize::from(block < more)).collect()
    }
}

/// Returns the default baseline: the same machines without redundancy, or the first.
pub fn usual_baseline<'a>(mut names: impl Iterator<Item = &'a str> + Clone) -> &'a str {
    names.clone().find(|name| *name == EQUAL_RESOURCES).or_else(|| names.next()).unwrap_or_default()
}
