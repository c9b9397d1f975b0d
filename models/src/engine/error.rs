//! Models that cannot be loaded.

use std::path::PathBuf;

use parapet_config::repository::RepositoryError;

/// A model that cannot be loaded; stops start-up.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The repository has no such version.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    /// ONNX Runtime does not take the file.
    #[error("{}: not a model that ONNX Runtime can run: {reason}; export it again", file.display())]
    Unusable { file: PathBuf, reason: String },
    /// `model.toml` does not describe the graph.
    #[error("{}: {field}: {problem}; {fix}", file.display())]
    Mismatch {
        /// The `model.toml`.
        file: PathBuf,
        field: String,
        problem: String,
        fix: String,
    },
    /// libtorch does not take the file.
    #[error(
        "{}: not a TorchScript module that libtorch can run: {reason}; save it again with \
            torch.jit",
        file.display()
    )]
    Script { file: PathBuf, reason: String },
    #[error(
        "{}: a learned code, which the frontend runs; serve the deployed model instead",
        file.display()
    )]
    LearnedCode {
        /// The `model.toml`.
        file: PathBuf,
    },
    /// A TorchScript module, but no libtorch.
    #[error(
        "{}: platform: this instance is built without TorchScript; build parapet-instance with \
            the feature `torch` \
         (cargo build -p parapet-models --features torch) or export the model as ONNX",
        file.display()
    )]
    NoTorch {
        /// The `model.toml`.
        file: PathBuf,
    },
}
