//! `parity-trainer train-deployed`.

use std::path::PathBuf;
use std::time::Instant;

use parity_trainer::data::Augment;
use parity_trainer::network::NetworkSpec;
use parity_trainer::{DeployedRun, TrainError, accuracy, write_entry};
use serde::Serialize;

use super::{OutputArgs, augmentation, load_data, provenance, rounded, write_json};
use crate::progress::Progress;
use crate::report;

/// Arguments of `train-deployed`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder with the four IDX files of MNIST's layout, plain or .gz
    #[arg(long, value_name = "FOLDER")]
    data: PathBuf,
    /// `lenet`, `lenet:WIDTH`, `lenet:WIDTHxKERNEL` or `mlp:INPUTS,HIDDEN,...`
    #[arg(long, default_value = "lenet")]
    network: NetworkSpec,
    /// Passes over the training samples
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    epochs: u32,
    /// Samples a step
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// Peak learning rate of AdamW
    #[arg(long, default_value_t = 3e-3)]
    learning_rate: f64,
    /// Weight decay of AdamW
    #[arg(long, default_value_t = 1e-2)]
    weight_decay: f64,
    /// Probability mass that targets give to all classes alike; it keeps outputs in bounds, which a parity model learns
    /// more easily
    #[arg(long, default_value_t = 0.1)]
    label_smoothing: f64,
    /// How images are varied: `none`, or some of `shift` or `crop`, `flip` and `cutout`, such as `crop+flip`
    /// [default: shift for images]
    #[arg(long)]
    augment: Option<Augment>,
    /// Seed of everything random
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    model: &'a str,
    network: String,
    seconds: f64,
    test_samples: usize,
    accuracy_deployed: f64,
}

/// Trains, evaluates and writes the entry.
pub(crate) fn run(args: &Args) -> Result<(), TrainError> {
    let data = load_data(&args.data)?;
    args.output.prepare()?;
    let run = DeployedRun {
        network: args.network.clone(),
        epochs: args.epochs as usize,
        batch: args.batch as usize,
        learning_rate: args.learning_rate,
        weight_decay: args.weight_decay,
        label_smoothing: args.label_smoothing,
        augment: augmentation(args.augment, &data),
        seed: args.seed,
    };
    let begun = Instant::now();
    let mut progress = Progress::new(&args.output.name, "accuracy", 0);
    let network = parity_trainer::train_deployed(&run, &data, |step| progress.step(step))?;
    progress.finish();
    let seconds = begun.elapsed().as_secs_f64();
    let accuracy = accuracy(&network, &data.test)?;

    let mut training = provenance(args.seed, &data);
    training.insert("epochs".to_owned(), i64::from(args.epochs).into());
    training.insert("accuracy_deployed".to_owned(), rounded(accuracy));
    let place = write_entry(&args.output.out, &args.output.name, &network, None, training)?;
    write_json(
        args.output.json.as_deref(),
        &Report {
            model: &args.output.name,
            network: network.spec().to_string(),
            seconds,
            test_samples: data.test.len(),
            accuracy_deployed: accuracy,
        },
    )?;
    report::print(&[
        ("A_a, accuracy", report::percent(accuracy)),
        ("trained in", format!("{seconds:.1} s")),
        ("written to", place.display().to_string()),
    ]);
    Ok(())
}
