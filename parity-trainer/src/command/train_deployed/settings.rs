//! The settings of `train-deployed`: its flags, the TOML file that can stand for them,
//! `config.toml` of a run.

use std::path::PathBuf;

use parity_trainer::data::Augment;
use parity_trainer::network::NetworkSpec;
use parity_trainer::{DeployedRun, SetupError, TrainError};
use serde::{Deserialize, Serialize};

use crate::command::model_name;
use crate::command::settings::{
    Checked, Flags, digest, needed, optional_network, path, range, to_toml,
};

/// The network that is trained where none is named.
const NETWORK: &str = "lenet";

/// Arguments of `train-deployed`.
pub(crate) type Args = Flags<Settings>;

#[derive(Debug, Clone, PartialEq, clap::Args, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Settings {
    /// Labelled data: a folder with IDX, CIFAR or image files, or a file .npz, .safetensors, .tar
    /// or .tar.gz
    #[arg(
        long,
        value_name = "PATH",
        default_value = "",
        hide_default_value = true,
        value_parser = path()
    )]
    pub(super) data: PathBuf,
    /// `lenet`, `resnet8`, `resnet14`, `resnet20`, `resnet18`, `vgg11` (each `:WIDTH`) or
    /// `mlp:INPUTS,HIDDEN,..` [default: lenet]
    #[arg(long)]
    #[serde(with = "optional_network", default)]
    network: Option<NetworkSpec>,
    /// Passes over the training samples
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), default_value_t = 20)]
    pub(super) epochs: u32,
    /// Samples a step
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), default_value_t = 64)]
    batch: u32,
    /// Peak learning rate of AdamW
    #[arg(long, default_value_t = 3e-3)]
    learning_rate: f64,
    /// Weight decay of AdamW
    #[arg(long, default_value_t = 1e-2)]
    weight_decay: f64,
    /// Probability mass that targets give to all classes alike; it keeps outputs in bounds, which a
    /// parity model learns more easily
    #[arg(long, default_value_t = 0.1)]
    label_smoothing: f64,
    /// Augmentation of images: `none`, or some of `shift` or `crop`, `flip` and `cutout`, such as
    /// `crop+flip` [default: shift for images]
    #[arg(long)]
    pub(super) augment: Option<Augment>,
    /// Seed of everything random
    #[arg(
        long,
        value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64),
        default_value_t = 0
    )]
    pub(super) seed: u64,
    /// The model repository
    #[arg(
        long,
        value_name = "REPOSITORY",
        default_value = "",
        hide_default_value = true,
        value_parser = path()
    )]
    pub(super) out: PathBuf,
    /// Name of the new entry; one of that name is replaced
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(super) name: String,
    /// Write the evaluation here too, as JSON
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Folder of the run's log and checkpoints [default: .runs/NAME in the repository]
    #[arg(long, value_name = "FOLDER")]
    pub(super) run: Option<PathBuf>,
    /// Seconds from one checkpoint to the next
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    pub(super) checkpoint_every: f64,
    /// Steps from one checkpoint to the next, instead of seconds
    #[arg(long, value_name = "STEPS")]
    pub(super) checkpoint_steps: Option<u32>,
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
