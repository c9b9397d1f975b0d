//! Errors of training runs.

use std::fmt::Display;
use std::io;
use std::path::Path;

pub(crate) type Result<T, E = TrainError> = std::result::Result<T, E>;

/// A run that cannot begin or go on. One line that names what is at fault, and the fix.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// Settings, data, a model or a network that cannot be used.
    #[error("{0}")]
    Input(String),
    #[error("interrupted; {0}")]
    Interrupted(&'static str),
    /// A failure of the machine.
    #[error("{0}")]
    Failed(String),
    #[error("{found} samples are too few: a coding group needs k = {k}")]
    TooFewSamples { found: usize, k: usize },
    #[error("training diverged at step {step} (the loss is not finite); lower --learning-rate")]
    Diverged { step: usize },
    #[error("the model's {0}")]
    Output(#[from] parapet_decoder::OutputError),
    #[error("cannot encode a group: {0}")]
    Encode(#[from] parapet_encoder::EncodeError),
    #[error("cannot decode a group: {0}")]
    Decode(#[from] parapet_decoder::DecodeError),
    #[error("libtorch failed: {0}")]
    Torch(#[from] tch::TchError),
    #[error("cannot export the network: {0}")]
    Export(#[from] parapet_onnx::BuildError),
    #[error("cannot update the parameters: {0}")]
    Backend(#[from] crate::backend::BackendError),
    #[error(transparent)]
    Cluster(parapet_cluster::roles::ClusterError),
    #[error(transparent)]
    Code(#[from] parapet_encoder::CodeError),
    #[error(transparent)]
    Repository(#[from] parapet_config::FileError),
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

    /// The user's file or folder `path` cannot be used: `problem` says why, and the fix.
    pub fn input(path: &Path, problem: impl Display) -> Self {
        Self::Input(format!("{}: {problem}", path.display()))
    }

    pub fn write(path: &Path) -> impl Fn(io::Error) -> Self + use<'_> {
        |source| Self::Failed(format!("{}: cannot write: {source}", path.display()))
    }

    pub fn read(path: &Path) -> impl Fn(io::Error) -> Self + use<'_> {
        |source| Self::Failed(format!("{}: cannot read: {source}", path.display()))
    }

    pub fn first_line(&self) -> String {
        first_line(self)
    }

    /// Returns true if the user's input is at fault, and not the machine or the program.
    pub fn is_input(&self) -> bool {
        matches!(
            self,
            Self::Input(_)
                | Self::Code(_)
                | Self::Repository(_)
                | Self::TooFewSamples { .. }
                | Self::Output(_)
        )
    }
}

/// The first line of what a library says, which says it all: libtorch's goes on with a stack trace.
pub(crate) fn first_line(error: &impl Display) -> String {
    error.to_string().trim().lines().next().unwrap_or_default().trim().to_owned()
}
