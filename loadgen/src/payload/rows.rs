//! Samples with their classes.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};

use parapet_datasets::idx::{IdxError, read_idx};
use parapet_datasets::npz::ZIP_MAGIC;

use super::npz::{Npz, NpzError};
use super::values::Values;

/// Files that make no payload. Each message names the file and what to do.
#[derive(Debug, thiserror::Error)]
pub enum RowsError {
    /// A file is not sound IDX.
    #[error(transparent)]
    Idx(#[from] IdxError),
    /// A file is no sound `.npz`, or its arrays do not fit.
    #[error(transparent)]
    Npz(#[from] NpzError),
    /// An array is named of a file that has no names.
    #[error("{}: is no .npz file, so it has no array {key:?}; leave out {option}", path.display())]
    Key {
        path: PathBuf,
        key: String,
        /// The option that gave it.
        option: &'static str,
    },
    /// Wrong number of axes, as when images and labels are swapped.
    #[error("{}: has {axes} axes; images want 2 or more (count, then a sample's), labels 1; check \
        which file is which", path.display())]
    Axes {
        path: PathBuf,
        /// Its number of axes.
        axes: usize,
    },
    /// A file without samples.
    #[error("{}: holds no samples; use a file that does", path.display())]
    Empty { path: PathBuf },
    /// Images and labels do not belong together.
    #[error(
        "{} has {images} samples but {} has {labels} labels; give two files that belong together",
        images_path.display(), labels_path.display()
    )]
    CountMismatch {
        /// The file of samples.
        images_path: PathBuf,
        /// Samples in it.
        images: usize,
        /// The file of labels.
        labels_path: PathBuf,
        /// Labels in it.
        labels: usize,
    },
}

/// Where samples and their classes are.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// IDX or `.npz` file of samples.
    pub images: &'a Path,
    /// IDX or `.npz` file of their classes; those of an `.npz` file of samples may be in it.
    pub labels: Option<&'a Path>,
    /// Array of samples, where there are several.
    pub images_key: Option<&'a str>,
    /// Array of classes, where there are several.
    pub labels_key: Option<&'a str>,
}

/// Samples of one shape; with their classes where these are known.
#[derive(Debug, Clone)]
pub struct Rows {
    shape: Vec<usize>,
    count: usize,
    values: Values,
    labels: Option<Vec<usize>>,
    names: (String, Option<String>),
}

impl Rows {
    /// Reads a file of samples and, where there is one, one of classes. Their contents tell IDX
    /// from `.npz`.
    ///
    /// # Errors
    /// [`RowsError`] when a file is broken or the two do not belong together.
    pub fn load(source: Source<'_>) -> Result<Self, RowsError> {
        let Source {
            images: images_path,
            labels: labels_path,
            images_key,
            labels_key,
        } = source;
        let (mut npz, dims, values, name);
        if let Some(opened) = open_npz(images_path)? {
            npz = opened;
            let (array, shape, read) = npz.images(images_key)?;
            (dims, values) = (shape, read);
            name = named(images_path, &array);
        } else {
            no_key(images_path, images_key, "--images-key")?;
            let idx = read_idx(images_path)?;
            (dims, values, name) = (
                idx.dims,
                Values::Bytes(idx.bytes),
                images_path.display().to_string(),
            );
        }
        let path = || images_path.to_path_buf();
        let &[count, ref shape @ ..] = dims.as_slice() else {
            return Err(RowsError::Axes {
                path: path(),
                axes: dims.len(),
            });
        };
        if shape.is_empty() {
            return Err(RowsError::Axes {
                path: path(),
                axes: 1,
            });
        }
        if values.is_empty() {
            return Err(RowsError::Empty { path: path() });
        }
        let labels = read_labels(labels_path, images_path, labels_key)?;
        let (labels_name, labels) = labels.unzip();
        if let Some(labels) = labels
            .as_ref()
            .map(Vec::len)
            .filter(|&labels| labels != count)
        {
            let labels_path = labels_path.unwrap_or(images_path).to_path_buf();
            return Err(RowsError::CountMismatch {
                images_path: path(),
                images: count,
                labels_path,
                labels,
            });
        }
        Ok(Self {
            shape: shape.to_vec(),
            count,
            values,
            labels,
            names: (name, labels_name),
        })
    }

    /// Where samples and classes come from: a file, or an array of one.
    pub fn names(&self) -> (String, Option<String>) {
        self.names.clone()
    }

    /// Shape of one sample.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Values in one sample.
    pub fn sample_len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Number of samples; at least one.
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.count
    }

    /// The values of sample `row`, bytes scaled to `0.0..=1.0`; empty if there is no such sample.
    pub fn sample(&self, row: usize) -> Vec<f32> {
        let length = self.sample_len();
        let range = row * length..(row + 1) * length;
        match &self.values {
            Values::Bytes(bytes) => bytes
                .get(range)
                .unwrap_or_default()
                .iter()
                .map(|&byte| f32::from(byte) / 255.0)
                .collect(),
            Values::Floats(floats) => floats.get(range).unwrap_or_default().to_vec(),
        }
    }

    /// The class of sample `row`, if it is known.
    pub fn label(&self, row: usize) -> Option<usize> {
        self.labels.as_ref()?.get(row).copied()
    }
}

impl Values {
    fn is_empty(&self) -> bool {
        match self {
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::Floats(floats) => floats.is_empty(),
        }
    }
}

/// The file as `.npz`; `None` if it is something else, or cannot be read, which the reader of
/// IDX then tells.
fn open_npz(path: &Path) -> Result<Option<Npz>, NpzError> {
    let Ok(mut file) = File::open(path) else {
        return Ok(None);
    };
    let mut start = [0; ZIP_MAGIC.len()];
    if file.read_exact(&mut start).is_err() || start != ZIP_MAGIC || file.rewind().is_err() {
        return Ok(None);
    }
    Npz::open(path, file).map(Some)
}

fn named(path: &Path, array: &str) -> String {
    format!("{}[{array}]", path.display())
}

fn no_key(path: &Path, key: Option<&str>, option: &'static str) -> Result<(), RowsError> {
    let refuse = |key: &str| RowsError::Key {
        path: path.to_path_buf(),
        key: key.to_owned(),
        option,
    };
    key.map_or(Ok(()), |key| Err(refuse(key)))
}

fn read_labels(
    path: Option<&Path>,
    images_path: &Path,
    key: Option<&str>,
) -> Result<Option<(String, Vec<usize>)>, RowsError> {
    let place = path.unwrap_or(images_path);
    if let Some(mut npz) = open_npz(place)? {
        return Ok(npz
            .labels(key, path.is_some())?
            .map(|(array, labels)| (named(place, &array), labels)));
    }
    no_key(place, key, "--labels-key")?;
    let Some(path) = path else { return Ok(None) };
    let labels = read_idx(path)?;
    if labels.dims.len() != 1 {
        return Err(RowsError::Axes {
            path: path.to_path_buf(),
            axes: labels.dims.len(),
        });
    }
    Ok(Some((
        path.display().to_string(),
        labels.bytes.into_iter().map(usize::from).collect(),
    )))
}
