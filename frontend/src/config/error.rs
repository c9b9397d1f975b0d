//! Mistakes in a configuration, each in one line.

use std::path::PathBuf;

use parapet_config::FileError;
use parapet_config::repository::RepositoryError;
use parapet_config::toml_file::Mistake;
use parapet_encoder::CodeError;
use parapet_onnx::runtime::RuntimeError;
use thiserror::Error;

/// Reason why a configuration cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    #[error(
        "{}: cannot read the configuration: {source}; give its path with --config",
        path.display()
    )]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{}: {source}", path.display())]
    Toml { path: PathBuf, source: Mistake },
    #[error("{}: {field}: {problem}; {fix}", path.display())]
    Field {
        path: PathBuf,
        field: String,
        problem: String,
        fix: String,
    },
    #[error("{}: {field}: {source}", path.display())]
    Repository {
        path: PathBuf,
        field: String,
        source: Box<RepositoryError>,
    },
    #[error("{}: {field}: {source}", path.display())]
    LearnedCode {
        path: PathBuf,
        field: String,
        source: Box<FileError>,
    },
    #[error("{}: {field}: \"learned\" needs ONNX Runtime: {source}", path.display())]
    OnnxRuntime {
        path: PathBuf,
        field: String,
        source: Box<RuntimeError>,
    },
    #[error("{}: {field}: {source}", path.display())]
    Code {
        path: PathBuf,
        field: String,
        source: Box<CodeError>,
    },
}
