//! Records of finished trainings, one JSON file each: a later run takes them over.

use std::fs;
use std::path::{Path, PathBuf};

use parapet_encoder::OutputTransform;
use parity_trainer::TrainError;
use parity_trainer::evaluation::{ByLosses, Estimate};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A training, of a parity model or of a deployed model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Record<O = Outcome> {
    /// Digest of the commands: a row whose recipe has changed is another.
    pub(super) digest: String,
    pub(super) commands: Vec<String>,
    /// Cost of the training, before an interruption, too.
    pub(super) cost: Cost,
    /// Figures; nothing of a deployed model.
    pub(super) outcome: O,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Cost {
    /// By the clock on the wall.
    pub(super) seconds: f64,
    /// Of all processors together.
    pub(super) processor_seconds: f64,
    /// True if more was spent and not counted: the program was killed while a command ran.
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
pub(super) struct Outcome {
    pub(super) code: String,
    /// The domain in which predictions were added.
    pub(super) transform: OutputTransform,
    pub(super) evaluation: Figures,
    /// Figures of the deployed model as its own parity model.
    pub(super) untrained_control: Figures,
}

/// One code's figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Figures {
    pub(super) accuracy_deployed: Option<f64>,
    /// A_d and agreement, for each number of missing queries.
    pub(super) by_losses: Vec<ByLosses>,
}

impl Outcome {
    /// Reads the evaluation in `folder`.
    pub(super) fn read(folder: &Path) -> Result<Self, String> {
        let path = folder.join("evaluation.json");
        let contents = fs::read(&path).and_then(|contents| Ok(serde_json::from_slice(&contents)?));
        contents.map_err(|error| format!("{}: cannot read: {error}", path.display()))
    }

    /// A_a - A_d, one query missing.
    pub(super) fn loss(&self) -> Option<Estimate> {
        self.evaluation.by_losses.first()?.loss
    }
}

/// Cost so far of a training that was begun.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Spent {
    digest: String,
    cost: Cost,
    /// True while a command runs whose cost is not in it yet.
    running: bool,
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
        let folder = out.join("rows");
        fs::create_dir_all(&folder).map_err(TrainError::write(&folder))?;
        Ok(Self(folder))
    }

    /// Reads a record. One that is torn counts as none: the row is run again.
    pub(super) fn read<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let path = self.0.join(format!("{name}.json"));
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    pub(super) fn write(&self, name: &str, record: &impl Serialize) -> Result<(), TrainError> {
        crate::command::write_json(&self.0.join(format!("{name}.json")), record)
    }

    /// Notes that a training of `digest` begins; returns its cost so far, if the same was begun
    /// before.
    pub(super) fn begin(&self, name: &str, digest: &str) -> Result<Option<Cost>, TrainError> {
        let before: Option<Spent> = self.read(&format!("{name}.begun"));
        let before = before.filter(|spent| spent.digest == digest);
        let cost = before.map(|before| Cost {
            at_least: before.cost.at_least || before.running,
            ..before.cost
        });
        self.note(name, digest, cost.unwrap_or_default(), true)?;
        Ok(cost)
    }

    /// Notes what a training has cost so far; `running` while a command runs whose cost is not in
    /// it yet.
    pub(super) fn note(
        &self,
        name: &str,
        digest: &str,
        cost: Cost,
        running: bool,
    ) -> Result<(), TrainError> {
        let spent = Spent {
            digest: digest.to_owned(),
            cost,
            running,
        };
        self.write(&format!("{name}.begun"), &spent)
    }
}

/// Machine that the figures were made on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Machine {
    /// The processor's name, where the system tells it.
    pub(super) processor: String,
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
        let mut lines = information.lines();
        let name = lines.find_map(|line| line.strip_prefix("model name")?.split_once(':'));
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
    fn cost_that_was_not_counted_to_its_end_is_a_lower_bound() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::at(folder.path()).unwrap();
        let begin = |digest| records.begin("row", digest).unwrap();
        let spent = Cost {
            seconds: 2.0,
            processor_seconds: 1.0,
            at_least: false,
        };
        assert_eq!(begin("digest"), None);
        records.note("row", "digest", spent, false).unwrap();
        assert_eq!(begin("digest"), Some(spent), "all of it was counted");

        // Killed here: what the second time has cost was never written.
        let killed = Cost {
            at_least: true,
            ..spent
        };
        assert_eq!(begin("digest"), Some(killed));
        records
            .note("row", "digest", killed + spent, false)
            .unwrap();
        assert!(begin("digest").unwrap().at_least);
        assert_eq!(begin("another"), None);
    }
}
