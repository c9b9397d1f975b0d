//! The flags of `train`, and the TOML file that can stand for them.

use std::path::PathBuf;
use std::str::FromStr;

use parapet_cluster::array::FilterSpec;
use parapet_encoder::EncoderKind;
use parapet_parameter_server::Consistency;
use parity_trainer::backend::Schedule;
use parity_trainer::data::Augment;
use parity_trainer::network::NetworkSpec;
use parity_trainer::{Loss, TransformChoice};
use serde::Serialize;

use crate::command::model_name;
use crate::command::settings::{Flags, RunOptions, optional_network};

/// Arguments of `train`.
pub(crate) type Args = Flags<Options>;

/// Options of the command; a setting's name in the file is the flag's.
#[derive(Debug, Clone, Default, clap::Args, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Options {
    /// The deployed model: an .onnx file, a TorchScript file (.pt, .pth, .ts), or REPOSITORY/NAME
    #[arg(long, value_name = "MODEL")]
    model: Option<PathBuf>,
    /// Its name where it is deployed [default: the entry's or the file's]
    #[arg(long, value_name = "NAME", value_parser = model_name)]
    deployed: Option<String>,
    /// The input to feed, of a model with several
    #[arg(long, value_name = "TENSOR")]
    input: Option<String>,
    /// The output to learn, of a model with several
    #[arg(long, value_name = "TENSOR")]
    output: Option<String>,
    /// Factor of samples, the mean subtracted, for a model that wants other ranges than 0 to
    /// 1 [default: 1]
    #[arg(long, value_name = "FACTOR")]
    input_scale: Option<f64>,
    /// Mean that is subtracted from samples first: one value, or one for each channel
    #[arg(
        long,
        value_name = "MEAN,..",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    input_mean: Option<Vec<f64>>,
    /// Data like those that the deployed model is asked about; labels play no part in the training
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// Where the deployed model's outputs are kept for the next run [default: .cache in the
    /// repository]
    #[arg(long, value_name = "FOLDER")]
    cache: Option<PathBuf>,
    /// Queries in a coding group [default: 2]
    #[arg(long)]
    k: Option<usize>,
    /// Parity models of a coding group; each is trained, and named NAME-0, NAME-1 .. [default: 1]
    #[arg(long)]
    r: Option<usize>,
    /// Train this parity row only, from 0
    #[arg(long)]
    row: Option<usize>,
    /// Way in which the queries of a group are combined: `sum` (any samples), `concat` (images), or
    /// `learned` (any samples: an encoder and a decoder are trained, and the deployed model answers
    /// the parity queries) [default: concat]
    #[arg(long, value_parser = encoder_kind)]
    encoder: Option<EncoderKind>,
    /// Coefficients of the weighted sum, a row for each parity model: `1,1;1,-0.5` [default: a
    /// table of well-conditioned ones]
    #[arg(long, value_name = "A,B,..;..", allow_hyphen_values = true)]
    generator: Option<Generator>,
    /// The domain in which predictions are added, or in which a learned decoder takes and gives
    /// them; auto tries each that fits [default: auto]
    #[arg(long)]
    transform: Option<TransformChoice>,
    /// Steps of all of auto's trials together, as a part of --steps [default: 0.15]
    #[arg(long, value_name = "PART")]
    trial_share: Option<f64>,
    /// `lenet`, `resnet8`, `resnet14`, `resnet20`, `resnet18`, `vgg11` (each `:WIDTH`),
    /// `mlp:INPUTS,HIDDEN,..`, or `cells:ROWSxCOLUMNS:NETWORK` with the grid of the concatenation:
    /// 1x2 for k = 2, 2x2 for k = 3 and 4 [default: the deployed model's where it is known]. A
    /// learned code's encoder: `mlp:INPUTS,HIDDEN,..` of k samples' values, or `dilated:CHANNELS`
    /// for images [default: an MLP with one hidden layer as long as its input]
    #[arg(long)]
    #[serde(serialize_with = "optional_network::serialize")]
    network: Option<NetworkSpec>,
    /// The network of a learned code's decoder, of (k + r) times the model's outputs to k times
    /// [default: `mlp:` with hidden layers of (k + r) and k times the model's outputs]
    #[arg(long)]
    #[serde(serialize_with = "optional_network::serialize")]
    decoder_network: Option<NetworkSpec>,
    /// Loss of a learned code's training [default: the better of mse and kl in short trials]
    #[arg(long)]
    loss: Option<Loss>,
    /// Scale what the network takes by its mean and deviation [default: true]
    #[arg(long, value_name = "BOOL")]
    normalise: Option<bool>,
    /// True if a network of cells learns each cell's part of the sum, and not only the sum
    /// [default: true]
    #[arg(long, value_name = "BOOL")]
    cell_targets: Option<bool>,
    /// Weights to begin with: an entry of this trainer whose network is the same, or that of one
    /// cell [default: fresh ones]
    #[arg(long, value_name = "REPOSITORY/NAME")]
    start: Option<PathBuf>,
    /// Optimiser steps [default: 4000]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    steps: Option<u32>,
    /// Coding groups a step [default: 64]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    batch: Option<u32>,
    /// Optimiser [default: adamw]
    #[arg(long)]
    optimiser: Option<super::settings::OptimiserKind>,
    /// Peak learning rate [default: 0.003]
    #[arg(long)]
    learning_rate: Option<f64>,
    /// Schedule of the learning rate [default: cosine]
    #[arg(long)]
    schedule: Option<Schedule>,
    /// Momentum of sgd [default: 0.9]
    #[arg(long)]
    momentum: Option<f64>,
    /// Weight decay [default: 0.01]
    #[arg(long)]
    weight_decay: Option<f64>,
    /// Longest gradient; longer ones are scaled down to it [default: any]
    #[arg(long, value_name = "NORM")]
    clip: Option<f64>,
    /// Augmentation of images: `none`, or some of `shift` or `crop`, `flip` and `cutout`, such as
    /// `crop+flip` [default: shift for images]
    #[arg(long)]
    augment: Option<Augment>,
    /// Variants of each sample to learn from, besides itself [default: enough for 20,000 samples]
    #[arg(long)]
    copies: Option<usize>,
    /// Part of the training samples that the best weights and the transform are chosen by [default:
    /// 0.1]
    #[arg(long, value_name = "PART")]
    validation: Option<f64>,
    /// Steps from one validation to the next [default: a twentieth of --steps]
    #[arg(long, value_name = "STEPS")]
    validate_every: Option<u32>,
    /// Part of the groups that end in repeated known queries, as a frontend completes groups in a
    /// lull [default: 0]
    #[arg(long, value_name = "PART")]
    filler_share: Option<f64>,
    /// Seed of everything random [default: 0]
    #[arg(long, value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    seed: Option<u64>,
    /// The model repository
    #[arg(long, value_name = "REPOSITORY")]
    out: Option<PathBuf>,
    /// Name of the new entry; one of that name is replaced [default: the deployed model's and
    /// `-parity`]
    #[arg(long, value_parser = model_name)]
    name: Option<String>,
    /// Write the evaluation here too, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    #[serde(flatten)]
    run: RunOptions,
    /// Train on this cluster of parameter servers, with all its workers: `parapet://HOST:PORT` or
    /// `etcd://HOST:PORT/CLUSTER` [default: a parameter server inside this process]
    #[arg(long, value_name = "REGISTRY")]
    cluster: Option<String>,
    /// Parts that each step is cut into on a cluster, more than it has processes; 1 for the very
    /// weights of a run without a cluster [default: 4]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    executors: Option<u32>,
    /// Consistency model, a bound on the staleness of parameters: `bsp`, nothing;
    /// `bounded-delay:STEPS`, `ssp:STEPS` or `eager-ssp:STEPS`, so many; `eventual`, any. Under all
    /// but bsp a slow process delays the others only once it is as far behind, each part of a step
    /// is an update of its own, and the model is another one each time, unless one process with one
    /// part makes it [default: bsp]
    #[arg(long, value_name = "MODEL")]
    consistency: Option<Consistency>,
    /// Filters of messages on a cluster: `lz4`; `bf16` or `f16`, for gradients, where what rounding
    /// leaves is added to later ones; or `lz4` and one of these, such as `lz4,bf16`. With lz4 alone
    /// the weights keep their very bits [default: none]
    #[arg(long, value_name = "FILTER,..")]
    filters: Option<FilterSpec>,
}

/// Rows of coefficients, as a flag has them.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
struct Generator(Vec<Vec<f32>>);

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
