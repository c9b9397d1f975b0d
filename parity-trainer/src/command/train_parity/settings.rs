//! Flags and settings of `train`, with their defaults.

use std::path::PathBuf;
use std::str::FromStr;

use clap::ArgAction;
use parapet_cluster::array::FilterSpec;
use parapet_encoder::{CodeSpec, EncoderKind};
use parapet_parameter_server::Consistency;
use parity_trainer::backend::{OptimiserConfig, OptimiserSpec, Schedule};
use parity_trainer::data::Augment;
use parity_trainer::deployed::InputScaling;
use parity_trainer::network::NetworkSpec;
use parity_trainer::{Loss, SetupError, TransformChoice};
use serde::{Deserialize, Serialize};

use crate::command::model_name;
use crate::command::settings::{
    Checked, Flags, digest, needed, optional_network, path, range, to_toml,
};

/// Parts of a step on a cluster, unless `--executors` says otherwise.
const EXECUTORS: u32 = 4;

/// Arguments of `train`.
pub(crate) type Args = Flags<Settings>;

/// Kinds of optimiser.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OptimiserKind {
    /// Adam; weight decay is added to the gradient
    Adam,
    /// Adam; weight decay shrinks the weights
    #[value(name = "adamw")]
    AdamW,
    /// Gradient descent with momentum
    Sgd,
}

/// Settings of `train`: its flags, the TOML file that can stand for them, `config.toml` of a run.
#[derive(Debug, Clone, PartialEq, clap::Args, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Settings {
    /// The deployed model: an .onnx file, a TorchScript file (.pt, .pth, .ts), or REPOSITORY/NAME
    #[arg(
        long,
        value_name = "MODEL",
        default_value = "",
        hide_default_value = true,
        value_parser = path()
    )]
    pub(crate) model: PathBuf,
    /// Its name where it is deployed [default: the entry's or the file's]
    #[arg(long, value_name = "NAME", value_parser = model_name)]
    pub(crate) deployed: Option<String>,
    /// The input to feed, of a model with several
    #[arg(long, value_name = "TENSOR")]
    pub(crate) input: Option<String>,
    /// The output to learn, of a model with several
    #[arg(long, value_name = "TENSOR")]
    pub(crate) output: Option<String>,
    /// Factor of samples, the mean subtracted, for a model that wants other ranges than
    /// 0 to 1
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    pub(crate) input_scale: f64,
    /// Mean that is subtracted from samples first: one value, or one for each channel
    #[arg(
        long,
        value_name = "MEAN,..",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    pub(crate) input_mean: Vec<f64>,
    /// Data like those that the deployed model is asked about; labels play no part in the training
    #[arg(
        long,
        value_name = "PATH",
        default_value = "",
        hide_default_value = true,
        value_parser = path()
    )]
    pub(crate) data: PathBuf,
    /// Where the deployed model's outputs are kept for the next run [default: .cache in the
    /// repository]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) cache: Option<PathBuf>,
    /// Queries in a coding group
    #[arg(long, default_value_t = 2)]
    pub(crate) k: usize,
    /// Parity models of a coding group; each is trained, and named NAME-0, NAME-1 ..
    #[arg(long, default_value_t = 1)]
    pub(crate) r: usize,
    /// Train this parity row only, from 0
    #[arg(long)]
    pub(crate) row: Option<usize>,
    /// Way in which the queries of a group are combined: `sum` (any samples), `concat` (images), or
    /// `learned` (any samples: an encoder and a decoder are trained, and the deployed model answers
    /// the parity queries)
    #[arg(long, value_parser = encoder_kind, default_value = "concat")]
    pub(crate) encoder: EncoderKind,
    /// Coefficients of the weighted sum, a row for each parity model: `1,1;1,-0.5` [default: a
    /// table of well-conditioned ones]
    #[arg(long, value_name = "A,B,..;..", allow_hyphen_values = true)]
    pub(crate) generator: Option<Generator>,
    /// The domain in which predictions are added, or in which a learned decoder takes and gives
    /// them; auto tries each that fits
    #[arg(long, default_value = "auto")]
    pub(crate) transform: TransformChoice,
    /// Steps of all of auto's trials together, as a part of --steps
    #[arg(long, value_name = "PART", default_value_t = 0.15)]
    pub(crate) trial_share: f64,
    /// `lenet`, `resnet8`, `resnet14`, `resnet20`, `resnet18`, `vgg11` (each `:WIDTH`),
    /// `mlp:INPUTS,HIDDEN,..`, or `cells:ROWSxCOLUMNS:NETWORK` with the grid of the concatenation:
    /// 1x2 for k = 2, 2x2 for k = 3 and 4 [default: the deployed model's where it is known]. A
    /// learned code's encoder: `mlp:INPUTS,HIDDEN,..` of k samples' values, or `dilated:CHANNELS`
    /// for images [default: an MLP with one hidden layer as long as its input]
    #[arg(long)]
    #[serde(with = "optional_network", default)]
    pub(crate) network: Option<NetworkSpec>,
    /// The network of a learned code's decoder, of (k + r) times the model's outputs to k times
    /// [default: `mlp:` with hidden layers of (k + r) and k times the model's outputs]
    #[arg(long)]
    #[serde(with = "optional_network", default)]
    pub(crate) decoder_network: Option<NetworkSpec>,
    /// Loss of a learned code's training [default: the better of mse and kl in short trials]
    #[arg(long)]
    pub(crate) loss: Option<Loss>,
    /// Scale what the network takes by its mean and deviation
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    pub(crate) normalise: bool,
    /// True if a network of cells learns each cell's part of the sum, and not only the sum
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    pub(crate) cell_targets: bool,
    /// Weights to begin with: an entry of this trainer whose network is the same, or that of one
    /// cell [default: fresh ones]
    #[arg(long, value_name = "REPOSITORY/NAME")]
    pub(crate) start: Option<PathBuf>,
    /// Optimiser steps
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), default_value_t = 4000)]
    pub(crate) steps: u32,
    /// Coding groups a step
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), default_value_t = 64)]
    pub(crate) batch: u32,
    /// Optimiser
    #[arg(long, default_value = "adamw")]
    pub(crate) optimiser: OptimiserKind,
    /// Peak learning rate
    #[arg(long, default_value_t = 3e-3)]
    pub(crate) learning_rate: f64,
    /// Schedule of the learning rate
    #[arg(long, default_value = "cosine")]
    pub(crate) schedule: Schedule,
    /// Momentum of sgd
    #[arg(long, default_value_t = 0.9)]
    pub(crate) momentum: f64,
    /// Weight decay
    #[arg(long, default_value_t = 1e-2)]
    pub(crate) weight_decay: f64,
    /// Longest gradient; longer ones are scaled down to it [default: any]
    #[arg(long, value_name = "NORM")]
    pub(crate) clip: Option<f64>,
    /// Augmentation of images: `none`, or some of `shift` or `crop`, `flip` and `cutout`, such as
    /// `crop+flip` [default: shift for images]
    #[arg(long)]
    pub(crate) augment: Option<Augment>,
    /// Variants of each sample to learn from, besides itself [default: enough for 20,000 samples]
    #[arg(long)]
    pub(crate) copies: Option<usize>,
    /// Part of the training samples that the best weights and the transform are chosen by
    #[arg(long, value_name = "PART", default_value_t = 0.1)]
    pub(crate) validation: f64,
    /// Steps from one validation to the next [default: a twentieth of --steps]
    #[arg(long, value_name = "STEPS")]
    pub(crate) validate_every: Option<u32>,
    /// Part of the groups that end in repeated known queries, as a frontend completes groups in a
    /// lull
    #[arg(long, value_name = "PART", default_value_t = 0.0)]
    pub(crate) filler_share: f64,
    /// Seed of everything random
    #[arg(
        long,
        value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64),
        default_value_t = 0
    )]
    pub(crate) seed: u64,
    /// The model repository
    #[arg(
        long,
        value_name = "REPOSITORY",
        default_value = "",
        hide_default_value = true,
        value_parser = path()
    )]
    pub(crate) out: PathBuf,
    /// Name of the new entry; one of that name is replaced [default: the deployed model's and
    /// `-parity`]
    #[arg(long, value_parser = model_name)]
    pub(crate) name: Option<String>,
    /// Write the evaluation here too, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Folder of the run's log and checkpoints [default: .runs/NAME in the repository]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) run: Option<PathBuf>,
    /// Seconds from one checkpoint to the next
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    pub(crate) checkpoint_every: f64,
    /// Steps from one checkpoint to the next, instead of seconds
    #[arg(long, value_name = "STEPS")]
    pub(crate) checkpoint_steps: Option<u32>,
    /// Train on this cluster of parameter servers, with all its workers: `parapet://HOST:PORT` or
    /// `etcd://HOST:PORT/CLUSTER` [default: a parameter server inside this process]
    #[arg(long, value_name = "REGISTRY")]
    pub(crate) cluster: Option<String>,
    /// Parts that each step is cut into on a cluster, more than it has processes; 1 for the very
    /// weights of a run without a cluster [default: 4]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) executors: Option<u32>,
    /// Consistency model, a bound on the staleness of parameters: `bsp`, nothing;
    /// `bounded-delay:STEPS`, `ssp:STEPS` or `eager-ssp:STEPS`, so many; `eventual`, any. Under all
    /// but bsp a slow process delays the others only once it is as far behind, each part of a step
    /// is an update of its own, and the model is another one each time, unless one process with one
    /// part makes it [default: bsp]
    #[arg(long, value_name = "MODEL")]
    pub(crate) consistency: Option<Consistency>,
    /// Filters of messages on a cluster: `lz4`; `bf16` or `f16`, for gradients, where what rounding
    /// leaves is added to later ones; or `lz4` and one of these, such as `lz4,bf16`. With lz4 alone
    /// the weights keep their very bits [default: none]
    #[arg(long, value_name = "FILTER,..")]
    pub(crate) filters: Option<FilterSpec>,
}

impl Checked for Settings {
    fn check(&self) -> Result<(), SetupError> {
        needed(&[
            ("model", &self.model),
            ("data", &self.data),
            ("out", &self.out),
        ])?;
        for name in [&self.name, &self.deployed].into_iter().flatten() {
            model_name(name)
                .map_err(|problem| SetupError::config(None, &format!("{name:?}: {problem}")))?;
        }
        let only_learned = "only a learned code has it; leave it out, or set encoder = \"learned\"";
        let is_learned = self.is_learned();
        let has_filters = self.filters.is_some_and(|filters| !filters.is_none());
        let misplaced = [
            (
                is_learned && self.row.is_some(),
                "row",
                "a learned code has one encoder for all rows; leave it out",
            ),
            (
                is_learned && self.start.is_some(),
                "start",
                "a learned code's networks begin afresh; leave it out",
            ),
            (
                !is_learned && self.decoder_network.is_some(),
                "decoder-network",
                only_learned,
            ),
            (!is_learned && self.loss.is_some(), "loss", only_learned),
            (
                !self.batch.is_multiple_of(self.executors() as u32),
                "executors",
                "a step's coding groups are dealt out to them evenly: give a divisor of --batch",
            ),
            (
                self.cluster.is_none() && has_filters,
                "filters",
                "they shorten messages on a cluster: leave it out, or give --cluster",
            ),
        ];
        if let Some((_, name, problem)) = misplaced.into_iter().find(|(is_so, ..)| *is_so) {
            return Err(SetupError::Misplaced { name, problem });
        }
        range("steps", f64::from(self.steps), 1.0, f64::from(u32::MAX))?;
        range("batch", f64::from(self.batch), 1.0, f64::from(u32::MAX))?;
        range("trial-share", self.trial_share, 0.01, 1.0)?;
        range("validation", self.validation, 0.01, 0.5)?;
        range("filler-share", self.filler_share, 0.0, 1.0)?;
        range("momentum", self.momentum, 0.0, 0.999_999)?;
        range("learning-rate", self.learning_rate, 1e-12, 1e3)?;
        range("weight-decay", self.weight_decay, 0.0, 1e3)?;
        range("checkpoint-every", self.checkpoint_every, 0.0, 1e9)?;
        range("clip", self.clip.unwrap_or(1.0), 1e-12, 1e12)
    }
}

impl Settings {
    /// Into how many parts a step is cut, that any process of a cluster may compute.
    pub(super) fn executors(&self) -> usize {
        let asked = self.executors.unwrap_or(EXECUTORS).max(1) as usize;
        if self.cluster.is_some() { asked } else { 1 }
    }

    /// Returns true if an encoder and a decoder are trained, and no parity model.
    pub(super) fn is_learned(&self) -> bool {
        self.encoder == EncoderKind::Learned
    }

    /// The code, adding outputs as they are.
    pub(super) fn code(&self) -> CodeSpec {
        CodeSpec {
            generator: self.generator.as_ref().map(|rows| rows.0.clone()),
            ..CodeSpec::new(self.encoder, self.k, self.r)
        }
    }

    pub(super) fn scaling(&self) -> InputScaling {
        let mean = self.input_mean.iter().map(|&mean| mean as f32).collect();
        InputScaling {
            scale: self.input_scale as f32,
            mean,
        }
    }

    pub(super) fn rule(&self) -> OptimiserConfig {
        let weight_decay = self.weight_decay;
        let optimiser = match self.optimiser {
            OptimiserKind::Adam => OptimiserSpec::Adam { weight_decay },
            OptimiserKind::AdamW => OptimiserSpec::AdamW { weight_decay },
            OptimiserKind::Sgd => OptimiserSpec::Sgd {
                momentum: self.momentum,
                weight_decay,
            },
        };
        OptimiserConfig {
            optimiser,
            learning_rate: self.learning_rate,
            schedule: self.schedule,
            steps: u64::from(self.steps),
            clip: self.clip,
        }
    }

    pub(super) fn to_toml(&self) -> Result<String, SetupError> {
        to_toml(self)
    }

    /// Digest of all that decides how the training goes: the settings but for places and names, and
    /// what `rest` adds.
    pub(super) fn digest(&self, rest: &[&str]) -> Result<String, SetupError> {
        let bare = Self {
            model: PathBuf::new(),
            data: PathBuf::new(),
            out: PathBuf::new(),
            start: None,
            cache: None,
            deployed: None,
            name: None,
            json: None,
            run: None,
            row: None,
            checkpoint_every: 0.0,
            checkpoint_steps: None,
            cluster: None,
            ..self.clone()
        };
        Ok(digest(&bare.to_toml()?, rest))
    }

    /// Digest of one row's training, of a run whose digest is `run`.
    pub(super) fn row_digest(&self, run: &str, row: usize) -> Result<String, SetupError> {
        self.digest(&[run, &row.to_string()])
    }
}

/// Rows of coefficients, as a flag has them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Generator(Vec<Vec<f32>>);

impl FromStr for Generator {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let coefficient = |text: &str| {
            let number = text
                .trim()
                .parse::<f32>()
                .ok()
                .filter(|number| number.is_finite());
            number.ok_or_else(|| {
                format!("{text:?} is no coefficient; write rows such as `1,1;1,-0.5`")
            })
        };
        let rows = text
            .split(';')
            .map(|row| row.split(',').map(coefficient).collect());
        Ok(Self(rows.collect::<Result<_, String>>()?))
    }
}

fn encoder_kind(name: &str) -> Result<EncoderKind, String> {
    toml::Value::from(name)
        .try_into()
        .map_err(|error: toml::de::Error| error.message().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generator_is_rows_of_coefficients() {
        let rows: Generator = "1,1; 1,-0.5".parse().unwrap();
        assert_eq!(rows, Generator(vec![vec![1.0, 1.0], vec![1.0, -0.5]]));
        for text in ["", "1,", "1;;1", "1,nan", "a,b"] {
            assert!(
                text.parse::<Generator>()
                    .unwrap_err()
                    .contains("is no coefficient"),
                "{text}"
            );
        }
    }
}
