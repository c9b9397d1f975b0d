//! The simulation of one strategy.

use std::time::Duration;

use anyhow::{anyhow, ensure};
use parapet_config::faults::FaultProfile;
use parapet_frontend_core::{CoreConfig, PoolConfig, StrategyConfig};

use super::Surroundings;
use crate::experiment::{Arm, Event, Experiment, ResolvedArm, Role, What};
use crate::schedule::Arrivals;

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
    pub description: String,
    /// Bounds and times of the frontend. Pools are those of the strategy's roles.
    pub core: CoreConfig,
    pub roles: Vec<Role>,
    /// Models of the pools, for their service times.
    pub models: Vec<String>,
    pub strategy: StrategyConfig,
    pub arrivals: Arrivals,
    pub rate: f64,
    pub queries: u64,
    pub seed: u64,
    pub deadline: Duration,
    /// Service times and faults. Instances are numbered through all pools.
    pub faults: FaultProfile,
    pub surroundings: Surroundings,
    pub outages: Vec<Outage>,
    pub keep_records: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outage {
    pub instance: u32,
    pub what: What,
    /// From the start on, in nanoseconds.
    pub from: u64,
    pub until: u64,
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
        let resolved = arm.resolve(experiment.k, experiment.r, experiment.instances)?;
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
    /// `arm` in this experiment, with the frontend's default bounds or larger ones in proportion to
    /// the slots.
    fn new(experiment: &Experiment, arm: &Arm, resolved: ResolvedArm) -> Self {
        let slots = experiment.instances.slots;
        let slots_of = |instances: usize| instances.saturating_mul(slots as usize);
        let all_slots: usize = resolved.pools.iter().map(|pool| slots_of(pool.1)).sum();
        let pool = |&(_, instances): &(Role, usize)| PoolConfig {
            instances,
            slots,
            queue: LEAST_QUEUE.max(QUEUE_FOR_SLOT.saturating_mul(slots_of(instances))),
        };
        let roles = || resolved.pools.iter().map(|(role, _)| *role);
        Self {
            name: arm.name.clone(),
            description: resolved.description,
            core: CoreConfig {
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
            roles: roles().collect(),
            models: roles().map(|role| model(experiment, arm, role)).collect(),
            strategy: resolved.config,
            arrivals: experiment.arrivals,
            rate: experiment.rate,
            queries: experiment.requests as u64,
            seed: experiment.seed,
            deadline: Duration::from_millis(experiment.timeout_ms),
            faults: experiment.fault_profile(),
            surroundings: experiment.simulation,
            outages: outages(experiment, &resolved.pools),
            keep_records: false,
        }
    }

    pub fn check(&self) -> anyhow::Result<()> {
        let (rate, queries) = (self.rate, self.queries);
        ensure!(
            rate.is_finite() && rate > 0.0,
            "rate: {rate}; give a positive number of queries/s, as 270"
        );
        let known = (1..=MAX_QUERIES).contains(&queries);
        ensure!(known, "queries: {queries}; give 1 to {MAX_QUERIES}");
        // Virtual time is nanoseconds in 64 bits: 500 years; stay far below.
        let short = queries as f64 / rate < 1e9;
        ensure!(short, "rate: {rate}; raise it, or give fewer queries");
        let instances: usize = self.core.pools.iter().map(|pool| pool.instances).sum();
        let known = (1..=MAX_INSTANCES).contains(&instances);
        ensure!(
            known,
            "instances: {instances}; give 1 to {MAX_INSTANCES} in all"
        );
        let usable = |pool: &PoolConfig| pool.instances > 0 && (1..=1024).contains(&pool.slots);
        ensure!(
            self.core.pools.iter().all(usable),
            "slots: 0 or too many; give 1 to 1024 to each instance of each pool"
        );
        let faults = self.faults.validate();
        faults.map_err(|problem| anyhow!("faults: {problem}; correct the fault profile"))?;
        ensure!(
            !self.deadline.is_zero(),
            "deadline: 0; give some milliseconds"
        );
        self.surroundings.check()
    }
}

/// The events that hit an instance of these pools; as in a real comparison, none lasts longer
/// than its block.
fn outages(experiment: &Experiment, pools: &[(Role, usize)]) -> Vec<Outage> {
    let block_s = experiment.block_s();
    let mut outages = Vec::new();
    for event in &experiment.events {
        let Event { after_s, what, .. } = *event;
        let start_s = event.block as f64 * block_s;
        let until_s = event
            .for_s
            .map_or(block_s, |for_s| (after_s + for_s).min(block_s));
        if let Some(instance) = number(experiment, event.instance, pools)
            && after_s < until_s
        {
            let [from, until] = [after_s, until_s].map(|at| ((start_s + at) * 1e9) as u64);
            outages.push(Outage {
                instance,
                what,
                from,
                until,
            });
        }
    }
    outages
}

/// An event's instance by its number through all pools. Parity rows take the redundant
/// instances in turns, as in real comparisons; `None` if the strategy does not use it.
fn number(experiment: &Experiment, instance: usize, pools: &[(Role, usize)]) -> Option<u32> {
    let (_, deployed) = pools.first()?;
    if instance < *deployed {
        return u32::try_from(instance).ok();
    }
    let (redundant, rows) = (
        instance.checked_sub(experiment.instances.deployed)?,
        pools.len() - 1,
    );
    let (place, row) = (redundant.checked_div(rows)?, redundant.checked_rem(rows)?);
    let before: usize = pools.iter().take(row + 1).map(|(_, count)| count).sum();
    let (_, count) = pools.get(row + 1)?;
    let number = u32::try_from(before + place).ok()?;
    (place < *count).then_some(number)
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
    use parapet_frontend_core::HoldBackPolicy;

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
        let StrategyConfig::Hedge(hedge) = arm("hedge").strategy else {
            panic!("{arms:?}");
        };
        assert_eq!((hedge.share, hedge.burst), (0.05, 10.0));
        let StrategyConfig::Coded(eager) = arm("coded_eager").strategy else {
            panic!("{arms:?}");
        };
        assert_eq!(eager.hold_back, HoldBackPolicy::Fixed(Duration::ZERO));
        assert_eq!(eager.flush_after, Duration::from_millis(6));
        let equal = arm("equal_resources");
        let pools = (equal.roles.as_slice(), equal.core.pools[0].instances);
        assert_eq!(pools, (&[Role::Deployed][..], 18));
        let times = &arms[0].faults.model_service_time;
        assert_eq!(times.keys().collect::<Vec<_>>(), ["fashion-small"]);
        assert_eq!(
            arm("approximate_backup").models,
            ["fashion", "fashion-small"]
        );
        let (queries, deadline) = (arms[0].queries, arms[0].deadline);
        assert_eq!((queries, deadline), (20_000, Duration::from_secs(2)));
    }

    #[test]
    fn sizes_of_groups_can_be_changed() {
        let mut experiment = read(TAIL).unwrap();
        experiment.set_code(Some(4), None);
        let simulations = simulations(&experiment).unwrap();
        let coded = simulations.iter().filter_map(|it| match &it.strategy {
            StrategyConfig::Coded(coded) => Some(coded.k),
            _ => None,
        });
        assert_eq!(coded.collect::<Vec<_>>(), [4, 4]);
    }

    #[test]
    fn what_cannot_be_simulated_is_named_in_one_line() {
        let share = "share = 0.05";
        let given = "strategies[0].url: a frontend that runs";
        let wrong_type = "invalid type: string \"0.05\"";
        for (from, to, named) in [
            (
                "settings = { kind = \"none\" }",
                "url = \"http://a\"",
                given,
            ),
            (share, "shares = 0.05", "unknown field `shares`"),
            (share, "share = \"0.05\"", wrong_type),
        ] {
            assert!(TAIL.contains(from), "{from}");
            let read = read(&TAIL.replacen(from, to, 1));
            let error = read
                .and_then(|it| simulations(&it))
                .unwrap_err()
                .to_string();
            assert!(error.contains(named) && !error.contains('\n'), "{error}");
        }
    }
}
