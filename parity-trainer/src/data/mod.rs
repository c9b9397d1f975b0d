//! Samples, labelled or not, read from disk and held in memory as 32-bit floats.
//!
//! [`DataSet::load`] takes whatever `--data` names: a folder or a file, in one of the formats of
//! `docs/training.md`. Unsigned bytes become `0.0..=1.0`; floating-point values stay as they are.
//! Images are `[channels, height, width]`.

mod archive;
mod arrays;
mod augment;
mod binary;
mod images;
mod npy;

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::{Result, TrainError};

pub use augment::Augment;

/// Most classes of a data set: a label is a byte.
const MAX_CLASSES: usize = 256;
/// Most values of all samples together, 16 GiB of memory.
const MAX_VALUES: usize = 1 << 32;
const ZIP_MAGIC: [u8; 4] = *b"PK\x03\x04";
const ARCHIVE_ENDS: [&str; 3] = [".tar", ".tar.gz", ".tgz"];

/// Told the samples read so far, and how many there are, where that is known before the end.
type Progress<'a> = &'a mut dyn FnMut(usize, Option<usize>);

/// Samples of one shape, with their classes where the data have any.
#[derive(Debug, Clone, PartialEq)]
pub struct Samples {
    /// Shape of one sample: `[channels, height, width]` for images, `[features]` for vectors.
    pub shape: Vec<usize>,
    pub values: Vec<f32>,
    /// The class of each sample; empty for samples without labels.
    pub labels: Vec<u8>,
    /// The numbers that a model should give for each sample, as boxes; empty where there are none.
    pub targets: Vec<f32>,
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

impl Samples {
    pub fn new(shape: Vec<usize>, values: Vec<f32>, labels: Vec<u8>) -> Self {
        Self { shape, values, labels, targets: Vec::new() }
    }

    pub fn len(&self) -> usize {
        self.values.len() / self.sample_len().max(1)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn sample_len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Numbers of a sample's target; 0 where there are none.
    pub fn target_len(&self) -> usize {
        self.targets.len() / self.len().max(1)
    }

    /// The values of sample `index`; empty if there is no such sample.
    pub fn sample(&self, index: usize) -> &[f32] {
        row(&self.values, index, self.sample_len())
    }
}

impl DataSet {
    /// Reads the data set at `path`: a folder with MNIST's four IDX files, CIFAR's binary files or
    /// images, or a file (or a folder with one file) `.npz`, `.safetensors`, `.tar` or `.tar.gz`.
    /// Labels may be missing, in both parts alike.
    pub fn load(path: &Path) -> Result<Self> {
        Self::load_with(path, &mut |_, _| {})
    }

    /// [`DataSet::load`] that tells how far it is, from time to time and at the end.
    pub fn load_with(path: &Path, progress: Progress<'_>) -> Result<Self> {
        let mut data = read(path, progress)?;
        let (train, test) = (&data.train, &data.test);
        ensure!(!train.values.is_empty() && !test.values.is_empty(), too_few(path, 0, 1));
        let apart =
            |problem: String| TrainError::input(path, problem + "; use files of one data set");
        let (shape, other) = (&train.shape, &test.shape);
        let problem = format!("training samples have shape {shape:?}, test samples {other:?}");
        ensure!(shape == other, apart(problem));
        let problem = "training and test samples have targets of different lengths";
        ensure!(train.target_len() == test.target_len(), apart(problem.to_owned()));
        let largest = train.labels.iter().chain(&test.labels).max();
        let labels = largest.map_or(0, |&label| usize::from(label) + 1);
        // A list of names that does not cover the labels belongs to something else, and without
        // labels to nothing.
        if labels == 0 || data.class_names.len() < labels {
            data.class_names.clear();
        }
        data.classes = labels.max(data.class_names.len());
        let samples = data.train.len() + data.test.len();
        progress(samples, Some(samples));
        Ok(data)
    }

    /// A set whose classes are not counted yet.
    fn new(train: Samples, test: Samples, class_names: Vec<String>, hash: Sha256) -> Self {
        Self { train, test, classes: 0, class_names, sha256: format!("{:x}", hash.finalize()) }
    }

    pub fn is_labelled(&self) -> bool {
        !self.train.labels.is_empty() && !self.test.labels.is_empty()
    }
}

/// Steps of a sequence of so many features each, up to its last that is not all zeros; 1 at least.
pub fn steps(sequence: &[f32], features: usize) -> usize {
    let used = sequence.iter().rposition(|&value| value != 0.0).map_or(1, |last| last + 1);
    used.div_ceil(features.max(1))
}

/// Row `index` of rows of `length` values; empty if there is none.
pub(crate) fn row(values: &[f32], index: usize, length: usize) -> &[f32] {
    values.get(index * length..(index + 1) * length).unwrap_or_default()
}

/// Reads a folder, whose format the names in it tell, or a file.
fn read(path: &Path, progress: Progress<'_>) -> Result<DataSet> {
    if path.is_file() {
        return read_file(path, progress);
    }
    let Ok(entries) = fs::read_dir(path) else { return Err(unrecognised(path)) };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    if names.iter().any(|name| name.contains("-idx") && name.contains("-ubyte")) {
        return binary::load_idx(path);
    }
    if let Some((folder, layout)) = binary::find_cifar(path) {
        return binary::load_cifar(&folder, layout);
    }
    if path.join("train").is_dir() && path.join("test").is_dir() {
        return images::load_folder(path, progress);
    }
    let is_data = |name: &str| {
        ARCHIVE_ENDS.iter().chain(&[".npz", ".safetensors"]).any(|end| name.ends_with(end))
    };
    match names.iter().filter(|name| is_data(name)).collect::<Vec<&String>>().as_slice() {
        [file] => read_file(&path.join(file), progress),
        [first, second, ..] => {
            let problem = format!("has {first} and {second}: which is meant?");
            Err(TrainError::input(path, problem + " give --data the path of one"))
        }
        [] if names.iter().any(|name| images::is_image(name)) => images::load_flat(path, progress),
        [] => Err(unrecognised(path)),
    }
}

/// Reads a file, whose format its first bytes tell, and then its name.
fn read_file(path: &Path, progress: Progress<'_>) -> Result<DataSet> {
    let mut start = [0; 4];
    let read = File::open(path).and_then(|mut file| file.read(&mut start));
    let read = read.map_err(|source| unreadable(path, &source))?;
    let name = path.to_string_lossy();
    if start == ZIP_MAGIC || name.ends_with(".npz") {
        arrays::load_npz(path)
    } else if read > 0 && ARCHIVE_ENDS.iter().any(|end| name.ends_with(end)) {
        archive::load(path, progress)
    } else if name.ends_with(".safetensors") {
        arrays::load_safetensors(path)
    } else {
        Err(unrecognised(path))
    }
}

fn read_whole(path: &Path, most: u64) -> Result<Vec<u8>> {
    check_length(path, most)?;
    fs::read(path).map_err(|source| unreadable(path, &source))
}

/// Refuses a file of more than `most` bytes before it is read.
fn check_length(path: &Path, most: u64) -> Result<()> {
    let length = fs::metadata(path).map_err(|source| unreadable(path, &source))?.len();
    let problem = format!("has {length} bytes, at most {most} are read");
    ensure!(length <= most, too_large(path, &problem));
    Ok(())
}

fn scaled(bytes: &[u8]) -> Vec<f32> {
    bytes.iter().map(|&byte| f32::from(byte) / 255.0).collect()
}

fn unrecognised(path: &Path) -> TrainError {
    TrainError::input(
        path,
        "no data set in it: no train-images-idx3-ubyte[.gz] (MNIST's four IDX files), no \
            train/CLASS/*.png or *.jpg with test/CLASS/... (image folder; without labels \
            train/*.png, or *.png), no data_batch_1.bin or train.bin (CIFAR's binary files), and \
            not one file .npz, .safetensors, .tar, .tar.gz or .tgz; give --data one of these",
    )
}

fn unreadable(path: &Path, source: &std::io::Error) -> TrainError {
    TrainError::input(path, format!("cannot read it: {source}"))
}

fn damaged(path: &Path, problem: &str) -> TrainError {
    TrainError::input(path, format!("{problem}; fetch it again"))
}

fn too_few(path: &Path, found: usize, wanted: usize) -> TrainError {
    TrainError::input(path, format!("has {found} samples, at least {wanted} are needed"))
}

fn too_large(path: &Path, problem: &str) -> TrainError {
    TrainError::input(path, format!("{problem}; leave out samples or make them smaller"))
}

fn unequal_counts(images: &str, samples: usize, labels_of: &str, labels: usize) -> TrainError {
    TrainError::Input(format!(
        "{images} has {samples} samples, {labels_of} has {labels} labels: the two files do not \
            belong together; fetch both again"
    ))
}
