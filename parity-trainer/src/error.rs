//! What can go wrong in a training run.

use std::path::PathBuf;

use crate::data::DataError;
use crate::deployed::DeployedError;
use crate::network::NetworkError;

/// A run that cannot begin or go on.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The data cannot be used.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The deployed model cannot be learned from.
    #[error(transparent)]
    Deployed(#[from] DeployedError),
    /// A network cannot be built, loaded or saved.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The parameters cannot be had or updated.
    #[error("cannot update the parameters: {0}")]
    Backend(#[from] crate::backend::BackendError),
    /// The code cannot exist or does not fit the model's input.
    #[error(transparent)]
    Code(#[from] parapet_encoder::CodeError),
    /// There is no such parity row.
    #[error("--row {row}: the code has rows 0 to {last} (r = {r})")]
    Row {
        /// The row asked for.
        row: usize,
        /// The last row there is.
        last: usize,
        /// Rows of the code.
        r: usize,
    },
    /// A label that the model has no output for.
    #[error(
        "the data have {classes} classes, the model only {outputs} outputs; give it the data it was trained on"
    )]
    Classes {
        /// Classes of the data.
        classes: usize,
        /// Outputs of the model.
        outputs: usize,
    },
    /// Not enough samples for a coding group.
    #[error("{found} samples are too few: a coding group needs k = {k}")]
    TooFewSamples {
        /// Samples there are.
        found: usize,
        /// Queries in a group.
        k: usize,
    },
    /// Training ran away.
    #[error("training diverged at step {step} (the loss is not finite); lower --learning-rate")]
    Diverged {
        /// The step.
        step: usize,
    },
    /// The model repository cannot be read or written.
    #[error(transparent)]
    Repository(#[from] parapet_repository::RepositoryError),
    /// A file or folder cannot be written.
    #[error("{}: cannot write: {source}", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A group was put together wrongly.
    #[error("cannot encode a group: {0}")]
    Encode(#[from] parapet_encoder::EncodeError),
    /// A prediction could not be reconstructed.
    #[error("cannot decode a group: {0}")]
    Decode(#[from] parapet_decoder::DecodeError),
}

impl TrainError {
    /// Whether the user's input is at fault, and not the machine or the program.
    pub fn is_input(&self) -> bool {
        match self {
            Self::Data(_) | Self::Code(_) | Self::Row { .. } | Self::Classes { .. } => true,
            Self::TooFewSamples { .. } | Self::Repository(_) => true,
            Self::Deployed(error) => error.is_input(),
            Self::Network(error) => {
                matches!(
                    error,
                    NetworkError::Name { .. }
                        | NetworkError::Input { .. }
                        | NetworkError::Load { .. }
                        | NetworkError::Missing { .. }
                )
            }
            Self::Diverged { .. }
            | Self::Write { .. }
            | Self::Encode(_)
            | Self::Decode(_)
            | Self::Backend(_) => false,
        }
    }
}
