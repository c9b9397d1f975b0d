//! `parity-trainer train`.

mod drive;
mod options;
mod prepare;
mod settings;

use std::time::Instant;

use parapet_encoder::build_encoder;
use parity_trainer::deployed::DeployedModel;
use parity_trainer::evaluation::{ByLosses, CodeEvaluation, CodedModels, EvaluationPlan, evaluate};
use parity_trainer::run::RunFolder;
use parity_trainer::{TrainError, Trained, code_metadata, write_entry};
use serde::Serialize;

pub(crate) use drive::Interrupt;
pub(crate) use options::Args;
use prepare::Prepared;
use settings::Settings;

use super::{provenance, rounded, write_json};
use crate::progress::Counter;
use crate::report;

/// Shuffles of a small test set into groups that the evaluation averages: which samples meet moves its result.
const GROUPINGS: usize = 10;
/// Samples of all groupings together, about.
const GROUPED_SAMPLES: usize = 20_000;

#[derive(Debug, Serialize)]
struct Report<'a> {
    model: &'a str,
    deployed: &'a str,
    network: String,
    code: String,
    transform: String,
    steps: u32,
    seconds: f64,
    samples: usize,
    accuracy_deployed: Option<f64>,
    accuracy_reconstructed: Option<f64>,
    agreement: f64,
    reconstructions: usize,
    by_losses: Vec<ByLosses>,
}

/// Trains, evaluates and writes the entries.
pub(crate) fn run(args: &Args, threads: usize) -> Result<(), TrainError> {
    let settings = args.settings()?;
    let interrupt = drive::Interrupt::listen()?;
    let mut prepared = prepare::prepare(&settings, threads)?;
    let name = settings.name.clone().unwrap_or_else(|| format!("{}-parity", prepared.deployed.name));
    let rows: Vec<usize> = settings.row.map_or((0..settings.r).collect(), |row| vec![row]);
    let folder = settings.run.clone().unwrap_or_else(|| settings.out.join(".runs").join(&name));
    let folder = RunFolder::at(folder);
    if args.resume {
        folder.require()?;
    } else {
        folder.begin()?;
        folder.forget(drive::CHOICE)?;
        if settings.r > 1 {
            for row in &rows {
                row_folder(&folder, *row).begin()?;
            }
        }
        folder.write_config(&settings.to_toml()?)?;
    }
    let begun = Instant::now();
    let transform = drive::choose_transform(&settings, &prepared, &folder, args.resume, &interrupt)?;
    prepared.run.code.transform = transform;
    let mut trained = Vec::new();
    for &row in &rows {
        let (name, folder) = match settings.r {
            1 => (name.clone(), folder.clone()),
            _ => (format!("{name}-{row}"), row_folder(&folder, row)),
        };
        let run = parity_trainer::ParityRun { row, ..prepared.run.clone() };
        let model = drive::train_row(&settings, &prepared, run, &name, &folder, args.resume, &interrupt)?;
        trained.push((name, row, model));
    }
    let seconds = begun.elapsed().as_secs_f64();
    settings.scaling().apply(&prepared.data.test.shape, &mut prepared.data.test.values);
    finish(&settings, &prepared, &name, &trained, seconds)
}

/// Where a code of several rows trains one of them.
fn row_folder(folder: &RunFolder, row: usize) -> RunFolder {
    RunFolder::at(folder.path().join(format!("row-{row}")))
}

/// Evaluates the parity models together on the test set and writes their entries.
fn finish(
    settings: &Settings,
    prepared: &Prepared,
    name: &str,
    trained: &[(String, usize, Trained)],
    seconds: f64,
) -> Result<(), TrainError> {
    let (data, deployed, code) = (&prepared.data, &prepared.deployed, &prepared.run.code);
    let parity: Vec<(usize, &dyn DeployedModel)> =
        trained.iter().map(|(_, row, model)| (*row, &model.network as &dyn DeployedModel)).collect();
    let calibrations: Option<Vec<_>> = trained.iter().map(|(.., model)| model.calibration.clone()).collect();
    let calibrations = calibrations.unwrap_or_default();
    let models =
        CodedModels { deployed: deployed.model.as_ref(), parity: &parity, code, calibrations: &calibrations };
    let groupings = (GROUPED_SAMPLES / data.test.len().max(1)).clamp(1, GROUPINGS);
    let plan = EvaluationPlan { groupings, resamples: 0, seed: 0 };
    let mut progress = Counter::new(name, "groups evaluated");
    let evaluation = evaluate(models, &data.test, plan, |done, groups| progress.at(done, groups))?;
    progress.finish();
    let label = build_encoder(code, &data.test.shape)?.code().label();
    let mut places = Vec::new();
    for (name, row, model) in trained {
        let mut section = code_metadata(&deployed.name, *row, code)?;
        section.calibration.clone_from(&model.calibration);
        let training = training_table(settings, prepared, &evaluation);
        let place = write_entry(&settings.out, name, &model.network, Some(section), training)?;
        places.push(place.display().to_string());
    }
    let transform = drive::transform_name(&code.transform);
    let one_missing = evaluation.by_losses.first();
    write_json(
        settings.json.as_deref(),
        &Report {
            model: name,
            deployed: &deployed.name,
            network: prepared.run.network.to_string(),
            code: label.clone(),
            transform: transform.clone(),
            steps: settings.steps,
            seconds,
            samples: evaluation.samples,
            accuracy_deployed: evaluation.accuracy_deployed,
            accuracy_reconstructed: one_missing.and_then(|losses| losses.accuracy).map(|part| part.value),
            agreement: one_missing.map_or(0.0, |losses| losses.agreement.value),
            reconstructions: one_missing.map_or(0, |losses| losses.reconstructions),
            by_losses: evaluation.by_losses.clone(),
        },
    )?;
    let mut table = vec![("code".to_owned(), format!("{label}, {transform} outputs"))];
    table.extend(report::evaluation(&evaluation));
    table.push(("trained in".to_owned(), format!("{seconds:.1} s")));
    table.push(("written to".to_owned(), places.join(", ")));
    report::print(&table);
    Ok(())
}

fn training_table(settings: &Settings, prepared: &Prepared, evaluation: &CodeEvaluation) -> toml::Table {
    let mut table = provenance(settings.seed, &prepared.data);
    let scaling = settings.scaling();
    if !scaling.is_identity()
        && let Ok(scaling) = toml::Value::try_from(&scaling)
    {
        table.insert("input_scaling".to_owned(), scaling);
    }
    table.insert("steps".to_owned(), i64::from(settings.steps).into());
    table.insert("groups_per_step".to_owned(), i64::from(settings.batch).into());
    table.insert("run_sha256".to_owned(), prepared.digest.clone().into());
    let one_missing = evaluation.by_losses.first();
    let figures = [
        ("accuracy_deployed", evaluation.accuracy_deployed),
        ("accuracy_reconstructed", one_missing.and_then(|losses| losses.accuracy).map(|part| part.value)),
        ("agreement", one_missing.map(|losses| losses.agreement.value)),
    ];
    for (name, figure) in figures {
        if let Some(figure) = figure {
            table.insert(name.to_owned(), rounded(figure));
        }
    }
    table
}
