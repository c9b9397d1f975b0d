//! `parity-trainer train`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use parapet_encoder::{Code, CodeSpec, EncoderKind, build_encoder};
use parity_trainer::backend::{OptimiserSpec, Schedule, UpdateRule};
use parity_trainer::data::{Augment, DataSet, Samples};
use parity_trainer::deployed::{
    self, Deployed, DeployedModel, InputScaling, OpenOptions, OutputCache, Reuse,
};
use parity_trainer::network::NetworkSpec;
use parity_trainer::{
    Evaluation, ParityRun, ParityTrainer, TrainError, TrainingSet, code_metadata, evaluate, split_validation,
    training_inputs, write_entry,
};
use serde::Serialize;

use super::{OutputArgs, augmentation, load_data, provenance, rounded};
use crate::progress::{Counter, Progress};
use crate::report;

/// Training samples and their variants together, unless `--copies` says otherwise.
const POOL_SAMPLES: usize = 20_000;
/// Shuffles of the test set into groups that the evaluation averages.
const GROUPINGS: usize = 10;

/// Part of the training samples that the best weights are chosen by.
const VALIDATION_SHARE: f64 = 0.1;
/// Samples that a deployed model is tried on before the training.
const TRIAL_SAMPLES: usize = 16;
/// Least side of an image for the network that is taken where none is known.
const LENET_SIDE: usize = 16;

/// Arguments of `train`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The deployed model: an .onnx file, a TorchScript file (.pt, .pth, .ts), or REPOSITORY/NAME
    #[arg(long, value_name = "MODEL")]
    model: PathBuf,
    /// Its name where it is deployed [default: the entry's or the file's]
    #[arg(long, value_name = "NAME")]
    deployed: Option<String>,
    /// The input to feed, of a model with several
    #[arg(long, value_name = "TENSOR")]
    input: Option<String>,
    /// The output to learn, of a model with several
    #[arg(long, value_name = "TENSOR")]
    output: Option<String>,
    /// What samples are multiplied with, once the mean is subtracted, for a model that wants other ranges than 0 to 1
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    input_scale: f32,
    /// What is subtracted from samples first: one value, or one for each channel
    #[arg(long, value_name = "MEAN,..", value_delimiter = ',', allow_hyphen_values = true)]
    input_mean: Vec<f32>,
    /// Where the deployed model's outputs are kept for the next run [default: .cache in the repository]
    #[arg(long, value_name = "FOLDER")]
    cache: Option<PathBuf>,
    /// Folder with the data that the deployed model was trained on
    #[arg(long, value_name = "FOLDER")]
    data: PathBuf,
    /// Queries in a coding group
    #[arg(long, default_value_t = 2)]
    k: usize,
    /// Parity models of a coding group
    #[arg(long, default_value_t = 1)]
    r: usize,
    /// The parity row to train for, from 0
    #[arg(long, default_value_t = 0)]
    row: usize,
    /// How the queries of a group become one
    #[arg(long, default_value = "concat", value_parser = encoder_kind)]
    encoder: EncoderKind,
    /// `lenet`, `lenet:WIDTH`, `lenet:WIDTHxKERNEL`, `mlp:INPUTS,HIDDEN,...`, or `cells:ROWSxCOLUMNS:NETWORK` with the
    /// grid of the concatenation: 1x2 for k = 2, 2x2 for k = 3 and 4 [default: the deployed model's]
    #[arg(long)]
    network: Option<NetworkSpec>,
    /// Optimiser steps
    #[arg(long, default_value_t = 4000, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,
    /// Coding groups a step
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// Peak learning rate of AdamW
    #[arg(long, default_value_t = 3e-3)]
    learning_rate: f64,
    /// Weight decay of AdamW
    #[arg(long, default_value_t = 1e-2)]
    weight_decay: f64,
    /// How images are varied [default: shift for images]
    #[arg(long)]
    augment: Option<Augment>,
    /// Variants of each sample to learn from, besides itself [default: enough for 20,000 samples]
    #[arg(long)]
    copies: Option<usize>,
    /// Seed of everything random
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    result: OutputArgs,
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    model: &'a str,
    deployed: &'a str,
    network: String,
    code: String,
    steps: u32,
    seconds: f64,
    #[serde(flatten)]
    evaluation: Evaluation,
}

fn encoder_kind(name: &str) -> Result<EncoderKind, String> {
    match name {
        "sum" => Ok(EncoderKind::Sum),
        "concat" => Ok(EncoderKind::Concat),
        _ => Err("write `sum` (any samples) or `concat` (images)".to_owned()),
    }
}

/// Trains, evaluates and writes the entry.
pub(crate) fn run(args: &Args, threads: usize) -> Result<(), TrainError> {
    let code = CodeSpec::new(args.encoder, args.k, args.r);
    Code::try_from(&code)?;
    let mut data = load_data(&args.data)?;
    let label = build_encoder(&code, &data.train.shape)?.code().label();
    let scaling = InputScaling { scale: args.input_scale, mean: args.input_mean.clone() };
    scaling.check(&data.train.shape)?;
    let mut deployed = open_deployed(args, threads, &data, &scaling)?;
    if let Some(name) = &args.deployed {
        deployed.name.clone_from(name);
    }
    check_data(args, deployed.model.as_ref(), &data)?;
    args.result.prepare()?;

    let augment = augmentation(args.augment, &data);
    let enough = (POOL_SAMPLES / data.train.len()).saturating_sub(1);
    let copies = args.copies.unwrap_or(if augment == Augment::None { 0 } else { enough });
    let rule = UpdateRule {
        optimiser: OptimiserSpec::AdamW { weight_decay: args.weight_decay },
        learning_rate: args.learning_rate,
        schedule: Schedule::Cosine,
        steps: u64::from(args.steps),
        clip: None,
    };
    let run = ParityRun {
        network: network(args, &deployed, &data.train.shape)?,
        code,
        row: args.row,
        groups: args.batch as usize,
        rule,
        validate_every: u64::from(args.steps).div_ceil(20),
        filler_share: 0.0,
        seed: args.seed,
    };
    let (train, held) = split_validation(&data.train, VALIDATION_SHARE, args.k, args.seed)
        .ok_or(TrainError::TooFewSamples { found: data.train.len(), k: args.k })?;
    let set = |samples: &Samples, copies| -> Result<_, TrainError> {
        let inputs = training_inputs(samples, augment, copies, &scaling, args.seed);
        let answers = answers(args, &deployed, &inputs)?;
        let (shape, outputs) = (samples.shape.clone(), deployed.model.outputs());
        Ok(Arc::new(TrainingSet { shape, outputs, inputs, answers }))
    };
    let (set, validation) = (set(&train, copies)?, set(&held, 0)?);
    let begun = Instant::now();
    let mut progress = Progress::new(&args.result.name, "agreement");
    let mut trainer = ParityTrainer::new(run.clone(), set, validation, &mut ParityTrainer::local(rule))?;
    while !trainer.is_done() {
        progress.step(trainer.step()?);
    }
    let network = trainer.finish()?;
    progress.finish();
    let seconds = begun.elapsed().as_secs_f64();
    scaling.apply(&data.test.shape, &mut data.test.values);
    let evaluation = evaluate(deployed.model.as_ref(), &network, &run.code, run.row, &data.test, GROUPINGS)?;

    let section = code_metadata(&deployed.name, run.row, &run.code)?;
    let training = training_table(args, &data, &evaluation);
    let place = write_entry(&args.result.out, &args.result.name, &network, Some(section), training)?;
    args.result.write_json(&Report {
        model: &args.result.name,
        deployed: &deployed.name,
        network: network.spec().to_string(),
        code: label.clone(),
        steps: args.steps,
        seconds,
        evaluation,
    })?;
    report::print(&[
        ("code", format!("{label}, row {}", args.row)),
        ("A_a, deployed model", report::percent(evaluation.accuracy_deployed)),
        ("A_d, reconstructed", report::percent(evaluation.accuracy_reconstructed)),
        ("agreement", report::percent(evaluation.agreement)),
        ("trained in", format!("{seconds:.1} s")),
        ("written to", place.display().to_string()),
    ]);
    Ok(())
}

fn open_deployed(
    args: &Args,
    threads: usize,
    data: &DataSet,
    scaling: &InputScaling,
) -> Result<Deployed, TrainError> {
    let options =
        OpenOptions { input: args.input.clone(), output: args.output.clone(), onnxruntime: None, threads };
    let few = TRIAL_SAMPLES.min(data.train.len()) * data.train.sample_len();
    let mut samples = data.train.values.get(..few).unwrap_or_default().to_vec();
    scaling.apply(&data.train.shape, &mut samples);
    Ok(deployed::open(&args.model, &options, &data.train.shape, &samples)?)
}

/// The deployed model's architecture, where this trainer made it.
fn network(args: &Args, deployed: &Deployed, shape: &[usize]) -> Result<NetworkSpec, TrainError> {
    if let Some(network) = &args.network {
        return Ok(network.clone());
    }
    let fallback = match shape {
        &[_, height, width] if height.min(width) >= LENET_SIDE => "lenet".to_owned(),
        shape => format!("mlp:{},800,400", shape.iter().product::<usize>()),
    };
    Ok(deployed.network.as_ref().unwrap_or(&fallback).parse()?)
}

fn answers(args: &Args, deployed: &Deployed, inputs: &[f32]) -> Result<Vec<f32>, TrainError> {
    let folder = args.cache.clone().unwrap_or_else(|| args.result.out.join(".cache"));
    let mut progress = Counter::new(&deployed.name, "samples answered");
    let cache = OutputCache::new(folder);
    let (answers, reuse) = cache.outputs(deployed, inputs, |done, count| progress.at(done, count))?;
    progress.finish();
    if reuse == Reuse::Cached {
        eprintln!("{}: reuses the outputs of an earlier run", deployed.name);
    }
    Ok(answers)
}

fn check_data(args: &Args, deployed: &dyn DeployedModel, data: &DataSet) -> Result<(), TrainError> {
    if data.classes > deployed.outputs() {
        return Err(TrainError::Classes { classes: data.classes, outputs: deployed.outputs() });
    }
    let smaller = data.train.len().min(data.test.len());
    if args.k > smaller {
        return Err(TrainError::TooFewSamples { found: smaller, k: args.k });
    }
    Ok(())
}

fn training_table(args: &Args, data: &DataSet, evaluation: &Evaluation) -> toml::Table {
    let mut table = provenance(args.seed, data);
    table.insert("steps".to_owned(), i64::from(args.steps).into());
    table.insert("groups_per_step".to_owned(), i64::from(args.batch).into());
    table.insert("accuracy_deployed".to_owned(), rounded(evaluation.accuracy_deployed));
    table.insert("accuracy_reconstructed".to_owned(), rounded(evaluation.accuracy_reconstructed));
    table.insert("agreement".to_owned(), rounded(evaluation.agreement));
    table
}
