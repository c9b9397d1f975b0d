//! `parity-trainer train`.

mod drive;
mod learned;
mod options;
mod prepare;
mod settings;

use std::time::Instant;

use parapet_decoder::Calibration;
use parapet_encoder::Code;
use parity_trainer::deployed::DeployedModel;
use parity_trainer::evaluation::{ByLosses, CodeEvaluation, CodedModels, EvaluationPlan, evaluate};
use parity_trainer::run::RunFolder;
use parity_trainer::{
    CodeNetworks, Loss, TrainError, Trained, code_metadata, write_entry, write_learned_code,
};
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
    /// Of a learned code.
    #[serde(skip_serializing_if = "Option::is_none")]
    loss: Option<Loss>,
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
    let name = settings.name.clone().unwrap_or_else(|| {
        let what = if settings.is_learned() { "code" } else { "parity" };
        format!("{}-{what}", prepared.deployed.name)
    });
    // A learned code is one training, whatever its rows.
    let trainings = if settings.is_learned() { 1 } else { settings.r };
    let rows: Vec<usize> = settings.row.map_or((0..trainings).collect(), |row| vec![row]);
    let folder = settings.run.clone().unwrap_or_else(|| settings.out.join(".runs").join(&name));
    let folder = RunFolder::at(folder);
    if args.resume {
        folder.require()?;
    } else {
        folder.begin()?;
        folder.forget(drive::CHOICE)?;
        if trainings > 1 {
            for row in &rows {
                row_folder(&folder, *row).begin()?;
            }
        }
        folder.write_config(&settings.to_toml()?)?;
    }
    let begun = Instant::now();
    let choice = drive::choose(&settings, &prepared, &folder, args.resume, &interrupt)?;
    prepared.run.code.transform = choice.transform;
    if let (Some(learned), Some(loss)) = (&mut prepared.run.learned, choice.loss) {
        learned.loss = loss;
    }
    let mut trained = Vec::new();
    for &row in &rows {
        let (name, folder) = match trainings {
            1 => (name.clone(), folder.clone()),
            _ => (format!("{name}-{row}"), row_folder(&folder, row)),
        };
        let run = parity_trainer::ParityRun { row, ..prepared.run.clone() };
        let (networks, calibration) =
            drive::train_row(&settings, &prepared, run, &name, &folder, args.resume, &interrupt)?;
        trained.push(Product { name, row, networks, calibration });
    }
    let seconds = begun.elapsed().as_secs_f64();
    settings.scaling().apply(&prepared.data.test.shape, &mut prepared.data.test.values);
    finish(&settings, &prepared, &name, &trained, seconds)
}

/// What a training gave.
struct Product {
    /// Of its entry.
    name: String,
    row: usize,
    networks: Trained,
    calibration: Option<Calibration>,
}

/// Where a code of several rows trains one of them.
fn row_folder(folder: &RunFolder, row: usize) -> RunFolder {
    RunFolder::at(folder.path().join(format!("row-{row}")))
}

/// Evaluates what was trained on the test set.
fn judge(prepared: &Prepared, name: &str, trained: &[Product]) -> Result<CodeEvaluation, TrainError> {
    let (data, deployed, code) = (&prepared.data, prepared.deployed.model.as_ref(), &prepared.run.code);
    let calibrations: Option<Vec<_>> = trained.iter().map(|product| product.calibration.clone()).collect();
    let calibrations = calibrations.unwrap_or_default();
    let groupings = (GROUPED_SAMPLES / data.test.len().max(1)).clamp(1, GROUPINGS);
    let plan = EvaluationPlan { groupings, resamples: 0, seed: 0 };
    let mut progress = Counter::new(name, "groups evaluated");
    let mut parity: Vec<(usize, &dyn DeployedModel)> = Vec::new();
    for product in trained {
        match &product.networks {
            Trained::ParityModel(network) => parity.push((product.row, network as &dyn DeployedModel)),
            Trained::LearnedCode { encoder, decoder } => {
                // One table stands for all rows.
                let calibrations: Vec<_> =
                    calibrations.iter().cycle().take(calibrations.len() * code.r).cloned().collect();
                let networks = CodeNetworks { encoder, decoder };
                let evaluation =
                    learned::evaluate_code(prepared, networks, &calibrations, plan, |done, groups| {
                        progress.at(done, groups);
                    })?;
                progress.finish();
                return Ok(evaluation);
            }
        }
    }
    let models = CodedModels { deployed, parity: &parity, code, calibrations: &calibrations };
    let evaluation = evaluate(models, &data.test, plan, |done, groups| progress.at(done, groups))?;
    progress.finish();
    Ok(evaluation)
}

/// Writes what was trained as an entry.
fn write_product(
    settings: &Settings,
    prepared: &Prepared,
    evaluation: &CodeEvaluation,
    product: &Product,
) -> Result<String, TrainError> {
    let (deployed, code) = (&prepared.deployed, &prepared.run.code);
    let mut section = code_metadata(&deployed.name, product.row, code)?;
    section.calibration.clone_from(&product.calibration);
    let training = training_table(settings, prepared, evaluation);
    let place = match &product.networks {
        Trained::ParityModel(network) => {
            write_entry(&settings.out, &product.name, network, Some(section), training)?
        }
        Trained::LearnedCode { encoder, decoder } => {
            let networks = CodeNetworks { encoder, decoder };
            let sizes = (prepared.data.train.shape.as_slice(), deployed.model.outputs());
            write_learned_code(&settings.out, &product.name, networks, sizes, section, training)?
        }
    };
    Ok(place.display().to_string())
}

/// Evaluates the parity models together on the test set and writes their entries.
fn finish(
    settings: &Settings,
    prepared: &Prepared,
    name: &str,
    trained: &[Product],
    seconds: f64,
) -> Result<(), TrainError> {
    let (deployed, code) = (&prepared.deployed, &prepared.run.code);
    let evaluation = judge(prepared, name, trained)?;
    let label = Code::try_from(code)?.label();
    let places = trained.iter().map(|product| write_product(settings, prepared, &evaluation, product));
    let places = places.collect::<Result<Vec<String>, TrainError>>()?;
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
            loss: prepared.run.learned.as_ref().map(|learned| learned.loss),
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
    if let Some(learned) = &prepared.run.learned {
        table.insert("loss".to_owned(), learned.loss.to_string().into());
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
