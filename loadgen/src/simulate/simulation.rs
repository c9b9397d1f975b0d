//! The simulation of one strategy.

use std::time::Duration;

use anyhow::{anyhow, ensure};
use parapet_frontend_core::{CoreConfig, PoolConfig};

use crate::experiment::{Arm, Experiment, ResolvedArm, Role, What};

/// Most queries of one simulation: hours of computing.
pub const MAX_QUERIES: u64 = 1_000_000_000;
/// Most instances of one simulation: each has some 2 KiB of random numbers.
pub const MAX_INSTANCES: usize = 100_000;

/// Requests that may wait for each slot of a pool, beyond the frontend's defaults for small pools.
const QUEUE_FOR_SLOT: usize = 2;
const LEAST_QUEUE: usize = 256;
const IN_FLIGHT_FOR_SLOT: usize = 8;
const LEAST_IN_FLIGHT: usize = 4096;

#[derive(Debug, Clone, PartialEq)]
pub struct Simulation {
    pub name: String,
    /// Its faults have the seed of this run. Instances are numbered through all pools.
    pub experiment: Experiment,
    pub arm: ResolvedArm,
    /// Bounds and times of the frontend. Pools are those of the arm.
    pub core: CoreConfig,
    pub models: Vec<String>,
    pub keep_records: bool,
}

/// The simulation of each strategy of `experiment`, with all numbers checked.
pub fn simulations(experiment: &Experiment) -> anyhow::Result<Vec<Simulation>> {
    let faults = experiment.fault_profile();
    let of_deployed = faults.model_service_time.contains_key(&experiment.model);
    ensure!(
        faults.service_time.is_some() || of_deployed,
        "no service time; give one to the instances, as --service-time constant:18"
    );
    let mut simulations: Vec<Simulation> = Vec::new();
    for (index, arm) in experiment.strategies.iter().enumerate() {
        ensure!(
            arm.url.is_none(),
            "strategies[{index}].url: a frontend that runs already cannot be simulated; give its \
             settings instead"
        );
        let resolved = arm.resolve(experiment.instances)?;
        let name = &arm.name;
        let twice = simulations.iter().any(|other| other.name == *name);
        ensure!(!twice, "strategy {name:?} is there twice; name each once");
        let simulation = Simulation::new(experiment, arm, resolved);
        simulation.check()?;
        simulations.push(simulation);
    }
    Ok(simulations)
}

impl Simulation {
    /// `arm` in this experiment, with the frontend's default bounds or larger ones for more slots.
    fn new(experiment: &Experiment, arm: &Arm, resolved: ResolvedArm) -> Self {
        let slots = experiment.instances.slots;
        let slots_of = |instances: usize| instances.saturating_mul(slots as usize);
        let all_slots: usize = resolved.pools.iter().map(|pool| slots_of(pool.1)).sum();
        let pool = |&(_, instances): &(Role, usize)| PoolConfig {
            instances,
            slots,
            queue: LEAST_QUEUE.max(QUEUE_FOR_SLOT.saturating_mul(slots_of(instances))),
        };
        let models = resolved.pools.iter().map(|(role, _)| model(experiment, arm, *role));
        Self {
            name: arm.name.clone(),
            experiment: Experiment { faults: experiment.fault_profile(), ..experiment.clone() },
            models: models.collect(),
            core: CoreConfig {
                max_slots: 0,
                pools: resolved.pools.iter().map(pool).collect(),
                max_queries: LEAST_IN_FLIGHT.max(IN_FLIGHT_FOR_SLOT.saturating_mul(all_slots)),
                max_attempts: 3,
                retry_share: 0.2,
                retry_burst: 10.0,
                suspect_after: Duration::from_millis(500),
                // Experiments are compared with queueing theory, whose queues refuse no query, and
                // simulated instances answer well.
                queue_limit: None,
                outliers: None,
            },
            arm: resolved,
            keep_records: false,
        }
    }

    pub fn check(&self) -> anyhow::Result<()> {
        let experiment = &self.experiment;
        let (rate, queries) = (experiment.rate, experiment.requests as u64);
        ensure!(
            rate.is_finite() && rate > 0.0,
            "rate: {rate}; give a positive number of queries/s, as 270"
        );
        let known = (1..=MAX_QUERIES).contains(&queries);
        ensure!(known, "queries: {queries}; give 1 to {MAX_QUERIES}");
        // Virtual time is nanoseconds in 64 bits: 500 years; stay far below.
        ensure!(queries as f64 / rate < 1e9, "rate: {rate}; raise it, or give fewer queries");
        let instances: usize = self.core.pools.iter().map(|pool| pool.instances).sum();
        let known = (1..=MAX_INSTANCES).contains(&instances);
        ensure!(known, "instances: {instances}; give 1 to {MAX_INSTANCES} in all");
        let usable = |pool: &PoolConfig| pool.instances > 0 && (1..=1024).contains(&pool.slots);
        ensure!(
            self.core.pools.iter().all(usable),
            "slots: 0 or too many; give 1 to 1024 to each instance of each pool"
        );
        let faults = experiment.faults.validate();
        faults.map_err(|problem| anyhow!("faults: {problem}; correct the fault profile"))?;
        ensure!(experiment.timeout_ms > 0, "deadline: 0; give some milliseconds");
        experiment.simulation.check()
    }

    /// Beginnings and ends of events, in nanoseconds since the start, by number of instance.
    pub(super) fn outages(&self) -> impl Iterator<Item = (u32, What, [u64; 2])> {
        let block_s = self.experiment.block_s();
        self.experiment.events.iter().filter_map(move |event| {
            let span = event.span_s(block_s)?.map(|at_s| (at_s * 1e9) as u64);
            Some((self.number(event.instance)?, event.what, span))
        })
    }

    /// An event's instance by its number through all pools. Parity rows take the redundant
    /// instances in turns, as in real comparisons; `None` if the strategy does not use it.
    fn number(&self, instance: usize) -> Option<u32> {
        let pools = &self.arm.pools;
        let (_, deployed) = pools.first()?;
        if instance < *deployed {
            return u32::try_from(instance).ok();
        }
        let redundant = instance.checked_sub(self.experiment.instances.deployed)?;
        let rows = pools.len() - 1;
        let (place, row) = (redundant.checked_div(rows)?, redundant.checked_rem(rows)?);
        let before: usize = pools.iter().take(row + 1).map(|(_, count)| count).sum();
        let (_, count) = pools.get(row + 1)?;
        (place < *count).then_some(u32::try_from(before + place).ok()?)
    }
}

/// The model that a pool serves; one that the arm does not name is called by its role.
fn model(experiment: &Experiment, arm: &Arm, role: Role) -> String {
    let named = match role {
        Role::Deployed => Some(&experiment.model),
        Role::Parity(row) => arm.parity_models.get(usize::from(row)),
        Role::Backup => arm.backup_model.as_ref(),
    };
    named.map_or_else(|| role.model().to_owned(), String::clone)
}

#[cfg(test)]
mod tests {
    use parapet_frontend_core::{HoldBackPolicy, StrategyConfig};

    use super::*;

    const TAIL: &str = include_str!("../../experiments/tail.toml");

    fn read(text: &str) -> anyhow::Result<Experiment> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Experiment::read(file.path())
    }

    #[test]
    fn the_experiment_of_the_tail_is_simulated_as_it_is() {
        let experiment = read(TAIL).unwrap();
        let arms = simulations(&experiment).unwrap();
        assert_eq!(arms.len(), experiment.strategies.len());
        let arm = |name: &str| arms.iter().find(|arm| arm.name == name).unwrap().clone();
        let StrategyConfig::Hedge(hedge) = arm("hedge").arm.config else {
            panic!("{arms:?}");
        };
        assert_eq!((hedge.share, hedge.burst), (0.05, 10.0));
        let StrategyConfig::Coded(eager) = arm("coded_eager").arm.config else {
            panic!("{arms:?}");
        };
        assert_eq!(eager.hold_back, HoldBackPolicy::Fixed(Duration::ZERO));
        assert_eq!(eager.flush_after, Duration::from_millis(6));
        let equal = arm("equal_resources").arm.pools;
        assert_eq!(equal, [(Role::Deployed, 18)]);
        let times = &arms[0].experiment.faults.model_service_time;
        let given = ["fashion-small", "fashion-student-k2-r1"];
        assert_eq!(times.keys().collect::<Vec<_>>(), given);
        assert_eq!(arm("approximate_backup").models, ["fashion", "fashion-small"]);
        let settings = &arms[0].experiment;
        assert_eq!((settings.requests, settings.timeout_ms), (20_000, 2000));
    }

    #[test]
    fn what_cannot_be_simulated_is_named_in_one_line() {
        let share = "share = 0.05";
        let given = "strategies[0].url: a frontend that runs";
        let wrong_type = "invalid type: string \"0.05\"";
        for (from, to, named) in [
            ("settings = { kind = \"none\" }", "url = \"http://a\"", given),
            (share, "shares = 0.05", "unknown field `shares`"),
            (share, "share = \"0.05\"", wrong_type),
        ] {
            assert!(TAIL.contains(from), "{from}");
            let read = read(&TAIL.replacen(from, to, 1));
            let error = read.and_then(|it| simulations(&it)).unwrap_err().to_string();
            assert!(error.contains(named) && !error.contains('\n'), "{error}");
        }
    }
}
