//! What can be wrong with a model repository.

use std::io;
use std::path::{Path, PathBuf};

/// A repository, model or version that cannot be used; one line that names the file, the field and
/// the fix. Nothing is worth a retry before somebody has changed the files.
#[derive(Debug, thiserror::Error)]
pub enum RepositoryError {
    /// The repository's folder is not there.
    #[error("{}: not a folder; give the folder that holds the models", path.display())]
    NoRepository {
        /// The path given.
        path: PathBuf,
    },
    /// The repository has no such model.
    #[error("{}: no model {name:?}, there is {}; add {name}/model.toml or name another", repository.display(), listing(available))]
    NoModel {
        /// The repository.
        repository: PathBuf,
        /// The model asked for.
        name: String,
        /// The models that are there.
        available: Vec<String>,
    },
    /// The model has no such version.
    #[error("{}: no version {version}, there is {}", folder.display(), listing(available))]
    NoVersion {
        /// The model's folder.
        folder: PathBuf,
        /// The version asked for.
        version: u64,
        /// The versions that are there.
        available: Vec<u64>,
    },
    /// A name that cannot name a folder.
    #[error(
        "model name {name:?}: use letters, digits, '-', '_' and '.', and begin with a letter or digit"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// The system refused to read or write.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Not TOML, or a field is unknown, missing or of the wrong type.
    #[error("{}: {source}", path.display())]
    Toml {
        /// The file.
        path: PathBuf,
        /// The mistake.
        source: crate::toml_file::Mistake,
    },
    /// The metadata cannot be written as TOML.
    #[error("{}: cannot be written as TOML: {source}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: Box<toml::ser::Error>,
    },
    /// A field's value makes no sense.
    #[error("{}: {field}: {problem}; {fix}", path.display())]
    Field {
        /// The file or folder.
        path: PathBuf,
        /// The field, as a dotted path.
        field: String,
        /// What is wrong with it.
        problem: String,
        /// What to do.
        fix: String,
    },
    /// The calibration of a parity model's reconstructions is invalid.
    #[error("{}: {source}", path.display())]
    Calibration {
        /// The file.
        path: PathBuf,
        /// What is wrong with the table.
        source: parapet_decoder::CalibrationError,
    },
    /// The code of a parity model is invalid.
    #[error("{}: code: {source}", path.display())]
    Code {
        /// The file.
        path: PathBuf,
        /// What is wrong with the code.
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
