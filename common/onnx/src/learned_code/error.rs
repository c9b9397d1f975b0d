//! Learned codes that cannot be used.

use std::path::PathBuf;

use parapet_config::repository::RepositoryError;
use parapet_encoder::CodeError;

/// A learned code that cannot be loaded. One line that names the file, what is wrong and the fix.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum LearnedCodeError {
    /// An entry of another kind.
    #[error(
        "{}: is no learned code of one input and one output; name an entry with encoder = \
            \"learned\"",
        file.display()
    )]
    NotLearned {
        /// The `model.toml`, or the folder.
        file: PathBuf,
    },
    /// A file cannot be read.
    #[error("{}: cannot read: {source}", file.display())]
    Read {
        file: PathBuf,
        source: std::io::Error,
    },
    /// ONNX Runtime does not take the file.
    #[error(
        "{}: not a network that ONNX Runtime can run: {reason}; train the code again",
        file.display()
    )]
    Unusable { file: PathBuf, reason: String },
    /// The network's input or output has another size than the code's.
    #[error(
        "{}: its {side} has {found} values a sample, k, r and the shapes in model.toml make it \
            {wanted}; train the code again",
        file.display()
    )]
    Size {
        file: PathBuf,
        /// `input` or `output`.
        side: &'static str,
        found: String,
        wanted: usize,
    },
    /// The network breaks on zeros.
    #[error("{}: does not work: {reason}; train the code again", file.display())]
    Broken { file: PathBuf, reason: String },
    /// The code cannot exist, or its transform does not fit.
    #[error(transparent)]
    Code(#[from] CodeError),
    /// The repository has no such version.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
}
