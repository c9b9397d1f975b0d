//! From an experiment's file, which real comparisons take too, to what is simulated.

use std::collections::BTreeMap;
use std::path::Path;

use parapet_config::faults::{FaultProfile, ServiceTime};
use toml::Value;

use super::{Setup, SimulatedStrategy};
use crate::experiment::{Experiment, FileError, Role, Strategy, StrategyKind};

/// Settings that only a real cluster has.
const REAL_FIELDS: [&str; 3] = ["encoding", "warm_up", "repeats"];
/// Settings of a strategy that have no part in a simulation: predictions have no content.
const REAL_SETTINGS: [&str; 6] = [
    "encoder",
    "audit_every",
    "late_truth_wait_ms",
    "parity_timeout_ms",
    "coded_timeout_ms",
    "transform",
];
/// The frontend's default, which is not the one of the other strategies.
const HEDGE_BURST: &str = ":burst=10";
/// So is that percentile, where the file says nothing of when a query is late.
const HEDGE_PERCENTILE: &str = ":hold_back=0.95";
/// And so is that share of a backup that is not eager.
const BACKUP_SHARE: &str = ":redundant_share=0.1";

impl Setup {
    /// The simulation of what the file at `path` says, and the names of those of its fields that
    /// are not simulated.
    ///
    /// # Errors
    /// [`FileError::Field`]: a strategy that runs elsewhere, or a setting that no strategy has.
    pub fn of_experiment(
        experiment: &Experiment,
        path: &Path,
    ) -> Result<(Self, Vec<String>), FileError> {
        let field = |field: String, problem: String, fix: &str| FileError::Field {
            path: path.to_owned(),
            field,
            problem,
            fix: fix.to_owned(),
        };
        let real = REAL_FIELDS
            .into_iter()
            .filter(|name| experiment.written.contains(*name));
        let mut ignored: Vec<String> = real.map(str::to_owned).collect();
        let mut strategies = Vec::new();
        for (index, strategy) in experiment.strategies.iter().enumerate() {
            let name = |part: &str| format!("strategies[{index}].{part}");
            if strategy.url.is_some() {
                let problem = "a frontend that runs already cannot be simulated".to_owned();
                return Err(field(name("url"), problem, "give its settings instead"));
            }
            let spec = spec(strategy, &mut ignored).map_err(|setting| {
                let problem = "no setting of the strategy, or not of this type".to_owned();
                field(
                    name(&format!("settings.{setting}")),
                    problem,
                    "see docs/strategies.md",
                )
            })?;
            let (name, description) = (strategy.name.clone(), strategy.description.clone());
            strategies.push(SimulatedStrategy {
                name,
                description,
                spec,
            });
        }
        let faults = faults(experiment).map_err(|problem| {
            field(
                "faults.model_service_time".to_owned(),
                problem,
                "give one time",
            )
        })?;
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

/// A strategy's settings as a [`crate::experiment::StrategySpec`] is written; the name of the one
/// that cannot be.
fn spec(strategy: &Strategy, ignored: &mut Vec<String>) -> Result<String, String> {
    let kind = strategy.known_kind();
    let mut spec = strategy.kind().to_owned();
    if kind == Some(StrategyKind::Hedge) && !strategy.settings.contains_key("burst") {
        spec.push_str(HEDGE_BURST);
    }
    let delay = strategy.settings.get("delay").and_then(Value::as_table);
    let says_when =
        delay.is_some_and(|it| it.contains_key("percentile") || it.contains_key("fixed_ms"));
    if kind == Some(StrategyKind::Hedge) && !says_when {
        spec.push_str(HEDGE_PERCENTILE);
    }
    let eager = strategy
        .settings
        .get("eager")
        .and_then(Value::as_bool)
        .unwrap_or(false);
    if kind == Some(StrategyKind::ApproximateBackup)
        && !eager
        && !strategy.settings.contains_key("share")
    {
        spec.push_str(BACKUP_SHARE);
    }
    let mut push = |parameter: &str, value: &Value| {
        let text = match value {
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            Value::Boolean(whether) => whether.to_string(),
            _ => return Err(()),
        };
        spec.push_str(&format!(":{parameter}={text}"));
        Ok(())
    };
    for (name, value) in &strategy.settings {
        let done = match (name.as_str(), value) {
            ("kind", _) => Ok(()),
            (
                "k" | "r" | "copies" | "eager" | "redundant_share" | "shed_above" | "defer_parity",
                value,
            ) => push(name, value),
            ("burst" | "redundant_burst", value) => push("burst", value),
            ("flush_after_ms", value) => push("flush_ms", value),
            ("max_copies", Value::Integer(copies)) => {
                push("copies", &Value::from(copies.saturating_add(1)))
            }
            ("share", value) if kind == Some(StrategyKind::Hedge) => push("hedge_share", value),
            ("share", value) if kind == Some(StrategyKind::ApproximateBackup) => {
                push("redundant_share", value)
            }
            ("hedge", Value::Table(hedge)) => hedge.iter().try_for_each(|(part, value)| match part
                .as_str()
            {
                "share" => push("hedge_share", value),
                _ => {
                    ignored.push(format!("{}: settings.hedge.{part}", strategy.name));
                    Ok(())
                }
            }),
            ("hold_back" | "delay", Value::Table(delay)) => {
                delay
                    .iter()
                    .try_for_each(|(part, value)| match part.as_str() {
                        "fixed_ms" => push("hold_back_ms", value),
                        "percentile" => push("hold_back", value),
                        "min_ms" => push("hold_back_min_ms", value),
                        "max_ms" => push("hold_back_max_ms", value),
                        "max_over_median" => push("max_over_median", value),
                        _ => Err(()),
                    })
            }
            ("share", _) => {
                ignored.push(format!("{}: settings.share", strategy.name));
                Ok(())
            }
            (real, _) if REAL_SETTINGS.contains(&real) => {
                ignored.push(format!("{}: settings.{real}", strategy.name));
                Ok(())
            }
            _ => Err(()),
        };
        done.map_err(|()| name.clone())?;
    }
    Ok(spec)
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

/// The faults, with the models called by their roles.
fn faults(experiment: &Experiment) -> Result<FaultProfile, String> {
    let mut faults = experiment.faults.clone();
    // As instances that are started for a real comparison get it.
    faults.seed ^= experiment.seed;
    let mut by_role: BTreeMap<String, ServiceTime> = BTreeMap::new();
    for (model, time) in &experiment.faults.model_service_time {
        let role = role(experiment, model).to_owned();
        if by_role.get(&role).is_some_and(|other| other != time) {
            return Err(format!(
                "{model:?} and another {role} model differ, and are simulated alike"
            ));
        }
        by_role.insert(role, time.clone());
    }
    faults.model_service_time = by_role;
    Ok(faults)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let specs: BTreeMap<&str, &str> = setup
            .strategies
            .iter()
            .map(|it| (it.name.as_str(), it.spec.as_str()))
            .collect();
        assert_eq!(
            specs["hedge"],
            "hedge:burst=10:hold_back_max_ms=100:max_over_median=1.2:hold_back_min_ms=18.5:hold_back=0.95:hedge_share=0.05"
        );
        assert_eq!(
            specs["coded_eager"],
            "coded:flush_ms=6:hold_back_ms=0:k=2:r=1"
        );
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
            .filter(|(spec, _)| spec.kind == StrategyKind::Coded)
            .map(|(spec, _)| spec.settings.k)
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
            (
                "share = 0.05",
                "shares = 0.05",
                "settings.shares: no setting",
            ),
            (
                "share = 0.05",
                "share = \"0.05\"",
                "settings.share: no setting",
            ),
        ] {
            assert!(TAIL.contains(from), "{from}");
            let error = setup(&TAIL.replacen(from, to, 1)).unwrap_err();
            assert!(error.contains(named) && !error.contains('\n'), "{error}");
        }
    }
}
