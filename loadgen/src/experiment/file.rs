//! An experiment's file: the cluster, its faults, the load, and the strategies to compare on them.
//!
//! A strategy is either made here, from its settings and the instances, or served already by a
//! frontend at its `url`.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::anyhow;
use parapet_config::faults::FaultProfile;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Arm, EQUAL_RESOURCES};
use crate::payload::WireEncoding;
use crate::schedule::Arrivals;
use crate::simulate::Surroundings;

/// Settings of a strategy that have no part in the engine, and none in a simulation.
const REAL_SETTINGS: [&str; 7] = [
    "encoder",
    "model",
    "version",
    "slots_per_instance",
    "max_queue",
    "max_coding_queue",
    "transform",
];

/// Experiment that `parapet-loadgen compare` runs and `parapet-loadgen simulate` simulates.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    pub model: String,
    /// Seed of schedules, rows and faults.
    #[serde(default = "one")]
    pub seed: u64,
    pub rate: f64,
    #[serde(default = "poisson")]
    pub arrivals: Arrivals,
    /// Requests to each strategy.
    pub requests: usize,
    /// Blocks into which each strategy's requests are cut; the strategies take turns after each.
    #[serde(default = "ten")]
    pub blocks: usize,
    /// Requests to each strategy before its first block, which count for nothing: they fill
    /// connections and percentiles.
    #[serde(default = "warm_up")]
    pub warm_up: usize,
    /// Repeats of a block in which the generator was late, or the machine stood still, at once and
    /// for the strategy alone. Whether it is depends on nothing that was measured. Blocks with
    /// events are not.
    #[serde(default = "repeats")]
    pub repeats: usize,
    /// Milliseconds after which a request is given up.
    #[serde(default = "timeout_ms")]
    pub timeout_ms: u64,
    #[serde(default = "binary")]
    pub encoding: WireEncoding,
    /// The strategy that the others are compared with.
    pub baseline: String,
    /// The cluster; not needed where every strategy has a frontend that runs already.
    #[serde(default)]
    pub instances: Instances,
    #[serde(default)]
    pub faults: FaultProfile,
    /// Events of single instances, in the blocks of every strategy.
    #[serde(default)]
    pub events: Vec<Event>,
    pub strategies: Vec<Strategy>,
    /// Settings that a simulation needs and a real cluster has by itself.
    #[serde(default)]
    pub simulation: Surroundings,
    /// Names of the fields that the file has.
    #[serde(skip)]
    pub written: BTreeSet<String>,
}

/// The cluster's size. Every strategy has the same number of instances; it differs what they do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Instances {
    /// Serve the deployed model under every strategy.
    pub deployed: usize,
    /// Serve what the strategy makes of them: parity models, a backup model, further
    /// replicas, or nothing.
    pub redundant: usize,
    /// Requests that an instance is given at a time.
    #[serde(default = "one_slot")]
    pub slots: u32,
}

impl Default for Instances {
    fn default() -> Self {
        Self {
            deployed: 0,
            redundant: 0,
            slots: 1,
        }
    }
}

/// Something done to one instance, once in the block of each strategy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// The block, from 0.
    pub block: usize,
    /// Seconds after its start.
    pub after_s: f64,
    pub what: What,
    /// To which instance, from 0; the redundant ones come after the deployed ones.
    pub instance: usize,
    /// Seconds until it runs again; a killed instance is started anew after the block in any case.
    pub for_s: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// SIGSTOP, and SIGCONT later.
    Freeze,
    /// SIGKILL, and another start later.
    Kill,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Strategy {
    /// Short name, unlike the others'.
    pub name: String,
    #[serde(default)]
    pub description: String,
    /// `[models.strategy]` of the frontend's configuration, but for instances and models, which
    /// the roles give.
    #[serde(default)]
    pub settings: toml::Table,
    /// True if the redundant instances serve the deployed model, though `none` needs none.
    #[serde(default)]
    pub all_instances: bool,
    /// For coded strategies, the parity model of each row.
    #[serde(default)]
    pub parity_models: Vec<String>,
    /// For the approximate backup, its model.
    pub backup_model: Option<String>,
    /// A frontend that runs already and serves the model under this strategy, in place of all but
    /// name and description: `http://host:port`.
    pub url: Option<String>,
    /// Where that frontend's `/metrics` are, if not at `url`.
    pub metrics_url: Option<String>,
}

impl Strategy {
    pub fn kind(&self) -> &str {
        self.settings
            .get("kind")
            .and_then(toml::Value::as_str)
            .unwrap_or_default()
    }

    /// The strategy without settings that have no part in the engine, and the names of those.
    pub fn arm(&self) -> (Arm, Vec<String>) {
        let mut settings = match serde_json::to_value(&self.settings) {
            Ok(serde_json::Value::Object(settings)) => settings,
            _ => serde_json::Map::new(),
        };
        let mut left_out = Vec::new();
        for name in REAL_SETTINGS {
            if settings.remove(name).is_some() {
                left_out.push(format!("{}: settings.{name}", self.name));
            }
        }
        let arm = Arm {
            name: self.name.clone(),
            description: self.description.clone(),
            settings,
            all_instances: self.all_instances,
            written: false,
        };
        (arm, left_out)
    }
}

impl Experiment {
    /// A comparison of frontends that run already, by name and address; all else has its default.
    pub fn of_targets(
        model: &str,
        rate: f64,
        requests: usize,
        targets: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let strategies = targets
            .iter()
            .map(|(name, url)| json!({ "name": name, "url": url }));
        Ok(serde_json::from_value(json!({
            "model": model,
            "rate": rate,
            "requests": requests,
            "baseline": usual_baseline(targets.iter().map(|(name, _)| *name)),
            "strategies": strategies.collect::<Vec<_>>(),
        }))?)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.strategies
            .iter()
            .map(|strategy| strategy.name.as_str())
    }

    /// Returns true if any strategy needs instances and a frontend started for it.
    pub fn starts_processes(&self) -> bool {
        self.strategies
            .iter()
            .any(|strategy| strategy.url.is_none())
    }

    /// Reads and checks the file at `path`.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let file = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|error| anyhow!("{file}: cannot read the experiment: {error}"))?;
        let mut experiment: Self = parapet_config::toml_file::parse(&text)
            .map_err(|mistake| anyhow!("{file}: {mistake}"))?;
        let fields: toml::Table = toml::from_str(&text).unwrap_or_default();
        experiment.written = fields.keys().cloned().collect();
        experiment.check(path)?;
        Ok(experiment)
    }

    /// All models that the cluster serves, each once.
    pub fn models(&self) -> Vec<String> {
        let mut models = vec![self.model.clone()];
        for strategy in self
            .strategies
            .iter()
            .filter(|strategy| strategy.url.is_none())
        {
            for model in strategy.parity_models.iter().chain(&strategy.backup_model) {
                if !models.contains(model) {
                    models.push(model.clone());
                }
            }
        }
        models
    }

    /// Instances that `strategy` uses, where it is made here.
    pub fn instances_used(&self, strategy: &Strategy) -> usize {
        let redundant = match strategy.kind() {
            "none" if !strategy.all_instances => 0,
            _ => self.instances.redundant,
        };
        self.instances.deployed + redundant
    }

    /// The requests of each block; the first ones take what does not divide.
    pub fn block_requests(&self) -> Vec<usize> {
        let (each, more) = (self.requests / self.blocks, self.requests % self.blocks);
        (0..self.blocks)
            .map(|block| each + usize::from(block < more))
            .collect()
    }
}

/// Returns the default baseline: the same machines without redundancy, or the first.
pub fn usual_baseline<'a>(mut names: impl Iterator<Item = &'a str> + Clone) -> &'a str {
    let usual = names.clone().find(|name| *name == EQUAL_RESOURCES);
    usual.or_else(|| names.next()).unwrap_or_default()
}

fn one() -> u64 {
    1
}
fn one_slot() -> u32 {
    1
}
fn ten() -> usize {
    10
}
fn warm_up() -> usize {
    300
}
fn repeats() -> usize {
    2
}
fn timeout_ms() -> u64 {
    2_000
}
fn poisson() -> Arrivals {
    Arrivals::Poisson
}
fn binary() -> WireEncoding {
    WireEncoding::Binary
}
