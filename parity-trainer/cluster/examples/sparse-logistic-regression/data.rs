//! Rows to learn from and rows held out to judge by.

mod generated;
mod idx;
mod text;

use std::path::{Path, PathBuf};

use parapet_datasets::idx::IdxError;
use parapet_parameter_server::{Key, KeyRange};

use crate::Rows;
pub(crate) use generated::{Generated, generate};

/// Rows for training and rows for evaluation.
#[derive(Debug, Clone)]
pub(crate) struct DataSet {
    /// Where it comes from, for reports.
    pub(crate) name: String,
    /// Number of features; the intercept comes after them.
    pub(crate) features: u32,
    /// Rows to learn from.
    pub(crate) train: Rows,
    /// Rows to judge by.
    pub(crate) held_out: Rows,
    /// The probabilities that the held-out labels were drawn with, where they are known.
    pub(crate) truth: Option<Vec<f32>>,
}

impl DataSet {
    /// The features and the intercept, as keys of an array.
    pub(crate) fn keys(&self) -> KeyRange {
        KeyRange::new(0, Key::from(self.features) + 1)
    }
}

/// Format of a folder of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// IDX files of one row of bytes for each sample, named as MNIST's are:
    /// `train-images-idx2-ubyte.gz`, `train-labels-idx1-ubyte.gz`, `t10k-..`. A byte is the
    /// feature's value times 255.
    Idx,
    /// `train-text.tsv.gz` and `t10k-text.tsv.gz`: a label, an identifier and texts in each line.
    /// Words are hashed into this many features.
    Text { features: u32 },
}

/// Data that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DataError {
    /// No such folder.
    #[error(
        "{}: no such folder: give one with train and t10k files, or leave --data out",
        .0.display()
    )]
    NoFolder(PathBuf),
    /// A file is missing.
    #[error("{}: no file {wanted}: check that this is the right folder", folder.display())]
    Missing {
        folder: PathBuf,
        wanted: &'static str,
    },
    /// A file that is not sound.
    #[error(transparent)]
    Idx(#[from] IdxError),
    /// A file of rows and one of labels that do not belong together.
    #[error(
        "{}: {rows:?} where one row for each of {labels} labels is wanted: check that both files \
            are of one set",
        path.display()
    )]
    Shape {
        /// The file of rows.
        path: PathBuf,
        rows: Vec<usize>,
        /// Labels in the other file.
        labels: usize,
    },
    /// Training rows and held-out rows of different lengths.
    #[error("{}: its rows have {found} features, those to learn from {wanted}: check that both \
        are of one set", path.display())]
    Features {
        path: PathBuf,
        /// Features of its rows.
        found: usize,
        /// Features of the rows to learn from.
        wanted: usize,
    },
    /// A class that is neither of the two.
    #[error("{}: label {found} of row {row} is neither 0 nor 1: logistic regression tells two \
        classes apart", path.display())]
    Label {
        path: PathBuf,
        row: usize,
        found: String,
    },
    /// A file of text cannot be read to its end.
    #[error(
        "{}: cannot be read to its end ({source}): fetch it again if it is truncated",
        path.display()
    )]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    /// A file of text is too long.
    #[error("{}: holds more than {limit} bytes unpacked: use a smaller file", path.display())]
    TooLarge { path: PathBuf, limit: u64 },
    /// A line without a text.
    #[error("{}: line {line} has no tab-separated label, identifier and text: it may be \
        truncated, fetch it again", path.display())]
    Line { path: PathBuf, line: usize },
    /// Nothing to learn from, or nothing to judge by.
    #[error("{}: no rows: check that this is the right file", .0.display())]
    Empty(PathBuf),
}

/// Reads a folder.
///
/// # Errors
/// [`DataError`], naming the file.
pub(crate) fn load(folder: &Path, format: Format) -> Result<DataSet, DataError> {
    if !folder.is_dir() {
        return Err(DataError::NoFolder(folder.to_path_buf()));
    }
    let (features, train, held_out) = match format {
        Format::Idx => idx::load(folder)?,
        Format::Text { features } => text::load(folder, features)?,
    };
    Ok(DataSet {
        name: folder.display().to_string(),
        features,
        train,
        held_out,
        truth: None,
    })
}

/// The file in `folder` whose name begins so.
fn file(folder: &Path, wanted: &'static str) -> Result<PathBuf, DataError> {
    let read = |source| DataError::Read {
        path: folder.to_path_buf(),
        source,
    };
    for entry in std::fs::read_dir(folder).map_err(read)? {
        let entry = entry.map_err(read)?;
        if entry.file_name().to_string_lossy().starts_with(wanted) {
            return Ok(entry.path());
        }
    }
    Err(DataError::Missing {
        folder: folder.to_path_buf(),
        wanted,
    })
}
