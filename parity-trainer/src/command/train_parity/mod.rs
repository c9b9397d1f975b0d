//! `parity-trainer train`.

mod choose;
mod learned;
mod prepare;
mod prepared;
mod settings;
mod shared;

use std::sync::Arc;
use std::time::Instant;

use parapet_decoder::Calibration;
use parapet_encoder::Code;
use parity_trainer::backend::{BackendError, InProcessBackend, ParameterBackend, ParameterSet};
use parity_trainer::deployed::DeployedModel;
use parity_trainer::evaluation::{ByLosses, CodeEvaluation, CodedModels, EvaluationPlan, evaluate};
use parity_trainer::run::{CurveLabels, RunFolder};
use parity_trainer::{
    CodeNetworks, Loss, ParityRun, TrainError, Trained, Trainer, code_metadata, write_entry,
    write_learned_code,
};
use serde::Serialize;

use prepared::Prepared;
pub(crate) use settings::Args;
use settings::Settings;
pub(crate) use shared::{SharedTask, prepare_shared};

use super::interrupt::Interrupt;
use super::training_loop::{self, Pace, TrainingLoop};
use super::{lock_training, provenance, rounded, run_folder, write_json};
use crate::progress::Counter;
use crate::report;

/// Shuffles of a small test set into groups that the evaluation averages: which samples meet
/// moves its result.
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
    let settings: Settings = args.settings()?;
    let interrupt = Interrupt::listen()?;
    let ready = prepare::check(&settings, threads)?;
    let name = settings.name.clone().unwrap_or_else(|| {
        let what = if settings.is_learned() {
            "code"
        } else {
            "parity"
        };
        format!("{}-{what}", ready.deployed.name)
    });
    // A learned code is one training, whatever its rows.
    let trainings = if settings.is_learned() { 1 } else { settings.r };
    let rows: Vec<usize> = settings
        .row
        .map_or((0..trainings).collect(), |row| vec![row]);
    let folder = run_folder(settings.run.as_ref(), &settings.out, &name);
    let place = |row: usize| match trainings {
        1 => (name.clone(), folder.clone()),
        _ => (format!("{name}-{row}"), row_folder(&folder, row)),
    };
    let resume = args.resumes(&folder)?;
    if resume {
        // Not after the deployed model has answered all samples.
        for &row in &rows {
            place(row)
                .1
                .require_run(&settings.row_digest(&ready.digest, row)?)?;
        }
    }
    let _locks = lock_training(&folder, &settings.out, &name)?;
    let mut prepared = ready.answered(&settings)?;
    if !resume {
        folder.begin()?;
        folder.forget(choose::CHOICE)?;
        if trainings > 1 {
            for row in &rows {
                row_folder(&folder, *row).begin()?;
            }
        }
        folder.write_config(&settings.to_toml()?)?;
    }
    let begun = Instant::now();
    let choice = choose::choose(&settings, &prepared, &folder, resume)?;
    prepared.run.code.transform = choice.transform;
    if let (Some(learned), Some(loss)) = (&mut prepared.run.learned, choice.loss) {
        learned.loss = loss;
    }
    let mut trained = Vec::new();
    for &row in &rows {
        let (name, folder) = place(row);
        let run = ParityRun {
            row,
            ..prepared.run.clone()
        };
        let training = Training {
            settings: &settings,
            prepared: &prepared,
            resume,
        };
        let (networks, calibration) = training.row(run, &name, &folder, &interrupt)?;
        trained.push(Product {
            name,
            row,
            networks,
            calibration,
        });
    }
    let seconds = begun.elapsed().as_secs_f64();
    settings
        .scaling()
        .apply(&prepared.data.test.shape, &mut prepared.data.test.values);
    let evaluation = judge(&prepared, &name, &trained)?;
    interrupt.wait_for_step();
    finish(&settings, &prepared, &name, &trained, &evaluation, seconds)
}

/// The training of a code's rows.
struct Training<'a> {
    settings: &'a Settings,
    prepared: &'a Prepared,
    resume: bool,
}

impl Training<'_> {
    fn row(
        &self,
        run: ParityRun,
        name: &str,
        folder: &RunFolder,
        interrupt: &Interrupt,
    ) -> Result<(Trained, Option<Calibration>), TrainError> {
        let Self {
            settings,
            prepared,
            resume,
        } = *self;
        let digest = settings.row_digest(&prepared.digest, run.row)?;
        let (train, validation) = (
            Arc::clone(&prepared.train),
            Arc::clone(&prepared.validation),
        );
        let trainer = match shared::connect(settings)? {
            None => {
                let (rule, consistency) = (run.rule, settings.consistency.unwrap_or_default());
                let mut embedded =
                    |weights: ParameterSet| -> Result<Box<dyn ParameterBackend>, BackendError> {
                        Ok(Box::new(InProcessBackend::under(
                            consistency,
                            rule,
                            weights,
                        )?))
                    };
                Trainer::parity(run.clone(), train, validation, &mut embedded)?
            }
            Some(cluster) => {
                let part = ParityRun {
                    groups: run.groups / settings.executors(),
                    ..run.clone()
                };
                let mut lead = shared::lead(cluster, settings, prepared, &run, name)?;
                Trainer::parity(part, train, validation, &mut lead)?
            }
        };
        let drive = TrainingLoop {
            name,
            folder,
            digest: &digest,
            config: &settings.to_toml()?,
            environment: &environment(settings, prepared, &digest),
            resume,
            pace: Pace::new(settings.checkpoint_every, settings.checkpoint_steps),
            interrupt,
            labels: CurveLabels {
                title: &format!("{name}: {} k = {}", run.code.encoder, run.code.k),
                loss: if run.learned.is_some() {
                    "loss"
                } else {
                    "mean squared error"
                },
                rate: "agreement",
            },
        };
        drive.run(trainer)
    }
}

fn environment(settings: &Settings, prepared: &Prepared, digest: &str) -> toml::Table {
    let mut table = training_loop::environment(settings.seed, &prepared.data.sha256, digest);
    let mut note = |key: &str, value: &str| table.insert(key.to_owned(), value.into());
    note("deployed-runtime", &prepared.deployed.runtime);
    note("deployed", &prepared.deployed.file.display().to_string());
    note("deployed-sha256", &prepared.deployed.sha256);
    note("network", &prepared.run.network.to_string());
    if let Some(learned) = &prepared.run.learned {
        note("decoder-network", &learned.decoder.to_string());
    }
    table
}

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
fn judge(
    prepared: &Prepared,
    name: &str,
    trained: &[Product],
) -> Result<CodeEvaluation, TrainError> {
    let (data, deployed, code) = (
        &prepared.data,
        prepared.deployed.model.as_ref(),
        &prepared.run.code,
    );
    let calibrations: Option<Vec<_>> = trained
        .iter()
        .map(|product| product.calibration.clone())
        .collect();
    let calibrations = calibrations.unwrap_or_default();
    let groupings = (GROUPED_SAMPLES / data.test.len().max(1)).clamp(1, GROUPINGS);
    let plan = EvaluationPlan {
        groupings,
        resamples: 0,
        seed: 0,
    };
    let mut progress = Counter::new(name, "groups evaluated");
    let mut parity: Vec<(usize, &dyn DeployedModel)> = Vec::new();
    for product in trained {
        match &product.networks {
            Trained::Model(network) => parity.push((product.row, network as &dyn DeployedModel)),
            Trained::LearnedCode { encoder, decoder } => {
                // One table stands for all rows.
                let calibrations: Vec<_> = calibrations
                    .iter()
                    .cycle()
                    .take(calibrations.len() * code.r)
                    .cloned()
                    .collect();
                let networks = CodeNetworks { encoder, decoder };
                let evaluation = learned::evaluate_code(
                    prepared,
                    networks,
                    &calibrations,
                    plan,
                    |done, groups| {
                        progress.at(done, groups);
                    },
                )?;
                progress.finish();
                return Ok(evaluation);
            }
        }
    }
    let models = CodedModels {
        deployed,
        parity: &parity,
        code,
        calibrations: &calibrations,
    };
    let evaluation = evaluate(models, &data.test, plan, |done, groups| {
        progress.at(done, groups)
    })?;
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
    section
        .inputs
        .extend(deployed.model.chosen_input().map(str::to_owned));
    section
        .outputs
        .extend(deployed.model.chosen_output().map(str::to_owned));
    let training = training_table(settings, prepared, evaluation);
    let place = match &product.networks {
        Trained::Model(network) => write_entry(
            &settings.out,
            &product.name,
            network,
            Some(section),
            training,
        )?,
        Trained::LearnedCode { encoder, decoder } => {
            let networks = CodeNetworks { encoder, decoder };
            let sizes = (
                prepared.data.train.shape.as_slice(),
                deployed.model.outputs(),
            );
            write_learned_code(
                &settings.out,
                &product.name,
                networks,
                sizes,
                section,
                training,
            )?
        }
    };
    Ok(place.display().to_string())
}

/// Writes the entries, the figures beside them.
fn finish(
    settings: &Settings,
    prepared: &Prepared,
    name: &str,
    trained: &[Product],
    evaluation: &CodeEvaluation,
    seconds: f64,
) -> Result<(), TrainError> {
    let (deployed, code) = (&prepared.deployed, &prepared.run.code);
    let label = Code::try_from(code)?.label();
    let places = trained
        .iter()
        .map(|product| write_product(settings, prepared, evaluation, product));
    let places = places.collect::<Result<Vec<String>, TrainError>>()?;
    let transform = choose::transform_name(&code.transform);
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
            accuracy_reconstructed: one_missing
                .and_then(|losses| losses.accuracy)
                .map(|part| part.value),
            agreement: one_missing.map_or(0.0, |losses| losses.agreement.value),
            reconstructions: one_missing.map_or(0, |losses| losses.reconstructions),
            by_losses: evaluation.by_losses.clone(),
        },
    )?;
    let mut table = vec![("code".to_owned(), format!("{label}, {transform} outputs"))];
    table.extend(report::evaluation(evaluation));
    table.push(("trained in".to_owned(), format!("{seconds:.1} s")));
    table.push(("written to".to_owned(), places.join(", ")));
    report::print(&table);
    Ok(())
}

fn training_table(
    settings: &Settings,
    prepared: &Prepared,
    evaluation: &CodeEvaluation,
) -> toml::Table {
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
    table.insert(
        "groups_per_step".to_owned(),
        i64::from(settings.batch).into(),
    );
    table.insert("run_sha256".to_owned(), prepared.digest.clone().into());
    let one_missing = evaluation.by_losses.first();
    let figures = [
        ("accuracy_deployed", evaluation.accuracy_deployed),
        (
            "accuracy_reconstructed",
            one_missing
                .and_then(|losses| losses.accuracy)
                .map(|part| part.value),
        ),
        (
            "agreement",
            one_missing.map(|losses| losses.agreement.value),
        ),
    ];
    for (name, figure) in figures {
        if let Some(figure) = figure {
            table.insert(name.to_owned(), rounded(figure));
        }
    }
    table
}
