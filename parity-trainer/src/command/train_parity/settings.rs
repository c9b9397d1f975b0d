//! All settings of a training, with their defaults; `config.toml` of a run.

use std::path::PathBuf;

use parapet_cluster::array::FilterSpec;
use parapet_encoder::{CodeSpec, EncoderKind};
use parapet_parameter_server::Consistency;
use parity_trainer::backend::{OptimiserConfig, OptimiserSpec, Schedule};
use parity_trainer::data::Augment;
use parity_trainer::deployed::InputScaling;
use parity_trainer::network::NetworkSpec;
use parity_trainer::{Loss, SetupError, TransformChoice};
use serde::{Deserialize, Serialize};

use crate::command::settings::{Checked, digest, needed, optional_network, range, to_toml};

/// Parts of a step on a cluster, unless `--executors` says otherwise.
const EXECUTORS: u32 = 4;

/// Kinds of optimiser.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OptimiserKind {
    /// Adam; weight decay is added to the gradient
    Adam,
    /// Adam; weight decay shrinks the weights
    #[default]
    #[value(name = "adamw")]
    AdamW,
    /// Gradient descent with momentum
    Sgd,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct Settings {
    pub(crate) model: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deployed: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) input: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<String>,
    pub(crate) input_scale: f64,
    pub(crate) input_mean: Vec<f64>,
    pub(crate) data: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cache: Option<PathBuf>,
    pub(crate) k: usize,
    pub(crate) r: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) row: Option<usize>,
    pub(crate) encoder: EncoderKind,
    /// Rows of coefficients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) generator: Option<Vec<Vec<f32>>>,
    pub(crate) transform: TransformChoice,
    pub(crate) trial_share: f64,
    #[serde(with = "optional_network", skip_serializing_if = "Option::is_none")]
    pub(crate) network: Option<NetworkSpec>,
    #[serde(with = "optional_network", skip_serializing_if = "Option::is_none")]
    pub(crate) decoder_network: Option<NetworkSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) loss: Option<Loss>,
    pub(crate) normalise: bool,
    pub(crate) cell_targets: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) start: Option<PathBuf>,
    pub(crate) steps: u32,
    pub(crate) batch: u32,
    pub(crate) optimiser: OptimiserKind,
    pub(crate) learning_rate: f64,
    pub(crate) schedule: Schedule,
    pub(crate) momentum: f64,
    pub(crate) weight_decay: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) clip: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) augment: Option<Augment>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) copies: Option<usize>,
    pub(crate) validation: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) validate_every: Option<u32>,
    pub(crate) filler_share: f64,
    pub(crate) seed: u64,
    pub(crate) out: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) json: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) run: Option<PathBuf>,
    pub(crate) checkpoint_every: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) checkpoint_steps: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cluster: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) executors: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) consistency: Option<Consistency>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) filters: Option<FilterSpec>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            model: PathBuf::new(),
            deployed: None,
            input: None,
            output: None,
            input_scale: 1.0,
            input_mean: Vec::new(),
            data: PathBuf::new(),
            cache: None,
            k: 2,
            r: 1,
            row: None,
            encoder: EncoderKind::Concat,
            generator: None,
            transform: TransformChoice::Auto,
            trial_share: 0.15,
            network: None,
            decoder_network: None,
            loss: None,
            normalise: true,
            cell_targets: true,
            start: None,
            steps: 4000,
            batch: 64,
            optimiser: OptimiserKind::AdamW,
            learning_rate: 3e-3,
            schedule: Schedule::Cosine,
            momentum: 0.9,
            weight_decay: 1e-2,
            clip: None,
            augment: None,
            copies: None,
            validation: 0.1,
            validate_every: None,
            filler_share: 0.0,
            seed: 0,
            out: PathBuf::new(),
            name: None,
            json: None,
            run: None,
            checkpoint_every: 60.0,
            checkpoint_steps: None,
            cluster: None,
            executors: None,
            consistency: None,
            filters: None,
        }
    }
}

impl Checked for Settings {
    fn check(&self) -> Result<(), SetupError> {
        needed(&[
            ("model", &self.model),
            ("data", &self.data),
            ("out", &self.out),
        ])?;
        for name in [&self.name, &self.deployed].into_iter().flatten() {
            crate::command::model_name(name)
                .map_err(|problem| SetupError::config(None, &format!("{name:?}: {problem}")))?;
        }
        if self.is_learned() {
            if self.row.is_some() {
                let problem = "a learned code has one encoder for all rows; leave it out";
                return Err(SetupError::Misplaced {
                    name: "row",
                    problem,
                });
            }
            if self.start.is_some() {
                let problem = "a learned code's networks begin afresh; leave it out";
                return Err(SetupError::Misplaced {
                    name: "start",
                    problem,
                });
            }
        } else {
            let problem = "only a learned code has it; leave it out, or set encoder = \"learned\"";
            if self.decoder_network.is_some() {
                return Err(SetupError::Misplaced {
                    name: "decoder-network",
                    problem,
                });
            }
            if self.loss.is_some() {
                return Err(SetupError::Misplaced {
                    name: "loss",
                    problem,
                });
            }
        }
        if !self.batch.is_multiple_of(self.executors() as u32) {
            let problem =
                "a step's coding groups are dealt out to them evenly: give a divisor of --batch";
            return Err(SetupError::Misplaced {
                name: "executors",
                problem,
            });
        }
        if self.cluster.is_none() && self.filters.is_some_and(|filters| !filters.is_none()) {
            let problem = "they shorten messages on a cluster: leave it out, or give --cluster";
            return Err(SetupError::Misplaced {
                name: "filters",
                problem,
            });
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
            generator: self.generator.clone(),
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
