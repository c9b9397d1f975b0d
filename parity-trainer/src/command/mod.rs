//! The subcommands: arguments in, a model-repository entry and a report out.

pub(crate) mod eval;
pub(crate) mod interrupt;
pub(crate) mod reproduce;
mod settings;
pub(crate) mod train_deployed;
pub(crate) mod train_parity;
mod training_loop;
pub(crate) mod worker;

use std::fs;
use std::path::Path;

use parapet_decoder::OutputKind;
use parity_trainer::TrainError;
use parity_trainer::data::DataSet;
use parity_trainer::deployed::Deployed;
use parity_trainer::files::write_aside;

use crate::progress::Progress;

/// Finds out before the training if the results can be written: the entry, and the report `json`.
fn prepare_out(out: &Path, json: Option<&Path>) -> Result<(), TrainError> {
    fs::create_dir_all(out).map_err(TrainError::write(out))?;
    let Some(json) = json else { return Ok(()) };
    match json.parent() {
        Some(folder) if folder != Path::new("") && !folder.is_dir() => {
            let (json, folder) = (json.display(), folder.display());
            Err(TrainError::settings(None, &format!("--json {json}: there is no folder {folder}")))
        }
        _ => Ok(()),
    }
}

/// Writes a report, whole or not at all.
fn write_json(path: &Path, report: &impl serde::Serialize) -> Result<(), TrainError> {
    let failed = TrainError::write(path);
    let text = serde_json::to_string_pretty(report).map_err(|error| failed(error.into()))?;
    write_aside(path, &[text.as_bytes(), b"\n"]).map_err(failed)
}

fn load_data(folder: &Path) -> Result<DataSet, TrainError> {
    let mut progress = Progress::new("data", "samples read");
    let data = DataSet::load_with(folder, &mut |read, total| {
        if let Some(total) = total {
            progress.at(read, total);
        }
    })?;
    progress.finish();
    let classes = match data.is_labelled() {
        true => format!("{} classes", data.classes),
        false => "no labels".to_owned(),
    };
    eprintln!(
        "data: {} training and {} test samples of shape {:?}, {classes}",
        data.train.len(),
        data.test.len(),
        data.train.shape,
    );
    Ok(data)
}

fn check_classes(data: &DataSet, deployed: &Deployed) -> Result<(), TrainError> {
    let (classes, outputs) = (data.classes, deployed.model.outputs());
    if classes <= outputs || deployed.agreement()?.kind() != OutputKind::Classes {
        return Ok(());
    }
    Err(TrainError::Input(format!(
        "the data have {classes} classes, the model only {outputs} outputs; give it the data it \
         was trained on"
    )))
}

fn provenance(seed: u64, data: &DataSet) -> toml::Table {
    let mut table = toml::Table::new();
    let mut note = |key: &str, value: toml::Value| table.insert(key.to_owned(), value);
    note("seed", (seed as i64).into());
    note("data_sha256", data.sha256.as_str().into());
    note("train_samples", (data.train.len() as i64).into());
    note("test_samples", (data.test.len() as i64).into());
    table
}

fn rounded(part: f64) -> toml::Value {
    ((part * 1e4).round() / 1e4).into()
}
