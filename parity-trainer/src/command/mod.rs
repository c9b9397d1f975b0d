//! The subcommands: arguments in, a model-repository entry and a report out.

pub(crate) mod eval;
mod interrupt;
pub(crate) mod reproduce;
mod settings;
mod subject;
pub(crate) mod train_deployed;
pub(crate) mod train_parity;
mod training_loop;
pub(crate) mod worker;

pub(crate) use interrupt::EXIT_CODE as INTERRUPTED;

use std::fs;
use std::path::{Path, PathBuf};

use parity_trainer::data::{Augment, DataSet};
use parity_trainer::files::write_aside;
use parity_trainer::run::{Lock, RunFolder};
use parity_trainer::{SetupError, TrainError};

use crate::progress::Counter;

/// Where a repository has its runs.
const RUNS: &str = ".runs";

/// Finds out before the training, and not after it, whether the results can be written: the entry,
/// and the report `json`.
fn prepare_out(out: &Path, json: Option<&Path>) -> Result<(), TrainError> {
    fs::create_dir_all(out).map_err(|source| TrainError::Write {
        path: out.to_path_buf(),
        source,
    })?;
    let folder = json
        .and_then(Path::parent)
        .filter(|folder| *folder != Path::new(""));
    match (json, folder) {
        (Some(json), Some(folder)) if !folder.is_dir() => {
            let problem = format!(
                "--json {}: there is no folder {}",
                json.display(),
                folder.display()
            );
            Err(SetupError::config(None, &problem).into())
        }
        _ => Ok(()),
    }
}

/// Keeps other trainings away from a run's folder and from the entry `name` of the repository
/// `out`.
fn lock_training(folder: &RunFolder, out: &Path, name: &str) -> Result<[Lock; 2], TrainError> {
    let entry = Lock::take(
        &out.join(RUNS).join(format!("{name}.lock")),
        &out.join(name),
        "name",
    )?;
    Ok([entry, folder.lock()?])
}

/// The folder of a run: the one that was named, or that of `name` in the repository `out`.
fn run_folder(named: Option<&PathBuf>, out: &Path, name: &str) -> RunFolder {
    RunFolder::at(named.cloned().unwrap_or_else(|| out.join(RUNS).join(name)))
}

/// Writes a report, whole or not at all, if a file for it was named.
fn write_json(path: Option<&Path>, report: &impl serde::Serialize) -> Result<(), TrainError> {
    let Some(path) = path else { return Ok(()) };
    let failed = |source| TrainError::Write {
        path: path.to_path_buf(),
        source,
    };
    let mut text = serde_json::to_string_pretty(report).map_err(|error| failed(error.into()))?;
    text.push('\n');
    write_aside(path, &[text.as_bytes()]).map_err(failed)
}

/// A name that the model repository takes.
pub(crate) fn model_name(name: &str) -> Result<String, String> {
    let allowed =
        |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    match name {
        name if name.starts_with(|first: char| first.is_ascii_alphanumeric())
            && name.chars().all(allowed) =>
        {
            Ok(name.to_owned())
        }
        _ => Err(
            "a model's name has letters, digits, '-', '_' and '.', and begins with a letter \
            or digit"
                .to_owned(),
        ),
    }
}

fn load_data(folder: &Path) -> Result<DataSet, TrainError> {
    let mut progress = Counter::new("data", "samples read");
    let data = DataSet::load_with(folder, &mut |read| {
        if let Some(total) = read.total {
            progress.at(read.samples, total);
        }
    })?;
    progress.finish();
    let classes = if data.is_labelled() {
        format!("{} classes", data.classes)
    } else {
        "no labels".to_owned()
    };
    eprintln!(
        "data: {} training and {} test samples of shape {:?}, {classes}",
        data.train.len(),
        data.test.len(),
        data.train.shape,
    );
    Ok(data)
}

/// Images are shifted unless the user says otherwise; mirroring is theirs to ask for, as it spoils
/// digits and letters.
fn augmentation(asked: Option<Augment>, data: &DataSet) -> Augment {
    let image = data.train.shape.len() == 3;
    asked.unwrap_or(if image { Augment::SHIFT } else { Augment::NONE })
}

/// Provenance for `model.toml`. TOML's integers are signed: a larger seed is kept as text.
fn provenance(seed: u64, data: &DataSet) -> toml::Table {
    let mut table = toml::Table::new();
    let seed = i64::try_from(seed).map_or_else(|_| seed.to_string().into(), toml::Value::Integer);
    table.insert("seed".to_owned(), seed);
    table.insert("data_sha256".to_owned(), data.sha256.clone().into());
    table.insert("train_samples".to_owned(), (data.train.len() as i64).into());
    table.insert("test_samples".to_owned(), (data.test.len() as i64).into());
    table
}

/// A part of 1, rounded for reading.
fn rounded(part: f64) -> toml::Value {
    ((part * 1e4).round() / 1e4).into()
}
