//! `parity-trainer train`.

use std::path::PathBuf;
use std::time::Instant;

use parapet_encoder::{CodeSpec, EncoderKind, build_encoder};
use parity_trainer::data::{Augment, DataSet};
use parity_trainer::network::{Network, NetworkSpec};
use parity_trainer::{
    DeployedModel, Evaluation, ParityRun, TrainError, code_metadata, evaluate, write_entry,
};
use serde::Serialize;

use super::{OutputArgs, augmentation, load_data, provenance, rounded};
use crate::progress::Progress;
use crate::report;

/// Training samples and their variants together, unless `--copies` says otherwise.
const POOL_SAMPLES: usize = 20_000;
/// Shuffles of the test set into groups that the evaluation averages.
const GROUPINGS: usize = 10;

/// Arguments of `train`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The deployed model: REPOSITORY/NAME of one that `train-deployed` has made
    #[arg(long, value_name = "REPOSITORY/NAME")]
    model: PathBuf,
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
    /// How images are varied: `none`, or some of `shift` or `crop`, `flip` and `cutout`, such as `crop+flip`
    /// [default: shift for images]
    #[arg(long)]
    augment: Option<Augment>,
    /// Variants of each sample to learn from, besides itself [default: enough for 20,000 samples]
    #[arg(long)]
    copies: Option<usize>,
    /// Seed of everything random
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    output: OutputArgs,
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
pub(crate) fn run(args: &Args) -> Result<(), TrainError> {
    let deployed = DeployedModel::load(&args.model)?;
    let data = load_data(&args.data)?;
    check_data(args, &deployed.network, &data)?;
    let code = CodeSpec::new(args.encoder, args.k, args.r);
    let label = build_encoder(&code, &data.train.shape)?.code().label();
    args.output.prepare()?;

    let augment = augmentation(args.augment, &data);
    let enough = (POOL_SAMPLES / data.train.len()).saturating_sub(1);
    let copies = args.copies.unwrap_or(if augment == Augment::NONE { 0 } else { enough });
    let run = ParityRun {
        network: args.network.clone().unwrap_or_else(|| deployed.network.spec().clone()),
        code,
        row: args.row,
        steps: args.steps as usize,
        groups: args.batch as usize,
        learning_rate: args.learning_rate,
        weight_decay: args.weight_decay,
        augment,
        copies,
        seed: args.seed,
    };
    let begun = Instant::now();
    let mut progress = Progress::new(&args.output.name, "agreement");
    let network =
        parity_trainer::train_parity(&run, &deployed.network, &data.train, |step| progress.step(step))?;
    progress.finish();
    let seconds = begun.elapsed().as_secs_f64();
    let evaluation = evaluate(&deployed.network, &network, &run.code, run.row, &data.test, GROUPINGS)?;

    let section = code_metadata(&deployed.name, run.row, &run.code)?;
    let training = training_table(args, &data, &evaluation);
    let place = write_entry(&args.output.out, &args.output.name, &network, Some(section), training)?;
    args.output.write_json(&Report {
        model: &args.output.name,
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

fn check_data(args: &Args, deployed: &Network, data: &DataSet) -> Result<(), TrainError> {
    if deployed.input_shape() != data.train.shape {
        let (model, shape) = (deployed.input_shape().to_vec(), data.train.shape.clone());
        return Err(TrainError::OtherData { path: args.model.clone(), model, data: shape });
    }
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
