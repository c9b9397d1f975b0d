//! The settings of `train-deployed`: its flags, the TOML file that can stand for them,
//! `config.toml` of a run.

use std::path::PathBuf;

use parity_trainer::data::Augment;
use parity_trainer::network::NetworkSpec;
use parity_trainer::{DeployedRun, SetupError, TrainError};
use serde::{Deserialize, Serialize};

use crate::command::model_name;
use crate::command::settings::{
    Checked, Flags, RunOptions, digest, needed, optional_network, range, to_toml,
};

/// The network that is trained where none is named.
const NETWORK: &str = "lenet";

/// Arguments of `train-deployed`.
pub(crate) type Args = Flags<Options>;

/// Options of the command; a setting's name in the file is the flag's.
#[derive(Debug, Clone, Default, clap::Args, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Options {
    /// Labelled data: a folder with IDX, CIFAR or image files, or a file .npz, .safetensors, .tar
    /// or .tar.gz
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// `lenet`, `resnet8`, `resnet14`, `resnet20`, `resnet18`, `vgg11` (each `:WIDTH`) or
    /// `mlp:INPUTS,HIDDEN,..` [default: lenet]
    #[arg(long)]
    #[serde(serialize_with = "optional_network::serialize")]
    network: Option<NetworkSpec>,
    /// Passes over the training samples [default: 20]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    epochs: Option<u32>,
    /// Samples a step [default: 64]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    batch: Option<u32>,
    /// Peak learning rate of AdamW [default: 0.003]
    #[arg(long)]
    learning_rate: Option<f64>,
    /// Weight decay of AdamW [default: 0.01]
    #[arg(long)]
    weight_decay: Option<f64>,
    /// Probability mass that targets give to all classes alike; it keeps outputs in bounds, which a
    /// parity model learns more easily [default: 0.1]
    #[arg(long)]
    label_smoothing: Option<f64>,
    /// Augmentation of images: `none`, or some of `shift` or `crop`, `flip` and `cutout`, such as
    /// `crop+flip` [default: shift for images]
    #[arg(long)]
    augment: Option<Augment>,
    /// Seed of everything random [default: 0]
    #[arg(long, value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    seed: Option<u64>,
    /// The model repository
    #[arg(long, value_name = "REPOSITORY")]
    out: Option<PathBuf>,
    /// Name of the new entry; one of that name is replaced
    #[arg(long, value_parser = model_name)]
    name: Option<String>,
    /// Write the evaluation here too, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    #[serde(flatten)]
    run: RunOptions,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(super) struct Settings {
    pub(super) data: PathBuf,
    #[serde(with = "optional_network", skip_serializing_if = "Option::is_none")]
    network: Option<NetworkSpec>,
    pub(super) epochs: u32,
    batch: u32,
    learning_rate: f64,
    weight_decay: f64,
    label_smoothing: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) augment: Option<Augment>,
    pub(super) seed: u64,
    pub(super) out: PathBuf,
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) json: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) run: Option<PathBuf>,
    pub(super) checkpoint_every: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) checkpoint_steps: Option<u32>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            data: PathBuf::new(),
            network: None,
            epochs: 20,
            batch: 64,
            learning_rate: 3e-3,
            weight_decay: 1e-2,
            label_smoothing: 0.1,
            augment: None,
            seed: 0,
            out: PathBuf::new(),
            name: String::new(),
            json: None,
            run: None,
            checkpoint_every: 60.0,
            checkpoint_steps: None,
        }
    }
}

impl Checked for Settings {
    fn check(&self) -> Result<(), SetupError> {
        needed(&[
            ("data", &self.data),
            ("out", &self.out),
            ("name", self.name.as_ref()),
        ])?;
        let named = model_name(&self.name);
        named
            .map_err(|problem| SetupError::config(None, &format!("{:?}: {problem}", self.name)))?;
        range("epochs", f64::from(self.epochs), 1.0, f64::from(u32::MAX))?;
        range("batch", f64::from(self.batch), 1.0, f64::from(u32::MAX))?;
        range("learning-rate", self.learning_rate, 1e-12, 1e3)?;
        range("weight-decay", self.weight_decay, 0.0, 1e3)?;
        range("label-smoothing", self.label_smoothing, 0.0, 0.999_999)?;
        range("checkpoint-every", self.checkpoint_every, 0.0, 1e9)
    }
}

impl Settings {
    /// Returns the settings for training the model with `augment`.
    pub(super) fn deployed_run(&self, augment: Augment) -> Result<DeployedRun, TrainError> {
        Ok(DeployedRun {
            network: self.network.clone().map_or_else(|| NETWORK.parse(), Ok)?,
            epochs: self.epochs as usize,
            batch: self.batch as usize,
            learning_rate: self.learning_rate,
            weight_decay: self.weight_decay,
            label_smoothing: self.label_smoothing,
            augment,
            seed: self.seed,
        })
    }

    pub(super) fn to_toml(&self) -> Result<String, SetupError> {
        to_toml(self)
    }

    /// Digest of all that decides how the training goes: the settings but for places and names,
    /// and the data.
    pub(super) fn digest(&self, data_sha256: &str) -> Result<String, SetupError> {
        let bare = Self {
            data: PathBuf::new(),
            out: PathBuf::new(),
            name: String::new(),
            json: None,
            run: None,
            checkpoint_every: 0.0,
            checkpoint_steps: None,
            ..self.clone()
        };
        Ok(digest(&bare.to_toml()?, &["train-deployed", data_sha256]))
    }
}
