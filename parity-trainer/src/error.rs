//! Errors of training runs.

use std::path::PathBuf;

use crate::data::DataError;
use crate::deployed::DeployedError;
use crate::network::NetworkError;

/// A run that cannot begin or go on.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    #[error(transparent)]
    Data(#[from] DataError),
    #[error(transparent)]
    Deployed(#[from] DeployedError),
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error("cannot update the parameters: {0}")]
    Backend(#[from] crate::backend::BackendError),
    #[error(transparent)]
    Cluster(parapet_cluster::roles::ClusterError),
    #[error(transparent)]
    Setup(#[from] SetupError),
    #[error(transparent)]
    Run(#[from] crate::run::RunError),
    #[error(transparent)]
    Code(#[from] parapet_encoder::CodeError),
    #[error("--row {row}: the code has rows 0 to {last} (r = {r})")]
    Row { row: usize, last: usize, r: usize },
    #[error(
        "the data have {classes} classes, the model only {outputs} outputs; give it the data it \
            was trained on"
    )]
    Classes { classes: usize, outputs: usize },
    #[error(
        "the model's output has {0}, but models are judged by the top class of one axis of class \
            scores"
    )]
    NoClasses(#[from] parapet_decoder::NotClassScores),
    #[error("{found} samples are too few: a coding group needs k = {k}")]
    TooFewSamples { found: usize, k: usize },
    #[error(transparent)]
    Runtime(#[from] parapet_onnx::runtime::RuntimeError),
    #[error("training diverged at step {step} (the loss is not finite); lower --learning-rate")]
    Diverged { step: usize },
    #[error(transparent)]
    Repository(#[from] parapet_config::repository::RepositoryError),
    #[error("{}: cannot write: {source}", path.display())]
    Write {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(
        "{}: cannot write the entry: {source}; make room, then the same command with --resume \
            writes it without training again",
        path.display()
    )]
    Entry {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{}: cannot read: {source}", path.display())]
    Report {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("cannot encode a group: {0}")]
    Encode(#[from] parapet_encoder::EncodeError),
    #[error("cannot decode a group: {0}")]
    Decode(#[from] parapet_decoder::DecodeError),
}

impl TrainError {
    /// Returns true if the user's input is at fault, and not the machine or the program.
    pub fn is_input(&self) -> bool {
        match self {
            Self::Data(_) | Self::Code(_) | Self::Row { .. } | Self::Classes { .. } => true,
            Self::TooFewSamples { .. } | Self::NoClasses(_) | Self::Repository(_) => true,
            Self::Setup(error) => error.is_input(),
            Self::Deployed(error) => error.is_input(),
            Self::Run(error) => error.is_input(),
            Self::Network(error) => {
                matches!(
                    error,
                    NetworkError::Name { .. }
                        | NetworkError::Input { .. }
                        | NetworkError::Output { .. }
                        | NetworkError::NoOnnx { .. }
                        | NetworkError::Load { .. }
                        | NetworkError::Missing { .. }
                        | NetworkError::Start { .. }
                        | NetworkError::Script { .. }
                )
            }
            Self::Diverged { .. }
            | Self::Write { .. }
            | Self::Entry { .. }
            | Self::Report { .. }
            | Self::Encode(_)
            | Self::Decode(_)
            | Self::Backend(_)
            | Self::Cluster(_)
            | Self::Runtime(_) => false,
        }
    }
}

/// Settings that cannot be used. One line that names the setting and the fix.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error("{}: cannot read: {source}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{place}: {problem}")]
    Config { place: String, problem: String },
    #[error("--{name} is needed, here or as `{name}` in the file that --config names")]
    Needed { name: &'static str },
    #[error(
        "--device {name}: libtorch sees {cards} such devices; give --device cpu, or set LIBTORCH \
            to a PyTorch with CUDA and build anew"
    )]
    Device { name: String, cards: i64 },
    #[error("--{name} {value}: out of range; give a number {range}")]
    Range {
        name: &'static str,
        value: f64,
        range: String,
    },
    #[error(
        "--parity: {first} and {second} are not rows of one code: {problem}; name the parity \
            models of one training"
    )]
    Codes {
        first: String,
        second: String,
        problem: &'static str,
    },
    #[error("--{name}: {problem}")]
    Misplaced {
        name: &'static str,
        problem: &'static str,
    },
    #[error("interrupted; {hint}")]
    Interrupted { hint: String },
    #[error("cannot run a command of this program: {source}")]
    Child { source: std::io::Error },
    #[error("failed: {rows}; RESULTS.md says how, the same command tries again")]
    Rows { rows: String },
    #[error("cannot listen for Ctrl-C: {source}")]
    Signal { source: std::io::Error },
}

impl SetupError {
    /// A mistake in the file of settings at `place`, or on the command line.
    pub fn config(place: Option<&std::path::Path>, problem: &str) -> Self {
        let place = place.map_or("the command line".to_owned(), |path| {
            path.display().to_string()
        });
        let problem = problem.split_whitespace().collect::<Vec<_>>().join(" ");
        Self::Config { place, problem }
    }

    /// Returns true if the user's input is at fault, and not the machine or the program.
    pub fn is_input(&self) -> bool {
        !matches!(
            self,
            Self::Interrupted { .. } | Self::Signal { .. } | Self::Child { .. } | Self::Rows { .. }
        )
    }
}
