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
    /// True if more was spent and not counted: before the training was interrupted.
    pub(super) at_least: bool,
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

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Figures {
    pub(super) accuracy_deployed: Option<f64>,
    /// A_d and agreement, for each number of missing queries.
    pub(super) by_losses: Vec<ByLosses>,
}

impl Outcome {
    pub(super) fn read(folder: &Path) -> Result<Self, TrainError> {
        let path = folder.join("evaluation.json");
        let contents = fs::read(&path).and_then(|contents| Ok(serde_json::from_slice(&contents)?));
        contents.map_err(TrainError::read(&path))
    }

    /// A_a - A_d, one query missing.
    pub(super) fn loss(&self) -> Option<Estimate> {
        self.evaluation.by_losses.first()?.loss
    }
}

pub(super) fn of_deployed(name: &str) -> String {
    format!("deployed-{name}")
}

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
}

pub(super) fn machine(threads: usize) -> String {
    let information = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let mut lines = information.lines();
    let name = lines.find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let processor = name.map_or("unknown", |(_, name)| name.trim());
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let version = env!("CARGO_PKG_VERSION");
    let libtorch = option_env!("PARITY_TRAINER_LIBTORCH").unwrap_or("unknown");
    format!(
        "{processor} ({processors} processors, of which {threads} used), parity-trainer {version}, \
         libtorch {libtorch}"
    )
}
