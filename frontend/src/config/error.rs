//! Mistakes in a configuration, each in one line.

use std::path::PathBuf;

use parapet_config::repository::RepositoryError;
use parapet_config::toml_file::Mistake;
use parapet_encoder::CodeError;
use parapet_onnx::learned_code::LearnedCodeError;
use parapet_onnx::runtime::RuntimeError;
use thiserror::Error;

/// Reason why a configuration cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error(
        "{}: cannot read the configuration: {source}; give its path with --config",
        path.display()
    )]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    /// Not TOML, or a field is unknown, missing or of the wrong type.
    #[error("{}: {source}", path.display())]
    Toml { path: PathBuf, source: Mistake },
    /// A field whose value cannot be.
    #[error("{}: {field}: {problem}; {fix}", path.display())]
    Field {
        path: PathBuf,
        field: String,
        problem: String,
        fix: String,
    },
    /// An entry of the model repository that a field names is missing or broken.
    #[error("{}: {field}: {source}", path.display())]
    Repository {
        path: PathBuf,
        field: String,
        /// Error in the repository.
        source: Box<RepositoryError>,
    },
    /// The networks of a learned code cannot be used.
    #[error("{}: {field}: {source}", path.display())]
    LearnedCode {
        path: PathBuf,
        field: String,
        source: Box<LearnedCodeError>,
    },
    /// A learned code needs ONNX Runtime.
    #[error("{}: {field}: \"learned\" needs ONNX Runtime: {source}", path.display())]
    OnnxRuntime {
        path: PathBuf,
        field: String,
        /// Where it was looked for.
        source: Box<RuntimeError>,
    },
    /// A code that cannot be, or does not fit the model.
    #[error("{}: {field}: {source}", path.display())]
    Code {
        path: PathBuf,
        field: String,
        /// Error in the code.
        source: Box<CodeError>,
    },
}
