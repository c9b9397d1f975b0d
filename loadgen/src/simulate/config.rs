//! Settings of one simulation.

use std::time::Duration;

use anyhow::{anyhow, ensure};
use parapet_config::faults::{FaultProfile, Span};
use parapet_frontend_core::{CoreConfig, PoolConfig, StrategyConfig};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::delay::{LONGEST_MS, Network};
use crate::experiment::{ResolvedArm, Role, Roles, What};
use crate::schedule::Arrivals;

/// Most queries of one simulation: hours of computing.
pub const MAX_QUERIES: u64 = 1_000_000_000;
/// Most instances of one simulation: each has some 2 KiB of random numbers.
pub const MAX_INSTANCES: usize = 100_000;

/// A frontend, its strategy, its instances, and a load.
#[derive(Debug, Clone, PartialEq)]
pub struct Simulation {
    /// In the order of the pools' ids: the deployed model's first, then those of the strategy.
    pub pools: Vec<SimulatedPool>,
    pub strategy: StrategyConfig,
    pub load: Load,
    pub frontend: Frontend,
    pub instance: InstanceModel,
    pub network: Network,
    /// Processes that end and are started again.
    pub crashes: Option<Crashes>,
    /// Events of single instances at given times.
    pub outages: Vec<Outage>,
    /// Keep a record of each query, for reports that need them.
    pub keep_records: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SimulatedPool {
    pub role: Role,
    pub instances: usize,
    /// Requests that each is given at a time.
    pub slots: u32,
    /// Requests that may wait for a slot.
    pub queue: usize,
    /// Their service time and faults. Instances are numbered through all pools; their model is
    /// [`Role::model`].
    pub faults: FaultProfile,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    pub arrivals: Arrivals,
    pub rate: f64,
    pub queries: u64,
    /// Seed of their times, and of all delays and crashes.
    pub seed: u64,
    pub allow_approximate: bool,
}

/// Bounds and times of the frontend; defaults as in its configuration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Frontend {
    /// A query must be answered that long after its arrival.
    pub deadline: Duration,
    /// Most queries in the table.
    pub max_in_flight: usize,
    /// Most attempts of a query.
    pub max_attempts: u32,
    /// Retries allowed for each query.
    pub retry_share: f64,
    /// Retries allowed at once beyond that.
    pub retry_burst: f64,
    /// A request that is given up after so long makes its instance suspect.
    pub suspect_after: Duration,
    pub encode: Duration,
    pub decode: Duration,
    pub health: Health,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Health {
    /// Between two checks of an instance that is up.
    pub interval: Duration,
    /// Between two checks of one that is not.
    pub recovery_interval: Duration,
    /// Failed checks in a row after which it is down.
    pub failures: u32,
}

impl Default for Frontend {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(1),
            max_in_flight: 4096,
            max_attempts: 3,
            retry_share: 0.2,
            retry_burst: 10.0,
            suspect_after: Duration::from_millis(500),
            encode: Duration::ZERO,
            decode: Duration::ZERO,
            health: Health {
                interval: Duration::from_secs(1),
                recovery_interval: Duration::from_millis(200),
                failures: 2,
            },
        }
    }
}

/// Model of an instance: it runs batches one after the other, of the requests that wait when the
/// last one ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstanceModel {
    pub max_batch_size: usize,
    pub queue_capacity: usize,
}

impl Default for InstanceModel {
    fn default() -> Self {
        Self {
            max_batch_size: 8,
            queue_capacity: 128,
        }
    }
}

/// Every instance's process ends now and then, and is there again after a while; what it
/// had is lost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Crashes {
    /// Mean time from a start to the next end in milliseconds; exponential.
    pub mean_interval_ms: f64,
    pub away: Span,
}

/// Something done to one instance, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outage {
    /// Its number through all pools, from 0.
    pub instance: u32,
    pub what: What,
    /// From the start on.
    pub from: Duration,
    /// When it runs again.
    pub until: Duration,
}

/// Requests that may wait for each slot of a pool, beyond the frontend's defaults for small pools.
const QUEUE_FOR_SLOT: usize = 2;
const LEAST_QUEUE: usize = 256;
const IN_FLIGHT_FOR_SLOT: usize = 8;

impl Simulation {
    /// `arm` on the instances that `roles` gives it, each with `slots`, under `load`. Its
    /// queues and its table of queries are the frontend's defaults, or larger in proportion to the
    /// slots; all else has its default, and no fault happens: instances answer at once.
    pub fn of(arm: &ResolvedArm, roles: Roles, slots: u32, load: Load) -> anyhow::Result<Self> {
        let pools = roles.pools(arm)?;
        let slots_of = |instances: usize| instances.saturating_mul(slots as usize);
        let all_slots: usize = pools
            .iter()
            .map(|(_, instances)| slots_of(*instances))
            .sum();
        let frontend = Frontend::default();
        let max_in_flight = frontend
            .max_in_flight
            .max(IN_FLIGHT_FOR_SLOT.saturating_mul(all_slots));
        let pool = |&(role, instances): &(Role, usize)| {
            let queue = LEAST_QUEUE.max(QUEUE_FOR_SLOT.saturating_mul(slots_of(instances)));
            SimulatedPool {
                role,
                instances,
                slots,
                queue,
                faults: FaultProfile::default(),
            }
        };
        Ok(Self {
            pools: pools.iter().map(pool).collect(),
            strategy: arm.config.clone(),
            load,
            frontend: Frontend {
                max_in_flight,
                ..frontend
            },
            instance: InstanceModel::default(),
            network: Network::default(),
            crashes: None,
            outages: Vec::new(),
            keep_records: false,
        })
    }

    /// Gives all instances this fault profile.
    #[must_use]
    pub fn with_faults(mut self, faults: &FaultProfile) -> Self {
        self.pools
            .iter_mut()
            .for_each(|pool| pool.faults = faults.clone());
        self
    }

    /// Checks that every number is one that it can be.
    pub fn check(&self) -> anyhow::Result<()> {
        let Load { rate, queries, .. } = self.load;
        ensure!(
            rate.is_finite() && rate > 0.0,
            "rate: {rate}; give a positive number of queries/s, as 270"
        );
        let known = (1..=MAX_QUERIES).contains(&queries);
        ensure!(known, "queries: {queries}; give 1 to {MAX_QUERIES}");
        // Virtual time is nanoseconds in 64 bits: 500 years; stay far below.
        let short = queries as f64 / rate < 1e9;
        ensure!(short, "rate: {rate}; raise it, or give fewer queries");
        let instances: usize = self.pools.iter().map(|pool| pool.instances).sum();
        let known = (1..=MAX_INSTANCES).contains(&instances);
        ensure!(
            known,
            "instances: {instances}; give 1 to {MAX_INSTANCES} in all"
        );
        for pool in &self.pools {
            ensure!(
                pool.instances > 0 && (1..=1024).contains(&pool.slots),
                "slots: 0 or too many; give 1 to 1024 to each instance of each pool"
            );
            let faults = pool.faults.validate();
            faults.map_err(|problem| anyhow!("faults: {problem}; correct the fault profile"))?;
        }
        for (name, value) in [
            ("max batch size", self.instance.max_batch_size),
            ("instance queue", self.instance.queue_capacity),
            ("max in flight", self.frontend.max_in_flight),
        ] {
            ensure!(value > 0, "{name}: 0; give at least 1");
        }
        let deadline = self.frontend.deadline;
        ensure!(!deadline.is_zero(), "deadline: 0; give some milliseconds");
        if let Some(crashes) = self.crashes {
            let Span { min_ms, max_ms } = crashes.away;
            let span = 0.0 <= min_ms && min_ms <= max_ms && max_ms <= LONGEST_MS;
            ensure!(
                span && (1.0..=1e12).contains(&crashes.mean_interval_ms),
                "crashes: {crashes:?}; give an interval from 1 ms and min <= max"
            );
        }
        self.network.check()
    }

    pub(super) fn core_config(&self) -> CoreConfig {
        let pool = |pool: &SimulatedPool| PoolConfig {
            instances: pool.instances,
            slots: pool.slots,
            queue: pool.queue,
        };
        CoreConfig {
            pools: self.pools.iter().map(pool).collect(),
            max_queries: self.frontend.max_in_flight,
            max_attempts: self.frontend.max_attempts,
            retry_share: self.frontend.retry_share,
            retry_burst: self.frontend.retry_burst,
            suspect_after: self.frontend.suspect_after,
            // Experiments are compared with queueing theory, whose queues refuse no query, and
            // simulated instances answer well.
            queue_limit: None,
            outliers: None,
        }
    }
}
