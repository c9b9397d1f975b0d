//! Samples, labelled or not, read from disk and held in memory as 32-bit floats.
//!
//! [`DataSet::load`] takes whatever `--data` names: a folder or a file, in one of the formats of
//! `formats/`. Unsigned bytes become `0.0..=1.0`; floating-point values stay as they are. Images
//! are `[channels, height, width]`.
//!
//! A value takes four bytes: CIFAR-10 takes 740 MB, MNIST 220 MB.

mod augment;
mod error;
mod formats;
mod recognise;
mod shuffle;

use std::path::Path;

pub use augment::{Augment, AugmentError};
pub use error::DataError;
pub use parapet_datasets::idx::IdxError;
pub(crate) use shuffle::Shuffle;

/// Most classes of a data set: a label is a byte.
const MAX_CLASSES: usize = 256;
/// Most values of all samples together, 16 GiB of memory.
const MAX_VALUES: usize = 1 << 32;

/// Samples of one shape, with their classes where the data have any.
#[derive(Debug, Clone, PartialEq)]
pub struct Samples {
    /// Shape of one sample: `[channels, height, width]` for images, `[features]` for vectors.
    pub shape: Vec<usize>,
    /// All samples, row-major; `0.0..=1.0` where the data are bytes, otherwise as the
    /// data have them.
    pub values: Vec<f32>,
    /// The class of each sample; empty for samples without labels.
    pub labels: Vec<u8>,
}

/// A training set and a test set of one shape.
#[derive(Debug, Clone)]
pub struct DataSet {
    pub train: Samples,
    /// Test samples; training never looks at them.
    pub test: Samples,
    /// Classes: one more than the largest label, or as many as there are names; 0 without labels.
    pub classes: usize,
    /// The classes' names in the order of the labels, where the data have any; otherwise empty.
    pub class_names: Vec<String>,
    /// SHA-256 of the samples and labels as the files have them, hexadecimal.
    pub sha256: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadProgress {
    /// Samples read so far, training and test together.
    pub samples: usize,
    /// Samples there are, where that is known before the end.
    pub total: Option<usize>,
}

struct Loaded {
    train: Samples,
    test: Samples,
    /// Empty if there are none.
    class_names: Vec<String>,
    sha256: String,
}

impl Samples {
    pub fn len(&self) -> usize {
        self.values.len() / self.sample_len().max(1)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Values in one sample.
    pub fn sample_len(&self) -> usize {
        self.shape.iter().product()
    }

    /// The values of sample `index`; empty if there is no such sample.
    pub fn sample(&self, index: usize) -> &[f32] {
        let length = self.sample_len();
        self.values
            .get(index * length..(index + 1) * length)
            .unwrap_or_default()
    }
}

impl DataSet {
    /// Reads the data set at `path`: a folder with MNIST's four IDX files, CIFAR's binary files or
    /// images, or a file (or a folder with one file) `.npz`, `.safetensors`, `.tar` or `.tar.gz`.
    /// Labels may be missing, in both parts alike.
    ///
    /// # Errors
    /// [`DataError`], naming the file.
    pub fn load(path: &Path) -> Result<Self, DataError> {
        Self::load_with(path, &mut |_| {})
    }

    /// [`DataSet::load`] that tells how far it is, from time to time and at the end.
    ///
    /// # Errors
    /// [`DataError`], naming the file.
    pub fn load_with(
        path: &Path,
        progress: &mut dyn FnMut(LoadProgress),
    ) -> Result<Self, DataError> {
        let loaded = recognise::recognise(path)?.load(progress)?;
        let Loaded {
            train,
            test,
            class_names,
            sha256,
        } = loaded;
        for samples in [&train, &test] {
            if samples.is_empty() || samples.sample_len() == 0 {
                return Err(DataError::TooFew {
                    path: path.to_path_buf(),
                    found: 0,
                    wanted: 1,
                });
            }
        }
        if train.shape != test.shape {
            let (train, test) = (train.shape, test.shape);
            return Err(DataError::ShapeMismatch {
                folder: path.to_path_buf(),
                train,
                test,
            });
        }
        let labels = train
            .labels
            .iter()
            .chain(&test.labels)
            .max()
            .map_or(0, |&label| usize::from(label) + 1);
        // A list of names that does not cover the labels belongs to something else, and without
        // labels to nothing.
        let covers = labels > 0 && class_names.len() >= labels;
        let class_names = if covers { class_names } else { Vec::new() };
        let classes = labels.max(class_names.len());
        let all = train.len() + test.len();
        progress(LoadProgress {
            samples: all,
            total: Some(all),
        });
        Ok(Self {
            train,
            test,
            classes,
            class_names,
            sha256,
        })
    }
}

impl DataSet {
    pub fn is_labelled(&self) -> bool {
        !self.train.labels.is_empty() && !self.test.labels.is_empty()
    }
}

fn scaled(bytes: &[u8]) -> Vec<f32> {
    bytes.iter().map(|&byte| f32::from(byte) / 255.0).collect()
}
