//! Flags and settings of `train`, with their defaults.

use std::path::PathBuf;

use parapet_cluster::array::FilterSpec;
use parapet_cluster::roles::training::Deal;
use parapet_decoder::OutputSpec;
use parapet_encoder::{CodeSpec, EncoderKind};
use parapet_parameter_server::Consistency;
use parity_trainer::backend::{OptimiserConfig, OptimiserSpec, Schedule};
use parity_trainer::deployed::InputScaling;
use parity_trainer::run::RunFolder;
use parity_trainer::{Loss, TrainError, TransformChoice, VALIDATION_SAMPLES, ensure};
use serde::{Deserialize, Serialize};

use super::generator::Generator;
use crate::command::settings::{
    Checked, Common, Flags, LEARNING_RATE, digest, model_name, names, needed, network, path, range,
};

/// Parts of a step on a cluster, at most, unless `--executors` says otherwise: four for each of four
/// processes, so that slow ones can be given fewer.
const EXECUTORS: u32 = 16;
/// The least groups in such a part: batch norm works on each part by itself.
const PART: u32 = 8;
/// Steps of a run that has no time limit, unless `--steps` says otherwise.
const STEPS: u32 = 4000;
/// Share of a query's time, and minutes of training, for a stack's network, unless `--max-cost` and
/// `--minutes` say otherwise.
const MAX_COST: f64 = 0.95;
const MINUTES: f64 = 10.0;
/// Validations of a run, unless `--validate-every` says otherwise.
const VALIDATIONS: u64 = 20;

pub(crate) type Args = Flags<Settings>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lowercase")]
pub(crate) enum OptimiserKind {
    /// Adam; weight decay is added to the gradient
    Adam,
    /// Adam; weight decay shrinks the weights
    AdamW,
    /// Gradient descent with momentum
    Sgd,
}

/// Settings of `train`: its flags, the TOML file that can stand for them, `config.toml` of a run.
#[derive(Debug, Clone, PartialEq, clap::Args, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Settings {
    /// The deployed model: an .onnx file, a TorchScript file (.pt, .pth, .ts), or REPOSITORY/NAME
    #[arg(long, value_name = "MODEL", default_value = "")]
    #[arg(hide_default_value = true, value_parser = path())]
    pub(super) model: PathBuf,
    /// Its name where it is deployed [default: the entry's or the file's]
    #[arg(long, value_name = "NAME", value_parser = model_name)]
    pub(super) deployed: Option<String>,
    /// The input to feed, of a model with several
    #[arg(long, value_name = "TENSOR")]
    pub(super) input: Option<String>,
    /// The output to learn, of a model with several
    #[arg(long, value_name = "TENSOR")]
    pub(super) output: Option<String>,
    /// Its kind, by which agreement is measured: classes, multi_label, regression, embedding, boxes
    /// or map; and the largest error that agrees [default: the entry's, or classes]
    #[arg(long, value_name = "KIND[:TOLERANCE]")]
    pub(super) output_kind: Option<OutputSpec>,
    /// Factor of samples, the mean subtracted, for a model that wants other ranges than 0 to 1
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    input_scale: f64,
    /// Mean that is subtracted from samples first: one value, or one for each channel
    #[arg(long, value_name = "MEAN,..", value_delimiter = ',', allow_hyphen_values = true)]
    input_mean: Vec<f64>,
    #[command(flatten)]
    #[serde(flatten)]
    pub(super) common: Common,
    /// Where the deployed model's outputs are kept [default: .cache in the repository]
    #[arg(long, value_name = "FOLDER")]
    cache: Option<PathBuf>,
    /// Queries in a coding group
    #[arg(long, default_value_t = 2)]
    pub(super) k: usize,
    /// Parity models of a coding group; each is trained, and named NAME-0, NAME-1 ..
    #[arg(long, default_value_t = 1)]
    pub(super) r: usize,
    /// Way in which the queries of a group are combined: `stack` (any samples: the parity model
    /// answers for each of them in a slot of its own), `sum` (any samples), `concat` (images), or
    /// `learned` (any samples: an encoder and a decoder are trained, and the deployed model answers
    /// the parity queries)
    #[arg(long, value_parser = encoder_kind, default_value = "stack")]
    encoder: EncoderKind,
    /// Coefficients of the weighted sum, a row for each parity model: `1,1;1,-0.5` [default: a
    /// table of well-conditioned ones]
    #[arg(long, value_name = "A,B,..;..", allow_hyphen_values = true)]
    generator: Option<Generator>,
    /// The domain in which predictions are added, or in which a learned decoder takes and gives
    /// them; auto tries each that fits
    #[arg(long, default_value = "auto")]
    pub(super) transform: TransformChoice,
    /// Steps of all of auto's trials together, as a part of --steps
    #[arg(long, value_name = "PART", default_value_t = 0.15)]
    pub(super) trial_share: f64,
    /// `lenet`, `resnet6`, `resnet8`, `resnet8-strided`, `resnet14`, `resnet20`, `resnet18`,
    /// `vgg11` (each `:WIDTH`), or `mlp:INPUTS,HIDDEN,..`; for sequences `sequence6`, `sequence8`,
    /// `sequence8-strided`, `sequence14` [default: the deployed model's where it is known; for
    /// `stack` the best in short trials within --max-cost]. A learned code's encoder: `mlp:..` of k
    /// samples' values, or `dilated:CHANNELS` for images [default: an MLP with one hidden layer]
    #[arg(long, value_parser = network)]
    pub(super) network: Option<String>,
    /// Time of a parity query, over that of a query, that a network for `stack` may take, measured
    /// here on one thread [default: 0.95]
    #[arg(long, value_name = "RATIO")]
    max_cost: Option<f64>,
    /// Lengths that sequences are padded to [default: quarters of the samples', and the data's]
    #[arg(long, value_name = "STEPS,..", value_delimiter = ',')]
    pub(super) padding: Option<Vec<usize>>,
    /// Write the network of a slot, too, as a model for single queries: an approximate backup
    #[arg(long, value_name = "NAME", value_parser = model_name)]
    pub(super) student: Option<String>,
    /// The network of a learned code's decoder, of (k + r) times the model's outputs to k times
    /// [default: `mlp:` with hidden layers of (k + r) and k times the model's outputs]
    #[arg(long, value_parser = network)]
    pub(super) decoder_network: Option<String>,
    /// Loss of a stack's or a learned code's training [default: kl for a stack; of a learned code
    /// the better of mse and kl in short trials]
    #[arg(long)]
    pub(super) loss: Option<Loss>,
    /// Trainings side by side, of seeds from --seed on; the best by validation is kept [default: 1]
    #[arg(long)]
    pub(super) seeds: Option<u32>,
    /// Optimiser steps [default: 4000; for `stack` as many as --minutes have, 50000 at most]
    #[arg(long)]
    pub(super) steps: Option<u32>,
    /// Minutes that a stack's training may take here, where --steps are not given [default: 10]
    #[arg(long)]
    minutes: Option<f64>,
    /// Optimiser
    #[arg(long, default_value = "adamw")]
    optimiser: OptimiserKind,
    /// Schedule of the learning rate
    #[arg(long, default_value = "cosine")]
    schedule: Schedule,
    /// Momentum of sgd
    #[arg(long, default_value_t = 0.9)]
    momentum: f64,
    /// Longest gradient; longer ones are scaled down to it [default: any]
    #[arg(long, value_name = "NORM")]
    clip: Option<f64>,
    /// Part of the training samples that the best weights and the transform are chosen by
    #[arg(long, value_name = "PART", default_value_t = 0.1)]
    pub(super) validation: f64,
    /// Steps from one validation to the next [default: a twentieth of --steps]
    #[arg(long, value_name = "STEPS")]
    pub(super) validate_every: Option<u32>,
    /// Train on this cluster of parameter servers, with all its workers: `parapet://HOST:PORT` or
    /// `etcd://HOST:PORT/CLUSTER` [default: a parameter server's store in this process]
    #[arg(long, value_name = "REGISTRY")]
    pub(super) cluster: Option<String>,
    /// Parts that each step is cut into on a cluster, some four for each process; 1 for the very
    /// weights of a run without a cluster [default: 16, or fewer of at least 8 groups]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    executors: Option<u32>,
    /// Dealing of the parts to processes: `by-pace`, fewer to slow ones, or `evenly` [default:
    /// by-pace]
    #[arg(long, value_enum)]
    pub(super) deal: Option<Deal>,
    /// Consistency model, a bound on the staleness of parameters: `bsp`, nothing;
    /// `bounded-delay:STEPS`, `ssp:STEPS` or `eager-ssp:STEPS`, so many; `eventual`, any. Under all
    /// but bsp a slow process delays the others only once it is as far behind, each part of a step
    /// is an update of its own, and the model is another one each time, unless one process with one
    /// part makes it [default: bsp]
    #[arg(long, value_name = "MODEL")]
    pub(super) consistency: Option<Consistency>,
    /// Filters of messages on a cluster: `lz4`; `bf16` or `f16`, for gradients, where what rounding
    /// leaves is added to later ones; or `lz4` and one of these, such as `lz4,bf16`. With lz4 alone
    /// the weights keep their very bits [default: none]
    #[arg(long, value_name = "FILTER,..")]
    pub(super) filters: Option<FilterSpec>,
    /// Sending gradients to a cluster while those of earlier layers are computed; with --clip they
    /// have to be there all first [default: true without --clip]
    #[arg(long, value_name = "BOOL")]
    wait_free: Option<bool>,
    /// Send a cluster gradients of fully connected layers as sufficient factors, and take updates
    /// as their sum, where these are fewer numbers: on networks of some hundred megabits per second
    #[arg(long)]
    #[serde(default)]
    pub(super) factors: bool,
    /// Say of each fully connected layer how much a step sends of it to a cluster, and as what
    #[arg(long)]
    #[serde(default)]
    pub(super) explain_communication: bool,
}

impl Checked for Settings {
    fn check(&self) -> Result<(), TrainError> {
        needed("model", &self.model)?;
        self.common.check()?;
        names(&self.deployed)?;
        names(&self.student)?;
        let (is_learned, is_alone) = (self.is_learned(), self.cluster.is_none());
        let whole_first = "--clip needs the whole gradient first; leave one of them out";
        let only_learned = "only a learned code has it; leave it out, or set encoder = \"learned\"";
        let only_stack = "only a stack has it; leave it out, or set encoder = \"stack\"";
        let only_cluster = "only a cluster has it; leave it out, or give --cluster";
        let uneven =
            "a step's coding groups are dealt out to them evenly: give a divisor of --batch";
        let is_uneven = !self.common.batch.is_multiple_of(self.executors());
        let filters = "they shorten messages on a cluster: leave it out, or give --cluster";
        let has_filters = self.filters.is_some_and(|filters| !filters.is_none());
        for (is_misplaced, name, problem) in [
            (!is_learned && self.decoder_network.is_some(), "decoder-network", only_learned),
            (
                !is_learned && !self.has_slots() && self.loss.is_some(),
                "loss",
                "a weighted sum is learned by its squared error; leave it out",
            ),
            (!self.has_slots() && self.max_cost.is_some(), "max-cost", only_stack),
            (!self.has_slots() && self.minutes.is_some(), "minutes", only_stack),
            (!self.has_slots() && self.student.is_some(), "student", only_stack),
            (is_uneven, "executors", uneven),
            (is_alone && has_filters, "filters", filters),
            (self.clip.is_some() && self.wait_free == Some(true), "wait-free", whole_first),
            (is_alone && self.wait_free.is_some(), "wait-free", only_cluster),
            (self.clip.is_some() && self.factors, "factors", whole_first),
            (is_alone && self.factors, "factors", only_cluster),
            (is_alone && self.explain_communication, "explain-communication", only_cluster),
            (
                self.cluster.is_some() && self.seeds() > 1,
                "seeds",
                "a cluster has one training at a time; leave one of them out",
            ),
        ] {
            ensure!(!is_misplaced, TrainError::Input(format!("--{name}: {problem}")));
        }
        let steps = f64::from(self.steps.unwrap_or(1));
        range("steps", steps, 1.0, f64::from(u32::MAX))?;
        range("minutes", self.minutes(), 0.01, 1e5)?;
        range("seeds", self.seeds().into(), 1.0, 64.0)?;
        range("trial-share", self.trial_share, 0.01, 1.0)?;
        range("max-cost", self.max_cost(), 0.01, 1e3)?;
        range("validation", self.validation, 0.01, 0.5)?;
        range("momentum", self.momentum, 0.0, 0.999_999)?;
        range("clip", self.clip.unwrap_or(1.0), 1e-12, 1e12)
    }
}

impl Settings {
    /// Parts of a step, which any process of a cluster may compute.
    pub(super) fn executors(&self) -> u32 {
        match self.cluster {
            Some(_) => self.executors.unwrap_or_else(|| {
                let batch = self.common.batch;
                let most = EXECUTORS.min(batch / PART).max(1);
                (1..=most).rev().find(|parts| batch.is_multiple_of(*parts)).unwrap_or(1)
            }),
            None => 1,
        }
    }

    /// True if a cluster is sent gradients while those of earlier layers are computed.
    pub(super) fn is_wait_free(&self) -> bool {
        self.wait_free.unwrap_or(self.clip.is_none())
    }

    /// Steps from one validation to the next in a run of so many. Those of a stack take a quarter
    /// of the steps' time at most: a step goes forward and back, a validation only forward.
    pub(super) fn validate_every(&self, steps: u64) -> u64 {
        let least = match self.has_slots() {
            true => (4 * VALIDATION_SAMPLES as u64).div_ceil(3 * u64::from(self.common.batch)),
            false => 1,
        };
        self.validate_every.map_or(steps.div_ceil(VALIDATIONS).max(least), u64::from)
    }

    pub(super) fn is_learned(&self) -> bool {
        self.encoder == EncoderKind::Learned
    }

    pub(super) fn max_cost(&self) -> f64 {
        self.max_cost.unwrap_or(MAX_COST)
    }

    pub(super) fn minutes(&self) -> f64 {
        self.minutes.unwrap_or(MINUTES)
    }

    /// Returns true if a parity model answers for each query in a slot of its own.
    pub(super) fn has_slots(&self) -> bool {
        self.encoder == EncoderKind::Stack
    }

    /// The code, adding outputs as they are.
    pub(super) fn code(&self) -> CodeSpec {
        CodeSpec {
            generator: self.generator.as_ref().map(|rows| rows.0.clone()),
            ..CodeSpec::new(self.encoder, self.k, self.r)
        }
    }

    pub(super) fn scaling(&self) -> InputScaling {
        InputScaling {
            scale: self.input_scale as f32,
            mean: self.input_mean.iter().map(|&mean| mean as f32).collect(),
        }
    }

    pub(super) fn cache(&self) -> PathBuf {
        self.cache.clone().unwrap_or_else(|| self.common.out.join(".cache"))
    }

    pub(super) fn rule(&self) -> OptimiserConfig {
        let weight_decay = self.common.weight_decay;
        let momentum = self.momentum;
        OptimiserConfig {
            optimiser: match self.optimiser {
                OptimiserKind::Adam => OptimiserSpec::Adam { weight_decay },
                OptimiserKind::AdamW => OptimiserSpec::AdamW { weight_decay },
                OptimiserKind::Sgd => OptimiserSpec::Sgd { momentum, weight_decay },
            },
            learning_rate: self.common.learning_rate.unwrap_or(LEARNING_RATE),
            schedule: self.schedule,
            steps: u64::from(self.steps.unwrap_or(STEPS)),
            clip: self.clip,
        }
    }

    pub(super) fn seeds(&self) -> u32 {
        self.seeds.unwrap_or(1)
    }

    /// The runs' folders of a code's rows in `folder`; a learned code has one run for all.
    pub(super) fn row_folders(&self, folder: &RunFolder) -> Vec<RunFolder> {
        match self.is_learned() || self.r == 1 {
            true => vec![folder.clone()],
            false => {
                (0..self.r).map(|row| RunFolder(folder.0.join(format!("row-{row}")))).collect()
            }
        }
    }

    /// The same with places that hold in another folder.
    pub(super) fn absolute(&self) -> Self {
        let mut settings = self.clone();
        settings.cache = Some(self.cache());
        let Self { model, cache, common, .. } = &mut settings;
        for place in [model, &mut common.data, &mut common.out].into_iter().chain(cache) {
            if let Ok(absolute) = std::path::absolute(&*place) {
                *place = absolute;
            }
        }
        settings
    }

    /// Digest of what decides how the training goes: settings but for places and names, and `rest`.
    pub(super) fn digest(&self, rest: &[&str]) -> Result<String, TrainError> {
        let bare = Self {
            model: PathBuf::new(),
            common: self.common.bare(),
            cache: None,
            deployed: None,
            student: None,
            cluster: None,
            seeds: None,
            ..self.clone()
        };
        digest(&bare, rest)
    }
}

fn encoder_kind(name: &str) -> Result<EncoderKind, String> {
    toml::Value::from(name).try_into().map_err(|error: toml::de::Error| error.message().to_owned())
}
