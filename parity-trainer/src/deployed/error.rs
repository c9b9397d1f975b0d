//! Errors of deployed models.

use std::path::PathBuf;

use parapet_config::repository::RepositoryError;
use parapet_decoder::NotClassScores;
use parapet_onnx::runtime::RuntimeError;

/// A deployed model that cannot be learned from. One line that names the file, what is wrong
/// and the fix.
#[derive(Debug, thiserror::Error)]
pub enum DeployedError {
    #[error(
        "{}: no such model; give an .onnx file, a TorchScript .pt file or REPOSITORY/NAME",
        path.display()
    )]
    Missing { path: PathBuf },
    #[error("{}: what model is this? --model takes .onnx, TorchScript (.pt, .pth, .ts) or \
        REPOSITORY/NAME", path.display())]
    Kind { path: PathBuf },
    #[error(
        "{}: a folder without model.toml; give REPOSITORY/NAME or the model's file",
        path.display()
    )]
    NotEntry { path: PathBuf },
    #[error("{}: is a parity model; --model wants the deployed one", path.display())]
    ParityModel { path: PathBuf },
    #[error("{}: its model.toml has no [code]; --parity wants parity models", path.display())]
    NotParity { path: PathBuf },
    #[error(
        "{}: {reason}, and gradients cannot flow through ONNX Runtime, as a learned code needs; \
            give the model as TorchScript (.pt), or use another encoder",
        path.display()
    )]
    NoGradient { path: PathBuf, reason: String },
    #[error("{reason}")]
    LearnedCode { reason: String },
    #[error("{}: {runtime} cannot use it: {reason}; export the model again", path.display())]
    Unusable {
        path: PathBuf,
        runtime: &'static str,
        reason: String,
    },
    #[error(
        "{}: has {} {side}s: {}; name one with --{side}",
        path.display(),
        names.len(),
        names.join(", ")
    )]
    Ambiguous {
        path: PathBuf,
        /// `input` or `output`.
        side: &'static str,
        names: Vec<String>,
    },
    #[error("{}: has no {side} `{wanted}`; --{side} can be: {}", path.display(), names.join(", "))]
    NoTensor {
        path: PathBuf,
        /// `input` or `output`.
        side: &'static str,
        wanted: String,
        names: Vec<String>,
    },
    #[error("{}: its {side} `{name}` is of type {datatype}; only 32-bit floats can be coded, \
        export it with them", path.display())]
    Datatype {
        path: PathBuf,
        /// `input` or `output`.
        side: &'static str,
        name: String,
        datatype: String,
    },
    #[error(
        "{}: its batch axis is fixed at {batch}; export it with a dynamic batch axis",
        path.display()
    )]
    FixedBatch { path: PathBuf, batch: i64 },
    #[error("{}: the model takes samples of shape {model}, the data's have {data:?}; give it data \
        of its shape", path.display())]
    Shape {
        path: PathBuf,
        /// The model's shape, `?` for a free axis.
        model: String,
        data: Vec<usize>,
    },
    #[error("{}: the model failed on samples of shape {shape:?}: {reason}", path.display())]
    Run {
        path: PathBuf,
        shape: Vec<usize>,
        reason: String,
    },
    #[error("{}: gave outputs of shape {got:?} for {samples} samples, expected {samples} rows of \
        {width}", path.display())]
    Output {
        path: PathBuf,
        got: Vec<i64>,
        samples: usize,
        /// Outputs of a sample, as far as they are known.
        width: String,
    },
    #[error(
        "{}: its output has {source}, but training and evaluation go by the top class; give a \
            model whose output is one axis of two or more class scores, or name another with \
            --output",
        path.display()
    )]
    NoClasses {
        path: PathBuf,
        source: NotClassScores,
    },
    #[error(
        "{}: answers sample {sample} with {value}; check --input-scale and --input-mean, or the \
            model's export",
        path.display()
    )]
    NotFinite {
        path: PathBuf,
        sample: usize,
        value: f32,
    },
    #[error("--input-{flag}: {problem}")]
    Scaling {
        /// `scale` or `mean`.
        flag: &'static str,
        problem: String,
    },
    #[error("{}: cannot read: {source}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(
        "{}: cannot write the cached outputs: {source}; free some space, or give --cache another folder",
        path.display()
    )]
    Cache {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Repository(#[from] RepositoryError),
}

impl DeployedError {
    /// Returns true if the user's input is at fault, and not the machine or the program.
    pub fn is_input(&self) -> bool {
        !matches!(
            self,
            Self::Read { .. } | Self::Cache { .. } | Self::Runtime(_)
        )
    }
}

/// The first line of what a library says; the rest is its stack.
pub(super) fn one_line(error: &impl std::fmt::Display) -> String {
    error
        .to_string()
        .lines()
        .next()
        .unwrap_or_default()
        .trim()
        .to_owned()
}
