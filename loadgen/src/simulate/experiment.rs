//! From an experiment's file, which real comparisons take too, to what is simulated.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{anyhow, ensure};
use parapet_config::faults::{FaultProfile, ServiceTime};

use super::Setup;
use crate::experiment::{Experiment, Role, Strategy};

/// Settings that only a real cluster has.
const REAL_FIELDS: [&str; 3] = ["encoding", "warm_up", "repeats"];

impl Setup {
    /// The simulation of what the file at `path` says, and the names of those of its fields that
    /// are not simulated.
    pub fn of_experiment(
        experiment: &Experiment,
        path: &Path,
    ) -> anyhow::Result<(Self, Vec<String>)> {
        let path = path.display();
        let real = REAL_FIELDS.into_iter();
        let real = real.filter(|name| experiment.written.contains(*name));
        let mut ignored: Vec<String> = real.map(str::to_owned).collect();
        let mut strategies = Vec::new();
        for (index, strategy) in experiment.strategies.iter().enumerate() {
            ensure!(
                strategy.url.is_none(),
                "{path}: strategies[{index}].url: a frontend that runs already cannot be \
                 simulated; give its settings instead"
            );
            let (arm, left_out) = strategy.arm();
            ignored.extend(left_out);
            strategies.push(arm);
        }
        let faults = faults(experiment).map_err(|problem| anyhow!("{path}: {problem}"))?;
        let setup = Self {
            strategies,
            baseline: Some(experiment.baseline.clone()),
            instances: experiment.instances.deployed,
            redundant_instances: experiment.instances.redundant,
            slots: experiment.instances.slots,
            arrivals: experiment.arrivals,
            rate: experiment.rate,
            queries: experiment.requests as u64,
            blocks: experiment.blocks,
            seed: experiment.seed,
            deadline_ms: experiment.timeout_ms as f64,
            faults: Some(faults),
            events: experiment.events.clone(),
            surroundings: experiment.simulation,
            ..Self::default()
        };
        Ok((setup, ignored))
    }
}

/// Returns the name of `model` in a simulation.
fn role<'a>(experiment: &Experiment, model: &'a str) -> &'a str {
    let serves = |of: &dyn Fn(&Strategy) -> bool| experiment.strategies.iter().any(of);
    if *model == experiment.model {
        Role::Deployed.model()
    } else if serves(&|strategy| strategy.parity_models.iter().any(|parity| parity == model)) {
        Role::Parity(0).model()
    } else if serves(&|strategy| strategy.backup_model.as_deref() == Some(model)) {
        Role::Backup.model()
    } else {
        model
    }
}

fn faults(experiment: &Experiment) -> anyhow::Result<FaultProfile> {
    let mut faults = experiment.faults.clone();
    // As instances that are started for a real comparison get it.
    faults.seed ^= experiment.seed;
    let mut by_role: BTreeMap<String, ServiceTime> = BTreeMap::new();
    for (model, time) in &experiment.faults.model_service_time {
        let role = role(experiment, model).to_owned();
        ensure!(
            by_role.get(&role).is_none_or(|other| other == time),
            "faults.model_service_time: {model:?} and another {role} model differ, and are \
             simulated alike; give one time"
        );
        by_role.insert(role, time.clone());
    }
    faults.model_service_time = by_role;
    Ok(faults)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use parapet_frontend_core::{HoldBackPolicy, StrategyConfig};

    use super::*;
    use crate::experiment::ResolvedArm;

    fn setup(text: &str) -> Result<(Setup, Vec<String>), String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let experiment = Experiment::read(file.path()).map_err(|error| error.to_string())?;
        Setup::of_experiment(&experiment, file.path()).map_err(|error| error.to_string())
    }

    const TAIL: &str = include_str!("../../experiments/tail.toml");

    #[test]
    fn the_experiment_of_the_tail_is_simulated_as_it_is() {
        let (setup, ignored) = setup(TAIL).unwrap();
        let arms: BTreeMap<&str, ResolvedArm> = setup
            .simulations()
            .unwrap()
            .into_iter()
            .map(|(arm, _)| {
                let written = setup.strategies.iter().find(|it| it.name == arm.label);
                (written.unwrap().name.as_str(), arm)
            })
            .collect();
        let StrategyConfig::Hedge(hedge) = &arms["hedge"].config else {
            panic!("{arms:?}");
        };
        assert_eq!((hedge.share, hedge.burst), (0.05, 10.0));
        let StrategyConfig::Coded(eager) = &arms["coded_eager"].config else {
            panic!("{arms:?}");
        };
        assert_eq!(eager.hold_back, HoldBackPolicy::Fixed(Duration::ZERO));
        assert_eq!(eager.flush_after, Duration::from_millis(6));
        assert!(arms["equal_resources"].all_instances);
        assert!(
            ignored.contains(&"coded: settings.encoder".to_owned()),
            "{ignored:?}"
        );
        let faults = setup.faults.as_ref().unwrap();
        assert_eq!(
            faults.model_service_time.keys().collect::<Vec<_>>(),
            ["backup"]
        );
        assert_eq!(
            (setup.queries, setup.blocks, setup.deadline_ms),
            (20_000, 10, 2000.0)
        );
        assert_eq!(setup.simulations().unwrap().len(), setup.strategies.len());
    }

    #[test]
    fn sizes_of_groups_can_be_changed() {
        let (mut setup, _) = setup(TAIL).unwrap();
        setup.set_k(4);
        let simulations = setup.simulations().unwrap();
        let coded: Vec<usize> = simulations
            .iter()
            .filter_map(|(arm, _)| match &arm.config {
                StrategyConfig::Coded(coded) => Some(coded.k),
                _ => None,
            })
            .collect();
        assert!(
            !coded.is_empty() && coded.iter().all(|k| *k == 4),
            "{coded:?}"
        );
    }

    #[test]
    fn what_cannot_be_simulated_is_named_in_one_line() {
        for (from, to, named) in [
            (
                "settings = { kind = \"none\" }",
                "url = \"http://a\"",
                "strategies[0].url: a frontend that runs",
            ),
            ("share = 0.05", "shares = 0.05", "unknown field `shares`"),
            (
                "share = 0.05",
                "share = \"0.05\"",
                "invalid type: string \"0.05\"",
            ),
        ] {
            assert!(TAIL.contains(from), "{from}");
            let error = setup(&TAIL.replacen(from, to, 1)).unwrap_err();
            assert!(error.contains(named) && !error.contains('\n'), "{error}");
        }
    }
}
