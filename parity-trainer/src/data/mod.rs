//! Labelled samples, read from disk and held in memory as 32-bit floats.

mod augment;
mod shuffle;

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

pub use augment::Augment;
pub use parapet_idx::IdxError;
pub(crate) use shuffle::Shuffle;

use parapet_idx::{Idx, read_idx};

/// Samples of one shape with their classes.
#[derive(Debug, Clone, PartialEq)]
pub struct Samples {
    /// Shape of one sample: `[1, height, width]` for images, `[features]` for vectors.
    pub shape: Vec<usize>,
    /// All samples, row-major, `0.0..=1.0`.
    pub values: Vec<f32>,
    /// The class of each sample.
    pub labels: Vec<u8>,
}

/// A training set and a test set of one shape.
#[derive(Debug, Clone)]
pub struct DataSet {
    /// What models are trained on.
    pub train: Samples,
    /// What they are evaluated on; training never looks at it.
    pub test: Samples,
    /// Classes: one more than the largest label.
    pub classes: usize,
    /// SHA-256 of the four files' unpacked contents, hexadecimal.
    pub sha256: String,
}

/// Data that cannot be used. Each message names the file and what to do.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// No file by any of the usual names.
    #[error(
        "{}: no {stem}[.gz]; --data wants a folder with the four IDX files of MNIST's layout (train-images-idx3-ubyte, \
         train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte, each plain or .gz)",
        folder.display()
    )]
    Missing {
        /// The folder that was searched.
        folder: PathBuf,
        /// The file's name without `.gz`.
        stem: String,
    },
    /// A file is not sound IDX.
    #[error(transparent)]
    Idx(#[from] IdxError),
    /// Images and labels that do not belong together.
    #[error(
        "{} has {images} samples, {} has {labels} labels: the two files do not belong together; fetch both again",
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
    /// A file of samples whose values have too few or too many axes.
    #[error("{}: has {dims} axes; samples want 2 (count, features) or 3 (count, height, width), labels 1", path.display())]
    Dimensions {
        /// The file.
        path: PathBuf,
        /// Its number of axes.
        dims: usize,
    },
    /// Training and test samples differ in shape.
    #[error("{}: training samples have shape {train:?}, test samples {test:?}; use files of one data set", folder.display())]
    ShapeMismatch {
        /// The data folder.
        folder: PathBuf,
        /// Shape of a training sample.
        train: Vec<usize>,
        /// Shape of a test sample.
        test: Vec<usize>,
    },
    /// Too few samples to do anything with.
    #[error("{}: has {found} samples, at least {wanted} are needed", path.display())]
    TooFew {
        /// The file or folder.
        path: PathBuf,
        /// Samples found.
        found: usize,
        /// Samples needed.
        wanted: usize,
    },
}

impl Samples {
    /// How many samples there are.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Values in one sample.
    pub fn sample_len(&self) -> usize {
        self.shape.iter().product()
    }

    /// The values of sample `index`; empty if there is no such sample.
    pub fn sample(&self, index: usize) -> &[f32] {
        let length = self.sample_len();
        self.values.get(index * length..(index + 1) * length).unwrap_or_default()
    }
}

impl DataSet {
    /// Reads the four IDX files of MNIST's layout in `folder`, each plain or gzip-compressed.
    ///
    /// # Errors
    /// [`DataError`], naming the file.
    pub fn load(folder: &Path) -> Result<Self, DataError> {
        let mut hash = Sha256::new();
        let train = load_split(folder, "train", &mut hash)?;
        let test = load_split(folder, "t10k", &mut hash)?;
        if train.shape != test.shape {
            let (train, test) = (train.shape, test.shape);
            return Err(DataError::ShapeMismatch { folder: folder.to_path_buf(), train, test });
        }
        let classes =
            train.labels.iter().chain(&test.labels).max().map_or(0, |&label| usize::from(label) + 1);
        let sha256 = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { train, test, classes, sha256 })
    }
}

fn load_split(folder: &Path, split: &str, hash: &mut Sha256) -> Result<Samples, DataError> {
    let (images_path, images) =
        load_file(folder, &[&format!("{split}-images-idx3-ubyte"), &format!("{split}-images-idx2-ubyte")])?;
    let (labels_path, labels) = load_file(folder, &[&format!("{split}-labels-idx1-ubyte")])?;
    let shape = match images.dims.as_slice() {
        &[_, features] => vec![features],
        &[_, height, width] => vec![1, height, width],
        dims => {
            return Err(DataError::Dimensions { path: images_path, dims: dims.len() });
        }
    };
    let &[label_count] = labels.dims.as_slice() else {
        return Err(DataError::Dimensions { path: labels_path, dims: labels.dims.len() });
    };
    let count = images.dims.first().copied().unwrap_or_default();
    if count != label_count {
        return Err(DataError::CountMismatch {
            images_path,
            images: count,
            labels_path,
            labels: label_count,
        });
    }
    if images.bytes.is_empty() {
        return Err(DataError::TooFew { path: images_path, found: 0, wanted: 1 });
    }
    for file in [&images, &labels] {
        hash.update(format!("{:?}", file.dims));
        hash.update(&file.bytes);
    }
    let values = images.bytes.iter().map(|&pixel| f32::from(pixel) / 255.0).collect();
    Ok(Samples { shape, values, labels: labels.bytes })
}

fn load_file(folder: &Path, stems: &[&str]) -> Result<(PathBuf, Idx), DataError> {
    for stem in stems {
        for name in [format!("{stem}.gz"), (*stem).to_owned()] {
            let path = folder.join(name);
            if path.is_file() {
                let idx = read_idx(&path)?;
                return Ok((path, idx));
            }
        }
    }
    let stem = stems.first().copied().unwrap_or_default().to_owned();
    Err(DataError::Missing { folder: folder.to_path_buf(), stem })
}
