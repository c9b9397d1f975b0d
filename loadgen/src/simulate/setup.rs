//! Setup of a simulation: the same cluster under the same load, once for each strategy.

use std::time::Duration;

use anyhow::ensure;
use parapet_config::faults::FaultProfile;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::delay::LONGEST_MS;
use super::{Crashes, InstanceModel, Load, Network, Outage, Simulation};
use crate::experiment::{Arm, EQUAL_RESOURCES, Event, ResolvedArm, Role, Roles};
use crate::schedule::Arrivals;

/// Settings that a simulation needs and a real cluster has by itself: `[simulation]` of
/// an experiment's file.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Surroundings {
    pub allow_approximate: bool,
    pub crashes: Option<Crashes>,
    /// Delays beside the instances' own time.
    pub network: Network,
    pub encode_ms: f64,
    pub decode_ms: f64,
    pub max_batch_size: usize,
    /// Most requests that wait at an instance.
    pub instance_queue: usize,
}

impl Default for Surroundings {
    fn default() -> Self {
        let instance = InstanceModel::default();
        Self {
            allow_approximate: true,
            crashes: None,
            network: Network::default(),
            encode_ms: 0.05,
            decode_ms: 0.05,
            max_batch_size: instance.max_batch_size,
            instance_queue: instance.queue_capacity,
        }
    }
}

/// Setup of a simulation: the same cluster under the same load, once for each strategy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Setup {
    /// Strategies, each on as many instances.
    pub strategies: Vec<Arm>,
    /// Baseline of the comparison, if one was named.
    pub baseline: Option<String>,
    /// Instances without redundancy.
    pub instances: usize,
    /// Instances on top, for redundancy.
    pub redundant_instances: usize,
    /// Requests that the frontend gives an instance at a time.
    pub slots: u32,
    pub arrivals: Arrivals,
    pub rate: f64,
    pub queries: u64,
    /// Stretches that they are cut into, for the intervals of a comparison. Queries that wait
    /// together are in the same one, but for those at its ends.
    pub blocks: usize,
    /// Seed of everything; fault profiles that are given have their own.
    pub seed: u64,
    /// Each query must be answered that long after its arrival.
    pub deadline_ms: f64,
    /// Service times and faults; `model_service_time` may name `deployed`, `parity` and `backup`.
    pub faults: Option<FaultProfile>,
    pub events: Vec<Event>,
    /// Settings that a real cluster has by itself.
    pub surroundings: Surroundings,
    /// Queries in a coding group, unless the strategy says.
    pub k: usize,
    /// Parity rows, unless the strategy says.
    pub r: usize,
}

impl Default for Setup {
    fn default() -> Self {
        let usual = ["coded", EQUAL_RESOURCES].into_iter();
        Self {
            strategies: usual.filter_map(|name| name.parse().ok()).collect(),
            baseline: None,
            instances: 0,
            redundant_instances: 0,
            slots: 1,
            arrivals: Arrivals::Poisson,
            rate: 0.0,
            queries: 100_000,
            blocks: 20,
            seed: 1,
            deadline_ms: 1000.0,
            faults: None,
            events: Vec::new(),
            surroundings: Surroundings::default(),
            k: 2,
            r: 1,
        }
    }
}

impl Setup {
    /// The simulation of each strategy, with all numbers checked.
    pub fn simulations(&self) -> anyhow::Result<Vec<(ResolvedArm, Simulation)>> {
        let faults = self.faults.clone().unwrap_or_default();
        ensure!(
            faults.service_time.is_some() || faults.model_service_time.contains_key("deployed"),
            "no service time; give one to the instances, as --service-time constant:18"
        );
        ensure!(
            !self.strategies.is_empty(),
            "no strategy; give one, as --strategy coded,equal_resources"
        );
        let mut simulations: Vec<(ResolvedArm, Simulation)> = Vec::new();
        for arm in &self.strategies {
            let arm = arm.resolve(self.k, self.r, self.roles())?;
            let twice = simulations
                .iter()
                .any(|(other, _)| other.label == arm.label);
            ensure!(
                !twice,
                "strategy {:?} is there twice; name each once",
                arm.label
            );
            let simulation = self.simulation(&arm, &faults)?;
            simulations.push((arm, simulation));
        }
        Ok(simulations)
    }

    fn simulation(&self, arm: &ResolvedArm, faults: &FaultProfile) -> anyhow::Result<Simulation> {
        let load = Load {
            arrivals: self.arrivals,
            rate: self.rate,
            queries: self.queries,
            seed: self.seed,
            allow_approximate: self.surroundings.allow_approximate,
        };
        let Surroundings {
            network,
            crashes,
            encode_ms,
            decode_ms,
            max_batch_size,
            instance_queue,
            ..
        } = self.surroundings;
        let roles = self.roles();
        let mut simulation = Simulation::of(arm, roles, self.slots, load)?.with_faults(faults);
        simulation.network = network;
        simulation.crashes = crashes;
        simulation.outages = self.outages(&roles.pools(arm)?);
        simulation.instance = InstanceModel {
            max_batch_size,
            queue_capacity: instance_queue,
        };
        simulation.frontend.deadline = milliseconds("deadline", self.deadline_ms)?;
        simulation.frontend.encode = milliseconds("encode time", encode_ms)?;
        simulation.frontend.decode = milliseconds("decode time", decode_ms)?;
        simulation.check()?;
        Ok(simulation)
    }

    const fn roles(&self) -> Roles {
        Roles {
            instances: self.instances,
            redundant: self.redundant_instances,
        }
    }

    /// Seconds of load in each block.
    pub fn block_s(&self) -> f64 {
        self.queries as f64 / self.rate / self.blocks as f64
    }

    /// Gives coding groups this size, those of an experiment's file, too.
    pub fn set_k(&mut self, k: usize) {
        self.k = k;
        self.forget("k");
    }

    /// Gives coding groups so many parity rows, those of an experiment's file, too.
    pub fn set_r(&mut self, r: usize) {
        self.r = r;
        self.forget("r");
    }

    fn forget(&mut self, setting: &str) {
        for arm in self.strategies.iter_mut().filter(|arm| !arm.written) {
            arm.settings.remove(setting);
        }
    }

    /// The events that hit an instance of these pools; as in a real comparison, none lasts longer
    /// than its block.
    fn outages(&self, pools: &[(Role, usize)]) -> Vec<Outage> {
        let block_ms = self.block_s() * 1e3;
        let mut outages = Vec::new();
        for Event {
            block,
            after_s,
            what,
            instance,
            for_s,
        } in &self.events
        {
            let (after_ms, start_ms) = (after_s * 1e3, *block as f64 * block_ms);
            let until_ms = for_s.map_or(block_ms, |for_s| (after_ms + for_s * 1e3).min(block_ms));
            if let Some(instance) = self.number(*instance, pools)
                && after_ms < until_ms
            {
                let time = |ms: f64| {
                    Duration::try_from_secs_f64((start_ms + ms) / 1e3).unwrap_or_default()
                };
                outages.push(Outage {
                    instance,
                    what: *what,
                    from: time(after_ms),
                    until: time(until_ms),
                });
            }
        }
        outages
    }

    /// An event's instance by its number through all pools. Parity rows take the redundant
    /// instances in turns, as in real comparisons; `None` if the strategy does not use it.
    fn number(&self, instance: usize, pools: &[(Role, usize)]) -> Option<u32> {
        let (_, deployed) = pools.first()?;
        if instance < *deployed {
            return u32::try_from(instance).ok();
        }
        let (redundant, rows) = (instance.checked_sub(self.instances)?, pools.len() - 1);
        let (place, row) = (redundant.checked_div(rows)?, redundant.checked_rem(rows)?);
        let before: usize = pools.iter().take(row + 1).map(|(_, count)| count).sum();
        let (_, count) = pools.get(row + 1)?;
        (place < *count)
            .then(|| u32::try_from(before + place).ok())
            .flatten()
    }
}

fn milliseconds(field: &str, ms: f64) -> anyhow::Result<Duration> {
    let possible = (0.0..=LONGEST_MS).contains(&ms);
    ensure!(possible, "{field}: {ms} ms; give 0 to {LONGEST_MS}");
    Ok(Duration::from_secs_f64(ms / 1e3))
}
