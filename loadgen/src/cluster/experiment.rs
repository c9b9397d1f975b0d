//! An experiment's file: the cluster, its faults, the load, and the strategies to compare on them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use parapet_faults::FaultProfile;
use serde::Deserialize;

use crate::experiment::StrategyKind;
use crate::payload::WireEncoding;
use crate::schedule::Arrivals;

/// What `parapet-loadgen compare` runs.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// The deployed model.
    pub model: String,
    /// Seed of schedules, rows and faults.
    #[serde(default = "one")]
    pub seed: u64,
    /// Mean requests/s.
    pub rate: f64,
    /// How they are spread over time.
    #[serde(default = "poisson")]
    pub arrivals: Arrivals,
    /// Requests to each strategy.
    pub requests: usize,
    /// Blocks into which each strategy's requests are cut; the strategies take turns after each.
    #[serde(default = "ten")]
    pub blocks: usize,
    /// Requests to each strategy before its first block, which count for nothing: they fill connections and percentiles.
    #[serde(default = "warm_up")]
    pub warm_up: usize,
    /// Milliseconds after which a request is given up.
    #[serde(default = "timeout_ms")]
    pub timeout_ms: u64,
    /// Form of the tensors.
    #[serde(default = "binary")]
    pub encoding: WireEncoding,
    /// The strategy that the others are compared with.
    pub baseline: String,
    /// The cluster.
    pub instances: Instances,
    /// What happens to every instance.
    #[serde(default)]
    pub faults: FaultProfile,
    /// What happens to single ones, in the blocks of every strategy.
    #[serde(default)]
    pub events: Vec<Event>,
    /// What is compared.
    pub strategies: Vec<Strategy>,
}

/// The cluster's size. Every strategy has the same number of instances; it differs what they do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Instances {
    /// Serve the deployed model under every strategy.
    pub deployed: usize,
    /// Serve what the strategy makes of them: parity models, a backup model, further replicas, or nothing.
    pub redundant: usize,
    /// Requests that an instance is given at a time.
    #[serde(default = "one_slot")]
    pub slots: u32,
}

/// Something done to one instance, once in the block of each strategy.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// The block, from 0.
    pub block: usize,
    /// Seconds after its start.
    pub after_s: f64,
    /// What.
    pub what: What,
    /// To which instance, from 0; the redundant ones come after the deployed ones.
    pub instance: usize,
    /// Seconds until it runs again; a killed instance is started anew after the block in any case.
    pub for_s: Option<f64>,
}

/// What can be done to an instance's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// SIGSTOP, and SIGCONT later.
    Freeze,
    /// SIGKILL, and another start later.
    Kill,
}

/// A strategy under test.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Strategy {
    /// Short name, unlike the others'.
    pub name: String,
    /// What it does, in a line.
    #[serde(default)]
    pub description: String,
    /// `[models.strategy]` of the frontend's configuration, but for instances and models, which the roles give.
    pub settings: toml::Table,
    /// For coded strategies, the parity model of each row.
    #[serde(default)]
    pub parity_models: Vec<String>,
    /// For the approximate backup, its model.
    pub backup_model: Option<String>,
}

/// An experiment that cannot be run; one line.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// The file cannot be read.
    #[error("{}: cannot read the experiment: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Not TOML, or a field is unknown, missing or of the wrong type.
    #[error("{}: line {line}: {message}", path.display())]
    Toml {
        /// The file.
        path: PathBuf,
        /// Line of the mistake, from 1.
        line: usize,
        /// The mistake, in one line.
        message: String,
    },
    /// A value that cannot be.
    #[error("{}: {field}: {problem}; {fix}", path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// The field.
        field: String,
        /// What is wrong.
        problem: String,
        /// What to do.
        fix: String,
    },
}

impl Strategy {
    /// The strategy's kind, as the frontend knows it.
    pub fn kind(&self) -> &str {
        self.settings.get("kind").and_then(toml::Value::as_str).unwrap_or_default()
    }

    pub(super) fn known_kind(&self) -> Option<StrategyKind> {
        StrategyKind::ALL.into_iter().find(|kind| kind.name() == self.kind())
    }

    fn number(&self, key: &str) -> Option<usize> {
        usize::try_from(self.settings.get(key)?.as_integer()?).ok()
    }
}

impl Experiment {
    /// Reads and checks the file at `path`.
    ///
    /// # Errors
    /// [`ExperimentError`].
    pub fn read(path: &Path) -> Result<Self, ExperimentError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ExperimentError::Read { path: path.to_owned(), source })?;
        let experiment: Self = toml::from_str(&text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start);
            let line = text.get(..start).map_or(1, |before| before.matches('\n').count() + 1);
            let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
            ExperimentError::Toml { path: path.to_owned(), line, message }
        })?;
        experiment.check(path)?;
        Ok(experiment)
    }

    /// Checks everything that needs no file but this; again after anything was changed.
    ///
    /// # Errors
    /// [`ExperimentError::Field`].
    pub fn check(&self, path: &Path) -> Result<(), ExperimentError> {
        let field = |field: &str, problem: String, fix: &str| ExperimentError::Field {
            path: path.to_owned(),
            field: field.to_owned(),
            problem,
            fix: fix.to_owned(),
        };
        if !(self.rate.is_finite() && self.rate > 0.0) {
            return Err(field("rate", self.rate.to_string(), "give requests/s above 0"));
        }
        for (name, value) in [
            ("instances.deployed", self.instances.deployed),
            ("instances.slots", self.instances.slots as usize),
            ("blocks", self.blocks),
        ] {
            if value == 0 {
                return Err(field(name, "0".to_owned(), "give at least 1"));
            }
        }
        if self.requests < self.blocks {
            let problem = format!("{} requests for {} blocks", self.requests, self.blocks);
            return Err(field("requests", problem, "give at least one request to each block"));
        }
        if self.timeout_ms == 0 {
            return Err(field("timeout_ms", "0".to_owned(), "give milliseconds above 0"));
        }
        self.faults.validate().map_err(|problem| field("faults", problem, "see parapet-instance"))?;
        if self.strategies.is_empty() {
            return Err(field("strategies", "none".to_owned(), "add a [[strategies]] table"));
        }
        let mut names = BTreeSet::new();
        for (index, strategy) in self.strategies.iter().enumerate() {
            let name = |part: &str| format!("strategies[{index}].{part}");
            if strategy.name.is_empty() || !names.insert(strategy.name.as_str()) {
                let problem = format!("{:?} is empty or there twice", strategy.name);
                return Err(field(&name("name"), problem, "name each strategy once"));
            }
            self.check_strategy(strategy)
                .map_err(|(part, problem, fix)| field(&name(part), problem, &fix))?;
        }
        if !names.contains(self.baseline.as_str()) {
            let problem = format!("no strategy is named {:?}", self.baseline);
            return Err(field("baseline", problem, "name one of [[strategies]]"));
        }
        let total = self.instances.deployed + self.instances.redundant;
        for (index, event) in self.events.iter().enumerate() {
            let name = |part: &str| format!("events[{index}].{part}");
            if event.instance >= total {
                let problem = format!("instance {} of {total}", event.instance);
                return Err(field(&name("instance"), problem, "count from 0, the redundant ones last"));
            }
            if event.block >= self.blocks {
                let problem = format!("block {} of {}", event.block, self.blocks);
                return Err(field(&name("block"), problem, "count from 0"));
            }
            let span = |seconds: f64| (0.0..=86_400.0).contains(&seconds);
            if !span(event.after_s) || !event.for_s.is_none_or(span) {
                return Err(field(
                    &name("after_s"),
                    "no time".to_owned(),
                    "give after_s and for_s in seconds from 0",
                ));
            }
            if event.what == What::Freeze && event.for_s.is_none() {
                let fix = "give the seconds after which the instance goes on";
                return Err(field(&name("for_s"), "a freeze without an end".to_owned(), fix));
            }
        }
        Ok(())
    }

    fn check_strategy(&self, strategy: &Strategy) -> Result<(), (&'static str, String, String)> {
        let Instances { deployed, redundant, .. } = self.instances;
        let kind = strategy.known_kind().ok_or_else(|| {
            let kinds = StrategyKind::ALL.map(StrategyKind::name).join(", ");
            (
                "settings.kind",
                format!("unknown strategy {:?}", strategy.kind()),
                format!("use one of {kinds}"),
            )
        })?;
        if matches!(kind, StrategyKind::EqualResources | StrategyKind::ApproximateBackup) && redundant == 0 {
            let problem = format!("{} without redundant instances", kind.name());
            return Err(("settings.kind", problem, "raise instances.redundant".to_owned()));
        }
        match kind {
            StrategyKind::ApproximateBackup if strategy.backup_model.is_none() => {
                Err(("backup_model", "none".to_owned(), "name the cheaper model".to_owned()))
            }
            StrategyKind::Coded | StrategyKind::CodedHedged => {
                let (k, r) = (strategy.number("k").unwrap_or(0), strategy.number("r").unwrap_or(1));
                if k > deployed {
                    let problem = format!("k = {k} with {deployed} deployed instances");
                    let fix =
                        "a group's members go to different instances: lower k or raise instances.deployed";
                    return Err(("settings.k", problem, fix.to_owned()));
                }
                if strategy.parity_models.len() != r {
                    let problem = format!("{} models for r = {r}", strategy.parity_models.len());
                    return Err(("parity_models", problem, "name one for each parity row".to_owned()));
                }
                if redundant < r {
                    let problem = format!("r = {r} with {redundant} redundant instances");
                    return Err(("settings.r", problem, "raise instances.redundant".to_owned()));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// All models that the cluster serves, each once.
    pub fn models(&self) -> Vec<String> {
        let mut models = vec![self.model.clone()];
        for strategy in &self.strategies {
            for model in strategy.parity_models.iter().chain(&strategy.backup_model) {
                if !models.contains(model) {
                    models.push(model.clone());
                }
            }
        }
        models
    }

    /// Instances that `strategy` uses.
    pub fn instances_used(&self, strategy: &Strategy) -> usize {
        let redundant = match strategy.known_kind() {
            None | Some(StrategyKind::None) => 0,
            Some(_) => self.instances.redundant,
        };
        self.instances.deployed + redundant
    }

    /// The requests of each block; the first ones take what does not divide.
    pub fn block_requests(&self) -> Vec<usize> {
        let (each, more) = (self.requests / self.blocks, self.requests % self.blocks);
        (0..self.blocks).map(|block| each + usize::from(block < more)).collect()
    }
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
fn timeout_ms() -> u64 {
    2_000
}
fn poisson() -> Arrivals {
    Arrivals::Poisson
}
fn binary() -> WireEncoding {
    WireEncoding::Binary
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
model = "fashion"
rate = 270
requests = 25
baseline = "er"
[instances]
deployed = 4
redundant = 2
[faults]
seed = 1
service_time = { distribution = "constant", ms = 18 }
[[events]]
block = 1
after_s = 0.5
what = "freeze"
instance = 5
for_s = 0.3
[[strategies]]
name = "er"
settings = { kind = "equal_resources" }
[[strategies]]
name = "coded"
settings = { kind = "coded", encoder = "concat", k = 2 }
parity_models = ["parity"]
"#;

    fn read(text: &str) -> Result<Experiment, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Experiment::read(file.path()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_good_one_is_read() {
        let experiment = read(GOOD).unwrap();
        assert_eq!(experiment.models(), ["fashion", "parity"]);
        assert_eq!(experiment.block_requests(), [3, 3, 3, 3, 3, 2, 2, 2, 2, 2]);
        assert_eq!(experiment.instances_used(&experiment.strategies[1]), 6);
    }

    #[test]
    fn mistakes_are_named_in_one_line() {
        for (from, to, named) in [
            ("rate = 270", "rate = 0", "rate: 0; give"),
            ("rate = 270", "rat = 270", "line 3: unknown field `rat`"),
            ("deployed = 4", "deployed = 1", "settings.k: k = 2 with 1 deployed"),
            ("redundant = 2", "redundant = 0", "without redundant instances"),
            ("kind = \"coded\"", "kind = \"coder\"", "unknown strategy \"coder\"; use one of none, "),
            ("parity_models = [\"parity\"]", "", "parity_models: 0 models for r = 1"),
            ("instance = 5", "instance = 6", "events[0].instance: instance 6 of 6"),
            ("block = 1", "block = 10", "events[0].block"),
            ("for_s = 0.3", "", "a freeze without an end"),
            ("baseline = \"er\"", "baseline = \"none\"", "no strategy is named \"none\""),
            ("name = \"er\"", "name = \"coded\"", "there twice"),
            ("requests = 25", "requests = 9", "9 requests for 10 blocks"),
            ("ms = 18", "ms = -1", "service_time.ms"),
        ] {
            assert!(GOOD.contains(from));
            let error = read(&GOOD.replacen(from, to, 1)).unwrap_err();
            assert!(error.contains(named) && !error.contains('\n'), "{error}");
        }
    }
}
