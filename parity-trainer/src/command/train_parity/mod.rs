//! `parity-trainer train`.

mod choose;
mod generator;
mod padding;
mod prepare;
mod seeds;
mod settings;
mod shared;

use std::path::Path;
use std::time::Instant;

use clap::ArgMatches;
use parapet_config::repository::CodeMetadata;
use parapet_decoder::Calibration;
use parapet_encoder::Code;
use parapet_onnx::learned_code::{LearnedCode, Sizes};
use parapet_onnx::runtime::OnnxRuntime;
use parity_trainer::evaluation::{CodeEvaluation, CodedModels, EvaluationPlan, ParityRow};
use parity_trainer::run::{CurveLabels, RunFolder};
use parity_trainer::{Entry, Loss, ParityRun, TrainError, Trained};
use serde_json::json;

pub(crate) use choose::transform_name;
use prepare::{Cost, Inputs, Sets};
pub(crate) use settings::Args;
use settings::Settings;
pub(crate) use shared::SharedTask;

use super::eval::judge;
use super::interrupt::Interrupt;
use super::settings::to_toml;
use super::training_loop::{RESUME, TrainingLoop, environment, lock_training, run_folder};
use super::{provenance, rounded, write_json};
use crate::report;

/// Shuffles of a small test set into groups, to be averaged: which samples meet moves the result.
const GROUPINGS: usize = 10;
/// Samples of all groupings together, about.
const GROUPED_SAMPLES: usize = 20_000;

/// One training: of a row's parity model, or of a learned code.
struct Row {
    name: String,
    row: usize,
    folder: RunFolder,
    digest: String,
}

type Product = (Row, Trained, Option<Calibration>);

pub(crate) fn run(args: &Args, matches: &ArgMatches, threads: usize) -> Result<(), TrainError> {
    let settings = args.settings(matches)?;
    let interrupt = Interrupt::listen()?;
    if settings.seeds() == 1 {
        return run_one(settings, |folder| args.resumes(folder), threads, &interrupt);
    }
    let inputs = Inputs::check(settings, threads)?;
    let name = name(&inputs);
    let folder = run_folder(&inputs.settings.common, &name);
    let resume = args.resumes(&folder)?;
    let locks = lock_training(&folder, &inputs.settings.common.out, &name)?;
    folder.write_config(&to_toml(&inputs.settings)?)?;
    let best = seeds::best(&inputs, (&name, &folder), resume, threads, &interrupt)?;
    drop((inputs, locks));
    interrupt.end_at_once(RESUME)?;
    run_one(best, |_| Ok(true), threads, &interrupt)
}

/// The name of the entry, or of those of several rows before their numbers.
fn name(inputs: &Inputs) -> String {
    let what = if inputs.settings.is_learned() { "code" } else { "parity" };
    let name = inputs.settings.common.name.clone();
    name.unwrap_or_else(|| format!("{}-{what}", inputs.deployed.name))
}

fn run_one(
    settings: Settings,
    resumes: impl Fn(&RunFolder) -> Result<bool, TrainError>,
    threads: usize,
    interrupt: &Interrupt,
) -> Result<(), TrainError> {
    let mut inputs = Inputs::check(settings, threads)?;
    let common = inputs.settings.common.clone();
    let name = name(&inputs);
    let folder = run_folder(&common, &name);
    let rows = rows(&inputs, &name, &folder)?;
    let resume = resumes(&folder)?;
    if resume {
        // Not after the deployed model has answered all samples.
        for row in &rows {
            row.folder.find(&row.digest)?;
        }
    }
    let _locks = lock_training(&folder, &common.out, &name)?;
    // A cluster that is not there shows before the deployed model's answers and the trials.
    shared::connect(&inputs.settings)?;
    let sets = inputs.answered()?;
    if !resume {
        folder.begin()?;
        folder.forget(choose::CHOICE)?;
        for row in &rows {
            row.folder.begin()?;
        }
        folder.write_config(&to_toml(&inputs.settings)?)?;
    }
    let begun = Instant::now();
    choose::choose(&inputs, &sets, &folder, resume)?.apply(&mut inputs.run, &inputs.settings);
    let products = rows.into_iter().map(|row| train(&inputs, &sets, row, resume, interrupt));
    let products = products.collect::<Result<Vec<Product>, _>>()?;
    let seconds = begun.elapsed().as_secs_f64();
    let test = &mut inputs.data.test;
    inputs.settings.scaling().apply(&test.shape, &mut test.values);
    let evaluation = evaluate(&inputs, &name, &products)?;
    interrupt.wait_for_step();
    finish(&inputs, &name, &products, &evaluation, seconds)
}

/// The trainings of the code's rows; of a learned code one, whatever its rows.
fn rows(inputs: &Inputs, name: &str, folder: &RunFolder) -> Result<Vec<Row>, TrainError> {
    let settings = &inputs.settings;
    let folders = settings.row_folders(folder);
    let is_one = folders.len() == 1;
    let row = |(row, folder): (usize, RunFolder)| {
        let name = if is_one { name.to_owned() } else { format!("{name}-{row}") };
        Ok(Row { name, row, folder, digest: settings.digest(&[&inputs.digest, &row.to_string()])? })
    };
    folders.into_iter().enumerate().map(row).collect()
}

fn train(
    inputs: &Inputs,
    sets: &Sets,
    row: Row,
    resume: bool,
    interrupt: &Interrupt,
) -> Result<Product, TrainError> {
    let (settings, common) = (&inputs.settings, &inputs.settings.common);
    let run = ParityRun { row: row.row, ..inputs.run.clone() };
    let deployed = &inputs.deployed;
    let mut more = vec![
        ("deployed-runtime", deployed.runtime.to_owned()),
        ("deployed", deployed.file.display().to_string()),
        ("deployed-sha256", deployed.sha256.clone()),
        ("network", run.network.to_string()),
    ];
    let decoder = run.learned.as_ref().map(|learned| &learned.decoder);
    more.extend(decoder.map(|decoder| ("decoder-network", decoder.to_string())));
    let training_loop = TrainingLoop {
        name: &row.name,
        folder: &row.folder,
        digest: &row.digest,
        config: &to_toml(settings)?,
        environment: environment(common.seed, &inputs.data.sha256, &row.digest, &more),
        resume,
        settings: common,
        interrupt,
        labels: CurveLabels {
            title: &format!("{}: {} k = {}", row.name, run.code.encoder, run.code.k),
            loss: match run.learned {
                Some(_) => "loss",
                None if run.loss == Loss::Kl => "divergence",
                None => "mean squared error",
            },
            rate: "agreement",
        },
    };
    let trainer = shared::trainer(inputs, sets.clone(), run, &row.name)?;
    let (trained, calibration) = training_loop.run(trainer)?;
    Ok((row, trained, calibration))
}

/// Evaluates what was trained on the test set as it will be served: a learned code by ONNX Runtime,
/// the deployed model answering for every row.
fn evaluate(
    inputs: &Inputs,
    name: &str,
    products: &[Product],
) -> Result<CodeEvaluation, TrainError> {
    let (test, spec) = (&inputs.data.test, &inputs.run.code);
    let deployed = inputs.deployed.model.as_ref();
    let plan = EvaluationPlan {
        groupings: (GROUPED_SAMPLES / test.len().max(1)).clamp(1, GROUPINGS),
        resamples: 0,
        seed: 0,
    };
    let (mut rows, mut learned) = (Vec::new(), None);
    for (Row { row: number, .. }, trained, calibration) in products {
        let row = |row, model| ParityRow { row, model, calibration: calibration.as_ref() };
        match trained {
            Trained::Model(network) => rows.push(row(*number, network)),
            Trained::Slots(slots) => rows.push(row(*number, slots)),
            Trained::LearnedCode { encoder, decoder } => {
                let sizes =
                    Sizes { spec, sample_len: test.sample_len(), output_len: deployed.outputs() };
                let (encoder, decoder) = (encoder.to_onnx()?, decoder.to_onnx()?);
                let (runtime, place) = (OnnxRuntime::load(None)?, Path::new("the trained code"));
                let code = LearnedCode::from_onnx(&runtime, sizes, place, (&encoder, &decoder))?;
                learned = Some(code);
                // One table stands for all rows.
                rows.extend((0..spec.r).map(|number| row(number, deployed)));
            }
        }
    }
    let models = CodedModels {
        deployed,
        agreement: inputs.agreement,
        parity: &rows,
        code: spec,
        learned: learned.as_ref(),
    };
    judge(name, models, test, plan)
}

fn finish(
    inputs: &Inputs,
    name: &str,
    products: &[Product],
    evaluation: &CodeEvaluation,
    seconds: f64,
) -> Result<(), TrainError> {
    let (settings, deployed, run) = (&inputs.settings, &inputs.deployed, &inputs.run);
    let code = Code::try_from(&run.code)?;
    let (label, spec) = (code.label(), code.to_spec());
    let input = code.parity_input_shape(deployed.model.input_shape());
    let output = code.parity_output_shape(deployed.model.output_shape());
    let cost = products.first().map(|(_, trained, _)| inputs.cost(trained)).transpose()?.flatten();
    let mut places = Vec::new();
    for (row, trained, calibration) in products {
        // The generator is spelled out.
        let mut code = CodeMetadata::new(&deployed.name, row.row, spec.clone());
        code.calibration.clone_from(calibration);
        code.isolated = inputs.is_isolated(trained)?;
        code.padding.clone_from(&inputs.padding);
        code.inputs.extend(deployed.chosen_input.clone());
        code.outputs.extend(deployed.chosen_output.clone());
        let entry = Entry {
            name: &row.name,
            trained,
            input: &input,
            output: &output,
            kind: None,
            code: Some(code),
            training: training_table(inputs, evaluation, cost),
        };
        places.push(entry.write(&settings.common.out)?);
        if let (Some(name), 0) = (&settings.student, row.row) {
            let student = Entry {
                name,
                trained,
                input: deployed.model.input_shape(),
                output: deployed.model.output_shape(),
                kind: deployed.kind,
                code: None,
                training: training_table(inputs, evaluation, None),
            };
            places.push(student.write(&settings.common.out)?);
        }
    }
    let places: Vec<String> = (places.iter()).map(|place| place.display().to_string()).collect();
    let transform = transform_name(&run.code.transform);
    if let Some(path) = &settings.common.json {
        let mut report = json!({
            "model": name,
            "deployed": deployed.name,
            "network": run.network.to_string(),
            "code": label,
            "transform": transform,
            "steps": run.rule.steps,
            "seconds": seconds,
            "loss": run.loss,
            "cost": cost,
            "samples": evaluation.samples,
            "reconstructions": evaluation.by_losses.first().map(|losses| losses.reconstructions),
            "by_losses": evaluation.by_losses,
        });
        for (key, figure) in figures(evaluation) {
            report[key] = figure.into();
        }
        write_json(path, &report)?;
    }
    let mut table = vec![("code".to_owned(), format!("{label}, {transform} outputs"))];
    table.extend(report::evaluation(evaluation));
    if let Some(cost) = cost {
        table.push(("cost of a parity query".to_owned(), cost.to_string()));
    }
    table.push(("trained in".to_owned(), format!("{seconds:.1} s")));
    table.push(("written to".to_owned(), places.join(", ")));
    report::print(&table);
    Ok(())
}

/// A_a; A_d and agreement with the deployed model, one query missing.
fn figures(evaluation: &CodeEvaluation) -> [(&'static str, Option<f64>); 3] {
    let one_missing = evaluation.by_losses.first();
    [
        ("accuracy_deployed", evaluation.accuracy_deployed),
        ("accuracy_reconstructed", one_missing.and_then(|losses| Some(losses.accuracy?.value))),
        ("agreement", one_missing.map(|losses| losses.agreement.value)),
    ]
}

fn training_table(inputs: &Inputs, evaluation: &CodeEvaluation, cost: Option<Cost>) -> toml::Table {
    let settings = &inputs.settings;
    let mut table = provenance(settings.common.seed, &inputs.data);
    let mut note = |key: &str, value: toml::Value| table.insert(key.to_owned(), value);
    let scaling = settings.scaling();
    if !scaling.is_identity()
        && let Ok(scaling) = toml::Value::try_from(&scaling)
    {
        note("input_scaling", scaling);
    }
    note("loss", inputs.run.loss.to_string().into());
    if let Some(cost) = cost.and_then(|cost| toml::Value::try_from(cost).ok()) {
        note("cost", cost);
    }
    note("steps", toml::Value::Integer(inputs.run.rule.steps as i64));
    note("batch", i64::from(settings.common.batch).into());
    note("run_sha256", inputs.digest.as_str().into());
    for (key, figure) in figures(evaluation) {
        if let Some(figure) = figure {
            note(key, rounded(figure));
        }
    }
    table
}
