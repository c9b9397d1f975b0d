//! Mistakes in a configuration, each in one line.

use std::path::PathBuf;

use parapet_config::repository::RepositoryError;
use parapet_config::toml_file::Mistake;
use parapet_encoder::CodeError;
use parapet_onnx::learned_code::LearnedCodeError;
use parapet_onnx::runtime::RuntimeError;
use thiserror::Error;

/// Why a configuration cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: cannot read the configuration: {source}; give its path with --config", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Not TOML, or a field is unknown, missing or of the wrong type.
    #[error("{}: {source}", path.display())]
    Toml {
        /// The file.
        path: PathBuf,
        /// The mistake.
        source: Mistake,
    },
    /// A field whose value cannot be.
    #[error("{}: {field}: {problem}; {fix}", path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// The field.
        field: String,
        /// What is wrong.
        problem: String,
        /// What to do.
        fix: String,
    },
    /// What a field names in the model repository is missing or broken.
    #[error("{}: {field}: {source}", path.display())]
    Repository {
        /// The file.
        path: PathBuf,
        /// The field.
        field: String,
        /// What is wrong in the repository.
        source: Box<RepositoryError>,
    },
    /// The networks of a learned code cannot be used.
    #[error("{}: {field}: {source}", path.display())]
    LearnedCode {
        /// The file.
        path: PathBuf,
        /// The field.
        field: String,
        /// What is wrong with them.
        source: Box<LearnedCodeError>,
    },
    /// A learned code needs ONNX Runtime.
    #[error("{}: {field}: \"learned\" needs ONNX Runtime: {source}", path.display())]
    OnnxRuntime {
        /// The file.
        path: PathBuf,
        /// The field.
        field: String,
        /// Where it was looked for.
        source: Box<RuntimeError>,
    },
    /// A code that cannot be, or does not fit the model.
    #[error("{}: {field}: {source}", path.display())]
    Code {
        /// The file.
        path: PathBuf,
        /// The field.
        field: String,
        /// What is wrong with the code.
        source: Box<CodeError>,
    },
}
