//! Errors of a model repository.

use std::io;
use std::path::{Path, PathBuf};

/// A repository, model or version that cannot be used. The message is one line that names the file,
/// the field and the fix. A retry is of no use before the files have changed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum RepositoryError {
    /// The repository's folder is not there.
    #[error("{}: not a folder; give the folder that holds the models", path.display())]
    NoRepository { path: PathBuf },
    /// The repository has no such model.
    #[error(
        "{}: no model {name:?}, there is {}; add {name}/model.toml or name another",
        repository.display(),
        listing(available)
    )]
    NoModel {
        repository: PathBuf,
        /// The model asked for.
        name: String,
        /// The models that are there.
        available: Vec<String>,
    },
    /// The model has no such version.
    #[error("{}: no version {version}, there is {}", folder.display(), listing(available))]
    NoVersion {
        folder: PathBuf,
        /// The version asked for.
        version: u64,
        /// The versions that are there.
        available: Vec<u64>,
    },
    /// A name that cannot name a folder.
    #[error(
        "model name {name:?}: use letters, digits, '-', '_' and '.', and begin with a letter or \
            digit"
    )]
    Name { name: String },
    /// The system refused to read or write.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        source: io::Error,
    },
    /// Not TOML, or a field is unknown, missing or of the wrong type.
    #[error("{}: {source}", path.display())]
    Toml {
        path: PathBuf,
        source: crate::toml_file::Mistake,
    },
    /// The metadata cannot be written as TOML.
    #[error("{}: cannot be written as TOML: {source}", path.display())]
    Unwritable {
        path: PathBuf,
        source: Box<toml::ser::Error>,
    },
    /// A field's value makes no sense.
    #[error("{}: {field}: {problem}; {fix}", path.display())]
    Field {
        /// The file or folder.
        path: PathBuf,
        /// The field, as a dotted path.
        field: String,
        problem: String,
        fix: String,
    },
    /// The calibration of a parity model's reconstructions is invalid.
    #[error("{}: {source}", path.display())]
    Calibration {
        path: PathBuf,
        source: parapet_decoder::CalibrationError,
    },
    /// The code of a parity model is invalid.
    #[error("{}: code: {source}", path.display())]
    Code {
        path: PathBuf,
        source: parapet_encoder::CodeError,
    },
}

impl RepositoryError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }
}

fn listing<T: ToString>(items: &[T]) -> String {
    match items {
        [] => "none".to_owned(),
        items => items
            .iter()
            .map(T::to_string)
            .collect::<Vec<_>>()
            .join(", "),
    }
}
