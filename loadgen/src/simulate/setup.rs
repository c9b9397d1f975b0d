//! An experiment as people write it: the same cluster under the same load, once for each strategy.

use std::time::Duration;

use parapet_faults::FaultProfile;
use parapet_frontend_core::HoldBackPolicy;
use serde::{Deserialize, Serialize};

use super::{Crashes, InstanceModel, Invalid, Load, Network, Simulation};
use crate::experiment::{ExperimentError, Roles, StrategySettings, StrategySpec};
use crate::schedule::Arrivals;

/// What to simulate. In TOML every field may be left out but those without which there is no load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Setup {
    /// Strategies, each on as many instances: `coded`, or `coded:k=3:r=1`.
    pub strategies: Vec<String>,
    /// Instances without redundancy.
    pub instances: usize,
    /// Instances on top, for redundancy.
    pub redundant_instances: usize,
    /// Requests that the frontend gives an instance at a time.
    pub slots: u32,
    /// How queries are spread over time.
    pub arrivals: Arrivals,
    /// Mean queries/s.
    pub rate: f64,
    /// How many queries.
    pub queries: u64,
    /// Seed of everything; fault profiles that are given have their own.
    pub seed: u64,
    /// Each query must be answered that long after its arrival.
    pub deadline_ms: f64,
    /// Whether clients take approximate answers.
    pub allow_approximate: bool,
    /// Service times and faults; `model_service_time` may name `deployed`, `parity` and `backup`.
    pub faults: Option<FaultProfile>,
    /// Processes that end and come back.
    pub crashes: Option<Crashes>,
    /// Delays beside the instances' own time.
    pub network: Network,
    /// Computing a parity query.
    pub encode_ms: f64,
    /// Computing a reconstruction.
    pub decode_ms: f64,
    /// Most requests of a batch.
    pub max_batch_size: usize,
    /// Most requests that wait at an instance.
    pub instance_queue: usize,
    /// Queries in a coding group, unless the strategy says.
    pub k: usize,
    /// Parity rows, unless the strategy says.
    pub r: usize,
    /// Requests for each query where several are sent, unless the strategy says.
    pub copies: u32,
    /// A query is late once it has waited longer than this quantile of recent ones.
    pub hold_back_percentile: f64,
    /// It is never late before.
    pub hold_back_min_ms: f64,
    /// It is always late after.
    pub hold_back_max_ms: f64,
    /// A query is late after this time, whatever others took.
    pub hold_back_fixed_ms: Option<f64>,
    /// Late copies allowed for each query.
    pub hedge_share: f64,
}

impl Default for Setup {
    fn default() -> Self {
        let (settings, instance) = (StrategySettings::default(), InstanceModel::default());
        Self {
            strategies: vec!["coded".to_owned(), "equal_resources".to_owned()],
            instances: 0,
            redundant_instances: 0,
            slots: 1,
            arrivals: Arrivals::Poisson,
            rate: 0.0,
            queries: 100_000,
            seed: 1,
            deadline_ms: 1000.0,
            allow_approximate: true,
            faults: None,
            crashes: None,
            network: Network::default(),
            encode_ms: 0.05,
            decode_ms: 0.05,
            max_batch_size: instance.max_batch_size,
            instance_queue: instance.queue_capacity,
            k: settings.k,
            r: settings.r,
            copies: settings.copies,
            hold_back_percentile: 0.97,
            hold_back_min_ms: 1.0,
            hold_back_max_ms: 200.0,
            hold_back_fixed_ms: None,
            hedge_share: settings.hedge_share,
        }
    }
}

/// A setup that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// Strategies or instances do.
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    /// Numbers do.
    #[error(transparent)]
    Number(#[from] Invalid),
    /// Nothing takes any time.
    #[error("no service time; give one to the instances, as --service-time constant:18")]
    NoServiceTime,
    /// Nothing to simulate.
    #[error("no strategy; give one, as --strategy coded,equal_resources")]
    NoStrategy,
    /// A strategy twice.
    #[error("strategy {0:?} is there twice; name each once")]
    Twice(String),
}

impl Setup {
    /// The simulation of each strategy, with all numbers checked.
    ///
    /// # Errors
    /// One line that names what is wrong.
    pub fn simulations(&self) -> Result<Vec<(StrategySpec, Simulation)>, SetupError> {
        let faults = self.faults.clone().unwrap_or_default();
        if faults.service_time.is_none() && !faults.model_service_time.contains_key("deployed") {
            return Err(SetupError::NoServiceTime);
        }
        if self.strategies.is_empty() {
            return Err(SetupError::NoStrategy);
        }
        let defaults = self.strategy_settings()?;
        let mut simulations: Vec<(StrategySpec, Simulation)> = Vec::new();
        for text in &self.strategies {
            let spec = StrategySpec::parse(text.trim(), &defaults)?;
            if simulations.iter().any(|(other, _)| other.label == spec.label) {
                return Err(SetupError::Twice(spec.label));
            }
            let simulation = self.simulation(&spec, &faults)?;
            simulations.push((spec, simulation));
        }
        Ok(simulations)
    }

    fn simulation(&self, spec: &StrategySpec, faults: &FaultProfile) -> Result<Simulation, SetupError> {
        let load = Load {
            arrivals: self.arrivals,
            rate: self.rate,
            queries: self.queries,
            seed: self.seed,
            allow_approximate: self.allow_approximate,
        };
        let roles = Roles { instances: self.instances, redundant: self.redundant_instances };
        let mut simulation = Simulation::of(spec, roles, self.slots, load)?.with_faults(faults);
        simulation.network = self.network;
        simulation.crashes = self.crashes;
        simulation.instance =
            InstanceModel { max_batch_size: self.max_batch_size, queue_capacity: self.instance_queue };
        simulation.frontend.deadline = milliseconds("deadline", self.deadline_ms)?;
        simulation.frontend.encode = milliseconds("encode time", self.encode_ms)?;
        simulation.frontend.decode = milliseconds("decode time", self.decode_ms)?;
        simulation.check()?;
        Ok(simulation)
    }

    fn strategy_settings(&self) -> Result<StrategySettings, SetupError> {
        let hold_back = match self.hold_back_fixed_ms {
            Some(fixed) => HoldBackPolicy::Fixed(milliseconds("fixed hold-back", fixed)?),
            None => HoldBackPolicy::Learned {
                percentile: self.hold_back_percentile,
                min: milliseconds("least hold-back", self.hold_back_min_ms)?,
                max: milliseconds("longest hold-back", self.hold_back_max_ms)?,
                max_over_median: HoldBackPolicy::MAX_OVER_MEDIAN,
            },
        };
        let settings = StrategySettings {
            k: self.k,
            r: self.r,
            copies: self.copies,
            hold_back,
            hedge_share: self.hedge_share,
            ..StrategySettings::default()
        };
        settings.check()?;
        Ok(settings)
    }
}

fn milliseconds(field: &'static str, ms: f64) -> Result<Duration, Invalid> {
    if (0.0..=super::delay::LONGEST_MS).contains(&ms) {
        return Ok(Duration::from_secs_f64(ms / 1e3));
    }
    Err(Invalid { field, value: format!("{ms} ms"), fix: "give 0 to 3600000" })
}
