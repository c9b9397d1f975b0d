//! Samples with their classes.

use std::path::{Path, PathBuf};

use super::idx::{IdxError, read_idx};

/// Files that make no payload. Each message names the file and what to do.
#[derive(Debug, thiserror::Error)]
pub enum RowsError {
    /// A file is not sound IDX.
    #[error(transparent)]
    Idx(#[from] IdxError),
    /// Wrong number of axes, as when images and labels are swapped.
    #[error("{}: has {axes} axes; images want 2 or more (count, then a sample's), labels 1; check which file is which", path.display())]
    Axes {
        /// The file.
        path: PathBuf,
        /// Its number of axes.
        axes: usize,
    },
    /// A file without samples.
    #[error("{}: holds no samples; use a file that does", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
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

/// Samples of one shape; with their classes where these are known.
#[derive(Debug, Clone)]
pub struct Rows {
    shape: Vec<usize>,
    pixels: Vec<u8>,
    labels: Option<Vec<u8>>,
}

impl Rows {
    /// Reads an IDX file of images and, if given, one of labels.
    ///
    /// # Errors
    /// [`RowsError`] when a file is broken or the two do not belong together.
    pub fn load(images_path: &Path, labels_path: Option<&Path>) -> Result<Self, RowsError> {
        let images = read_idx(images_path)?;
        let path = || images_path.to_path_buf();
        let &[count, ref shape @ ..] = images.dims.as_slice() else {
            return Err(RowsError::Axes { path: path(), axes: images.dims.len() });
        };
        if shape.is_empty() {
            return Err(RowsError::Axes { path: path(), axes: 1 });
        }
        if images.bytes.is_empty() {
            return Err(RowsError::Empty { path: path() });
        }
        let labels =
            labels_path.map(|labels_path| read_labels(labels_path, images_path, count)).transpose()?;
        Ok(Self { shape: shape.to_vec(), pixels: images.bytes, labels })
    }

    /// Shape of one sample.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Values in one sample.
    pub fn sample_len(&self) -> usize {
        self.shape.iter().product()
    }

    /// How many samples there are; at least one.
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.pixels.len() / self.sample_len().max(1)
    }

    /// The values of sample `row`, scaled to `0.0..=1.0`; empty if there is no such sample.
    pub fn sample(&self, row: usize) -> Vec<f32> {
        let length = self.sample_len();
        let pixels = self.pixels.get(row * length..(row + 1) * length).unwrap_or_default();
        pixels.iter().map(|&pixel| f32::from(pixel) / 255.0).collect()
    }

    /// The class of sample `row`, if it is known.
    pub fn label(&self, row: usize) -> Option<usize> {
        self.labels.as_ref()?.get(row).map(|&label| usize::from(label))
    }
}

fn read_labels(path: &Path, images_path: &Path, images: usize) -> Result<Vec<u8>, RowsError> {
    let labels = read_idx(path)?;
    if labels.dims.len() != 1 {
        return Err(RowsError::Axes { path: path.to_path_buf(), axes: labels.dims.len() });
    }
    if labels.bytes.len() != images {
        return Err(RowsError::CountMismatch {
            images_path: images_path.to_path_buf(),
            images,
            labels_path: path.to_path_buf(),
            labels: labels.bytes.len(),
        });
    }
    Ok(labels.bytes)
}
