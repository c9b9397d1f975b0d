//! Errors of training runs.

use std::io;
use std::path::{Path, PathBuf};

use crate::network::NetworkError;

/// A run that cannot begin or go on. One line that names what is at fault, and the fix.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// Settings or input that cannot be used.
    #[error("{0}")]
    Input(String),
    #[error("interrupted; {0}")]
    Interrupted(&'static str),
    #[error("{0}")]
    Failed(String),
    #[error("{}: cannot write: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("--row {row}: the code has rows 0 to {last} (r = {r})")]
    Row { row: usize, last: usize, r: usize },
    #[error("{found} samples are too few: a coding group needs k = {k}")]
    TooFewSamples { found: usize, k: usize },
    #[error("training diverged at step {step} (the loss is not finite); lower --learning-rate")]
    Diverged { step: usize },
    #[error(
        "the model's output has {0}, but models are judged by the top class of one axis of class \
            scores"
    )]
    NoClasses(#[from] parapet_decoder::NotClassScores),
    #[error("cannot encode a group: {0}")]
    Encode(#[from] parapet_encoder::EncodeError),
    #[error("cannot decode a group: {0}")]
    Decode(#[from] parapet_decoder::DecodeError),
    #[error("cannot update the parameters: {0}")]
    Backend(#[from] crate::backend::BackendError),
    #[error(transparent)]
    Cluster(parapet_cluster::roles::command::CommandError),
    #[error(transparent)]
    Code(#[from] parapet_encoder::CodeError),
    #[error(transparent)]
    Data(#[from] crate::data::DataError),
    #[error(transparent)]
    Deployed(#[from] crate::deployed::DeployedError),
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error(transparent)]
    Repository(#[from] parapet_config::repository::RepositoryError),
    #[error(transparent)]
    Run(#[from] crate::run::RunError),
    #[error(transparent)]
    Runtime(#[from] parapet_onnx::runtime::RuntimeError),
}

impl TrainError {
    /// A mistake in the file of settings at `place`, or on the command line.
    pub fn settings(place: Option<&Path>, problem: &str) -> Self {
        let place = place.map_or("the command line".into(), Path::to_string_lossy);
        let problem: Vec<&str> = problem.split_whitespace().collect();
        Self::Input(format!("{place}: {}", problem.join(" ")))
    }

    /// Makes the error of a file that cannot be written.
    pub fn write(path: &Path) -> impl Fn(io::Error) -> Self + use<'_> {
        |source| Self::Write {
            path: path.to_path_buf(),
            source,
        }
    }

    /// Returns true if the user's input is at fault, and not the machine or the program.
    pub fn is_input(&self) -> bool {
        match self {
            Self::Input(_) | Self::Row { .. } | Self::TooFewSamples { .. } => true,
            Self::NoClasses(_) | Self::Code(_) | Self::Data(_) | Self::Repository(_) => true,
            Self::Deployed(error) => error.is_input(),
            Self::Run(error) => error.is_input(),
            Self::Network(error) => matches!(
                error,
                NetworkError::Name { .. }
                    | NetworkError::Input { .. }
                    | NetworkError::Output { .. }
                    | NetworkError::NoOnnx { .. }
                    | NetworkError::Load { .. }
                    | NetworkError::Missing { .. }
                    | NetworkError::Start { .. }
                    | NetworkError::Script { .. }
            ),
            _ => false,
        }
    }
}
