//! Errors of data.

use std::path::PathBuf;

use super::MAX_CLASSES;

/// Data that cannot be used. Each message names the file and what to do.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// None of the formats.
    #[error(
        "{}: no data set in it: no train-images-idx3-ubyte[.gz] (MNIST's four IDX files), no \
            train/CLASS/*.png or *.jpg with test/CLASS/... (image folder; without labels \
            train/*.png, or *.png), no data_batch_1.bin or train.bin (CIFAR's binary files), and \
            not one file .npz, .safetensors, .tar, .tar.gz or .tgz; give --data one of these",
        path.display()
    )]
    Unrecognised { path: PathBuf },
    /// Several files that could be meant.
    #[error(
        "{}: has {first} and {second}: which is meant? give --data the path of one",
        path.display()
    )]
    Ambiguous {
        path: PathBuf,
        /// One file's name.
        first: String,
        second: String,
    },
    /// No file by any of the usual names.
    #[error(
        "{}: no {stem}[.gz]; --data wants a folder with the four IDX files of MNIST's layout \
            (train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte, \
            t10k-labels-idx1-ubyte, each plain or .gz)",
        folder.display()
    )]
    Missing {
        /// The folder that was searched.
        folder: PathBuf,
        /// The file's name without `.gz`.
        stem: String,
    },
    /// A file or folder cannot be read.
    #[error("{}: cannot read it: {source}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        source: std::io::Error,
    },
    /// A file is not sound IDX.
    #[error(transparent)]
    Idx(#[from] parapet_datasets::idx::IdxError),
    /// A file is no sound `.npz`.
    #[error(transparent)]
    Npz(#[from] parapet_datasets::npz::NpzError),
    /// A file that ends early or holds what it should not.
    #[error("{}: {problem}; fetch it again", path.display())]
    Damaged { path: PathBuf, problem: String },
    /// Images and labels that do not belong together.
    #[error(
        "{} has {images} samples, {} has {labels} labels: the two files do not belong together; \
            fetch both again",
        images_path.display(), labels_path.display()
    )]
    CountMismatch {
        /// The file (or array of a file) of samples.
        images_path: PathBuf,
        /// Samples in it.
        images: usize,
        /// The file (or array of a file) of labels.
        labels_path: PathBuf,
        /// Labels in it.
        labels: usize,
    },
    /// A file of samples whose values have too few or too many axes.
    #[error("{}: has {dims} axes; samples want 2 (count, features) or 3 (count, height, width), \
        labels 1", path.display())]
    Dimensions {
        path: PathBuf,
        /// Its number of axes.
        dims: usize,
    },
    /// Training and test samples differ in shape.
    #[error("{}: training samples have shape {train:?}, test samples {test:?}; use files of one \
        data set", folder.display())]
    ShapeMismatch {
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
        found: usize,
        wanted: usize,
    },
    /// An array that is needed is not there.
    #[error(
        "{}: no array of {wanted}; name it {example} (there {}: {})",
        path.display(), if arrays.len() == 1 { "is" } else { "are" }, listed(arrays)
    )]
    NoArray {
        path: PathBuf,
        wanted: &'static str,
        /// A name it would be found by.
        example: &'static str,
        /// The arrays there are.
        arrays: Vec<String>,
    },
    /// An array that cannot be what its name says.
    #[error("{}: array {array:?} is {found}; {wanted}", path.display())]
    Array {
        path: PathBuf,
        array: String,
        /// Its type and shape, or the value that is wrong.
        found: String,
        wanted: &'static str,
    },
    /// Samples whose labels are needed.
    #[error(
        "{}: has no labels, which are needed to {purpose}; add them (train-labels-idx1-ubyte, \
            arrays y_train and y_test, or a folder for each class)",
        path.display()
    )]
    Unlabelled {
        path: PathBuf,
        purpose: &'static str,
    },
    /// An image that cannot be decoded.
    #[error("{}: {reason}; images are png or jpeg: convert it, or fetch it again", path.display())]
    Image { path: PathBuf, reason: String },
    /// A file of an image folder that lies where no image should.
    #[error("{}: {problem}; an image folder has train/CLASS/*.png or *.jpg, and test/CLASS/...; \
        or, without labels, no CLASS at all", path.display())]
    Misplaced {
        path: PathBuf,
        problem: &'static str,
    },
    /// Images of different sizes.
    #[error(
        "{}: is {} x {} pixels, those before it are {} x {}; bring all images to one size",
        path.display(), found.0, found.1, wanted.0, wanted.1
    )]
    ImageSize {
        path: PathBuf,
        /// Its width and height.
        found: (usize, usize),
        /// Shape of the images before it.
        wanted: (usize, usize),
    },
    /// A class without images.
    #[error("{}: has no images; put some there or remove the class", path.display())]
    EmptyClass { path: PathBuf },
    /// A class of the test set that is not in the training set.
    #[error(
        "{}: the training images have no class {class:?}; remove it or add training images",
        path.display()
    )]
    UnknownClass {
        /// Where the test images are.
        path: PathBuf,
        class: String,
    },
    /// Nothing to tell apart.
    #[error("{}: all of its labels are one class; give data of two or more", path.display())]
    OneClass { path: PathBuf },
    /// More classes than labels can tell apart.
    #[error(
        "{}: has {found} classes, at most {MAX_CLASSES} can be trained; leave some out",
        path.display()
    )]
    TooManyClasses {
        /// Where they are.
        path: PathBuf,
        found: usize,
    },
    /// More than can sensibly be held in memory.
    #[error("{}: {problem}; leave out samples or make them smaller", path.display())]
    TooLarge {
        /// The file or folder.
        path: PathBuf,
        problem: String,
    },
}

/// Arrays that a message lists at most.
const MAX_LISTED: usize = 12;

fn listed(arrays: &[String]) -> String {
    match arrays {
        [] => "none".to_owned(),
        arrays if arrays.len() > MAX_LISTED => {
            let more = arrays.len() - MAX_LISTED;
            format!(
                "{} and {more} more",
                arrays.get(..MAX_LISTED).unwrap_or_default().join(", ")
            )
        }
        arrays => arrays.join(", "),
    }
}
