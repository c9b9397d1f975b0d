//! Records of finished rows, one JSON file each: a later run takes them over.

use std::fs;
use std::path::{Path, PathBuf};

use parity_trainer::TrainError;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The folder of the records, in `--out`.
const FOLDER: &str = "rows";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct RowRecord {
    /// Of its commands: a row whose recipe has changed is another.
    pub(super) digest: String,
    pub(super) commands: Vec<String>,
    /// Cost of the training, before an interruption, too.
    pub(super) cost: Cost,
    pub(super) outcome: RowOutcome,
}

/// A deployed model that was trained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct DeployedRecord {
    /// Of its command.
    pub(super) digest: String,
    pub(super) command: String,
    pub(super) cost: Cost,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Cost {
    /// By the clock on the wall.
    pub(super) seconds: f64,
    /// Of all processors together; 0 if it was not measured.
    #[serde(default)]
    pub(super) processor_seconds: f64,
    /// True if more was spent and not counted: the program was killed while a command ran.
    #[serde(default)]
    pub(super) at_least: bool,
}

impl std::ops::Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            seconds: self.seconds + other.seconds,
            processor_seconds: self.processor_seconds + other.processor_seconds,
            at_least: self.at_least || other.at_least,
        }
    }
}

/// An evaluation's figures, as `eval` writes them; accuracies are parts of 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct RowOutcome {
    pub(super) code: String,
    /// The domain in which predictions were added.
    pub(super) transform: Kind,
    pub(super) evaluation: Figures,
    /// Figures of the deployed model as its own parity model.
    pub(super) untrained_control: Figures,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Kind {
    pub(super) kind: String,
}

/// One code's figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Figures {
    pub(super) accuracy_deployed: Option<f64>,
    /// A_d and agreement, for each number of missing queries.
    pub(super) by_losses: Vec<Losses>,
}

/// Figures for one number of missing queries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Losses {
    pub(super) missing: usize,
    pub(super) accuracy: Option<Estimate>,
    /// A_a - A_d over the same queries; absent in records of before it was told.
    #[serde(default)]
    pub(super) loss: Option<Estimate>,
    pub(super) agreement: Estimate,
    pub(super) reconstructions: usize,
}

/// A part of 1 with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Estimate {
    pub(super) value: f64,
    pub(super) interval: Option<(f64, f64)>,
}

impl RowOutcome {
    /// Of the evaluation in `folder`.
    pub(super) fn read(folder: &Path) -> Result<Self, TrainError> {
        let path = folder.join("evaluation.json");
        let failed = |source| TrainError::Report {
            path: path.clone(),
            source,
        };
        serde_json::from_slice(&fs::read(&path).map_err(failed)?)
            .map_err(|error| failed(error.into()))
    }

    /// A_a - A_d in points, one query missing.
    pub(super) fn loss(&self) -> Option<f64> {
        let one = self.evaluation.by_losses.first()?;
        let apart = || Some(self.evaluation.accuracy_deployed? - one.accuracy?.value);
        one.loss
            .map(|loss| loss.value)
            .or_else(apart)
            .map(|loss| 100.0 * loss)
    }

    /// The paired interval of the loss, in points.
    pub(super) fn loss_interval(&self) -> Option<(f64, f64)> {
        let (low, high) = self.evaluation.by_losses.first()?.loss?.interval?;
        Some((100.0 * low, 100.0 * high))
    }

    /// Tells whether the loss, if there is one, has its interval: earlier evaluations did
    /// not give it.
    pub(super) fn is_complete(&self) -> bool {
        self.loss().is_none() || self.loss_interval().is_some()
    }
}

/// Cost so far of a row that was begun before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Spent {
    digest: String,
    cost: Cost,
    /// True while a command runs whose cost is not in it yet.
    #[serde(default)]
    running: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Begun {
    /// True if the same was begun before.
    pub(super) again: bool,
    /// Cost so far.
    pub(super) cost: Cost,
}

/// Returns the name of the record of the deployed model `name`.
pub(super) fn of_deployed(name: &str) -> String {
    format!("deployed-{name}")
}

/// The folder of records.
#[derive(Debug, Clone)]
pub(super) struct Records(PathBuf);

impl Records {
    /// Opens the records in `out`; the folder is made.
    pub(super) fn at(out: &Path) -> Result<Self, TrainError> {
        let folder = out.join(FOLDER);
        fs::create_dir_all(&folder).map_err(|source| TrainError::Write {
            path: folder.clone(),
            source,
        })?;
        Ok(Self(folder))
    }

    pub(super) fn row(&self, name: &str) -> Option<RowRecord> {
        self.read(&format!("{name}.json"))
    }

    pub(super) fn save(&self, name: &str, record: &RowRecord) -> Result<(), TrainError> {
        self.write(&format!("{name}.json"), record)
    }

    pub(super) fn deployed(&self, name: &str) -> Option<DeployedRecord> {
        self.read(&format!("{}.json", of_deployed(name)))
    }

    pub(super) fn save_deployed(
        &self,
        name: &str,
        record: &DeployedRecord,
    ) -> Result<(), TrainError> {
        self.write(&format!("{}.json", of_deployed(name)), record)
    }

    /// Notes that a row of `digest` begins.
    pub(super) fn begin(&self, name: &str, digest: &str) -> Result<Begun, TrainError> {
        let before: Option<Spent> = self.read(&format!("{name}.begun.json"));
        let before = before.filter(|spent| spent.digest == digest);
        let mut begun = Begun {
            again: before.is_some(),
            cost: Cost::default(),
        };
        if let Some(before) = before {
            begun.cost = before.cost;
            begun.cost.at_least |= before.running;
        }
        self.write_spent(
            name,
            Spent {
                digest: digest.to_owned(),
                cost: begun.cost,
                running: true,
            },
        )?;
        Ok(begun)
    }

    /// Notes what it has cost so far, now that the command has ended.
    pub(super) fn spent(&self, name: &str, digest: &str, cost: Cost) -> Result<(), TrainError> {
        self.write_spent(
            name,
            Spent {
                digest: digest.to_owned(),
                cost,
                running: false,
            },
        )
    }

    fn write_spent(&self, name: &str, spent: Spent) -> Result<(), TrainError> {
        self.write(&format!("{name}.begun.json"), &spent)
    }

    /// A record that is torn counts as none: the row is run again.
    fn read<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_slice(&fs::read(self.0.join(name)).ok()?).ok()
    }

    fn write(&self, name: &str, record: &impl Serialize) -> Result<(), TrainError> {
        crate::command::write_json(Some(&self.0.join(name)), record)
    }
}

/// Machine that the figures were made on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Machine {
    /// The processor's name, where the system tells it.
    pub(super) processor: String,
    /// Processors that the system has.
    pub(super) processors: usize,
    /// Threads that the commands used.
    pub(super) threads: usize,
    /// This program's version.
    pub(super) version: &'static str,
    pub(super) libtorch: &'static str,
}

impl Machine {
    pub(super) fn here(threads: usize) -> Self {
        let information = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let name = information
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        Self {
            processor: name.map_or("unknown", |(_, name)| name.trim()).to_owned(),
            processors: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            threads,
            version: env!("CARGO_PKG_VERSION"),
            libtorch: option_env!("PARITY_TRAINER_LIBTORCH").unwrap_or("unknown"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Cost, Records};

    #[test]
    fn a_cost_that_was_not_counted_to_its_end_is_a_lower_bound() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::at(folder.path()).unwrap();
        let spent = Cost {
            seconds: 2.0,
            processor_seconds: 1.0,
            at_least: false,
        };

        assert_eq!(
            records.begin("row", "digest").unwrap().cost,
            Cost::default()
        );
        records.spent("row", "digest", spent).unwrap();
        assert_eq!(
            records.begin("row", "digest").unwrap().cost,
            spent,
            "all of it was counted"
        );

        // Killed here: what the second time has cost was never written.
        let killed = Cost {
            at_least: true,
            ..spent
        };
        assert_eq!(records.begin("row", "digest").unwrap().cost, killed);
        records.spent("row", "digest", killed + spent).unwrap();
        assert!(records.begin("row", "digest").unwrap().cost.at_least);
        assert_eq!(
            records.begin("row", "another").unwrap().cost,
            Cost::default()
        );
    }
}
