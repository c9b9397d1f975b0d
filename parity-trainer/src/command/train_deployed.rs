//! `parity-trainer train-deployed`.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use clap::ArgMatches;
use parapet_decoder::{Agreement, OutputKind, OutputSpec};
use parity_trainer::data::{Augment, DataSet};
use parity_trainer::deployed::DeployedModel as _;
use parity_trainer::evaluation::percent;
use parity_trainer::run::CurveLabels;
use parity_trainer::{DeployedRun, Entry, TrainError, Trained, Trainer, accuracy, ensure};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::interrupt::Interrupt;
use super::settings::{Checked, Common, Flags, LEARNING_RATE, digest, network, range, to_toml};
use super::training_loop::{TrainingLoop, environment, lock_training, run_folder};
use super::{load_data, prepare_out, provenance, rounded, write_json};
use crate::report;

pub(crate) type Args = Flags<Settings>;

/// Its flags, the TOML file that can stand for them, `config.toml` of a run.
#[derive(Debug, Clone, PartialEq, clap::Args, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Settings {
    #[command(flatten)]
    #[serde(flatten)]
    common: Common,
    /// `lenet`, `resnet6`, `resnet8`, `resnet8-strided`, `resnet14`, `resnet20`, `resnet18`, `vgg11`
    /// (each `:WIDTH`) or `mlp:INPUTS,HIDDEN,..`; `sequence6`, `sequence8`, `sequence8-strided`,
    /// `sequence14` (each `:WIDTH`) for sequences, which zeros pad to one length in the data
    #[arg(long, value_parser = network, default_value = "lenet")]
    network: String,
    /// Passes over the training samples
    #[arg(long, default_value_t = 20)]
    epochs: u32,
    /// Probability mass that targets give to all classes alike; it keeps outputs in bounds, which a
    /// parity model learns more easily
    #[arg(long, default_value_t = 0.1)]
    label_smoothing: f64,
    /// Kind of the data's targets, where they have numbers for labels: multi_label, regression,
    /// embedding or boxes; and the largest error that is right
    #[arg(long, value_name = "KIND[:TOLERANCE]")]
    output_kind: Option<OutputSpec>,
}

impl Checked for Settings {
    fn check(&self) -> Result<(), TrainError> {
        self.common.check()?;
        range("epochs", f64::from(self.epochs), 1.0, f64::from(u32::MAX))?;
        range("label-smoothing", self.label_smoothing, 0.0, 0.999_999)
    }
}

/// Comparison of outputs with what the data want of them, which must be there.
fn agreement(settings: &Settings, data: &DataSet, path: &Path) -> Result<Agreement, TrainError> {
    let (targets, kind) = (data.train.target_len(), settings.output_kind.as_ref());
    let has_classes = kind.is_none_or(|of| of.kind == OutputKind::Classes);
    if has_classes == (targets > 0) {
        let problem = match has_classes {
            true => {
                "its labels are floating-point numbers; say what they are with --output-kind, \
                as boxes or regression:0.5"
            }
            false => {
                "--output-kind: only classes can be learned from it; give y_train and y_test \
                as floating-point numbers, a row for each sample"
            }
        };
        return Err(TrainError::input(path, problem));
    }
    if has_classes {
        check_labels(data, path)?;
    }
    let moved = "--augment: targets do not move with their samples; leave it out, or give none";
    let is_still = targets == 0 || settings.common.augment.is_none_or(|of| of == Augment::NONE);
    ensure!(is_still, TrainError::Input(moved.to_owned()));
    let outputs = if has_classes { data.classes } else { targets };
    Agreement::of(kind, &[outputs])
        .map_err(|error| TrainError::input(path, format!("--output-kind: {error}")))
}

fn check_labels(data: &DataSet, path: &Path) -> Result<(), TrainError> {
    let problem = "has no labels, which are needed to train a model to be deployed; add them \
        (train-labels-idx1-ubyte, arrays y_train and y_test, or a folder for each class)";
    ensure!(data.is_labelled(), TrainError::input(path, problem));
    let problem = "all of its labels are one class; give data of two or more";
    ensure!(data.classes >= 2, TrainError::input(path, problem));
    Ok(())
}

impl Settings {
    fn run(&self, data: &DataSet) -> Result<DeployedRun, TrainError> {
        let common = &self.common;
        let has_targets = !data.train.targets.is_empty();
        Ok(DeployedRun {
            network: self.network.parse()?,
            epochs: self.epochs as usize,
            batch: common.batch as usize,
            learning_rate: common.learning_rate.unwrap_or(LEARNING_RATE),
            weight_decay: common.weight_decay,
            label_smoothing: self.label_smoothing,
            augment: if has_targets { Augment::NONE } else { common.augmentation(data) },
            agreement: agreement(self, data, &common.data)?,
            seed: common.seed,
        })
    }
}

pub(crate) fn run(args: &Args, matches: &ArgMatches) -> Result<(), TrainError> {
    let settings = args.settings(matches)?;
    let common = &settings.common;
    let name = common.name.as_deref().unwrap_or_default();
    super::settings::needed("name", name.as_ref())?;
    let interrupt = Interrupt::listen()?;
    let folder = run_folder(common, name);
    let resume = args.resumes(&folder)?;
    let data = load_data(&common.data)?;
    let run = settings.run(&data)?;
    prepare_out(&common.out, common.json.as_deref())?;
    let bare = Settings { common: common.bare(), ..settings.clone() };
    let digest = digest(&bare, &["train-deployed", &data.sha256])?;
    let network = run.network.to_string();
    let more = [("network", network.clone())];
    let mut training = provenance(common.seed, &data);
    training.insert("epochs".to_owned(), i64::from(settings.epochs).into());

    let begun = Instant::now();
    let trainer = Trainer::deployed(&run, Arc::new(data.train))?;
    let _locks = lock_training(&folder, &common.out, name)?;
    let training_loop = TrainingLoop {
        name,
        folder: &folder,
        digest: &digest,
        config: &to_toml(&settings)?,
        environment: environment(common.seed, &data.sha256, &digest, &more),
        resume,
        settings: common,
        interrupt: &interrupt,
        labels: CurveLabels { title: name, loss: run.loss_name(), rate: "accuracy" },
    };
    let (trained, _) = training_loop.run(trainer)?;
    let seconds = begun.elapsed().as_secs_f64();
    let Trained::Model(model) = &trained else { return Ok(()) };
    let accuracy = accuracy(model, &data.test, &run.agreement)?;

    training.insert("accuracy_deployed".to_owned(), rounded(accuracy));
    interrupt.wait_for_step();
    let entry = Entry {
        name,
        trained: &trained,
        input: model.input_shape(),
        output: model.output_shape(),
        kind: settings.output_kind,
        code: None,
        training,
    };
    let place = entry.write(&common.out)?;
    if let Some(path) = &common.json {
        let report = json!({
            "model": name,
            "network": network,
            "seconds": seconds,
            "test_samples": data.test.len(),
            "accuracy_deployed": accuracy,
        });
        write_json(path, &report)?;
    }
    report::print(&[
        ("A_a, accuracy".to_owned(), percent(accuracy, 1)),
        ("trained in".to_owned(), format!("{seconds:.1} s")),
        ("written to".to_owned(), place.display().to_string()),
    ]);
    Ok(())
}
