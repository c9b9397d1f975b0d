//! Errors of data.

use std::path::PathBuf;

use super::MAX_CLASSES;

/// Data that cannot be used. Each message names the file and what to do.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    #[error(
        "{}: no data set in it: no train-images-idx3-ubyte[.gz] (MNIST's four IDX files), no \
            train/CLASS/*.png or *.jpg with test/CLASS/... (image folder; without labels \
            train/*.png, or *.png), no data_batch_1.bin or train.bin (CIFAR's binary files), and \
            not one file .npz, .safetensors, .tar, .tar.gz or .tgz; give --data one of these",
        path.display()
    )]
    Unrecognised { path: PathBuf },
    #[error(
        "{}: has {first} and {second}: which is meant? give --data the path of one",
        path.display()
    )]
    Ambiguous {
        path: PathBuf,
        first: String,
        second: String,
    },
    #[error(
        "{}: no {stem}[.gz]; --data wants a folder with the four IDX files of MNIST's layout \
            (train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte, \
            t10k-labels-idx1-ubyte, each plain or .gz)",
        folder.display()
    )]
    Missing {
        folder: PathBuf,
        /// The file's name without `.gz`.
        stem: String,
    },
    #[error("{}: cannot read it: {source}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(transparent)]
    Idx(#[from] parapet_datasets::idx::IdxError),
    /// A file is no sound `.npz`.
    #[error(transparent)]
    Npz(#[from] parapet_datasets::npz::NpzError),
    #[error("{}: {problem}; fetch it again", path.display())]
    Damaged { path: PathBuf, problem: String },
    #[error(
        "{} has {images} samples, {} has {labels} labels: the two files do not belong together; \
            fetch both again",
        images_path.display(), labels_path.display()
    )]
    CountMismatch {
        images_path: PathBuf,
        images: usize,
        labels_path: PathBuf,
        labels: usize,
    },
    #[error("{}: has {dims} axes; samples want 2 (count, features) or 3 (count, height, width), \
        labels 1", path.display())]
    Dimensions { path: PathBuf, dims: usize },
    #[error("{}: training samples have shape {train:?}, test samples {test:?}; use files of one \
        data set", folder.display())]
    ShapeMismatch {
        folder: PathBuf,
        train: Vec<usize>,
        test: Vec<usize>,
    },
    #[error("{}: has {found} samples, at least {wanted} are needed", path.display())]
    TooFew {
        path: PathBuf,
        found: usize,
        wanted: usize,
    },
    #[error(
        "{}: no array of {wanted}; name it {example} (there {}: {})",
        path.display(), if arrays.len() == 1 { "is" } else { "are" }, listed(arrays)
    )]
    NoArray {
        path: PathBuf,
        wanted: &'static str,
        example: &'static str,
        arrays: Vec<String>,
    },
    #[error("{}: array {array:?} is {found}; {wanted}", path.display())]
    Array {
        path: PathBuf,
        array: String,
        found: String,
        wanted: &'static str,
    },
    #[error(
        "{}: has no labels, which are needed to {purpose}; add them (train-labels-idx1-ubyte, \
            arrays y_train and y_test, or a folder for each class)",
        path.display()
    )]
    Unlabelled {
        path: PathBuf,
        purpose: &'static str,
    },
    #[error("{}: {reason}; images are png or jpeg: convert it, or fetch it again", path.display())]
    Image { path: PathBuf, reason: String },
    #[error("{}: {problem}; an image folder has train/CLASS/*.png or *.jpg, and test/CLASS/...; \
        or, without labels, no CLASS at all", path.display())]
    Misplaced {
        path: PathBuf,
        problem: &'static str,
    },
    #[error(
        "{}: is {} x {} pixels, those before it are {} x {}; bring all images to one size",
        path.display(), found.0, found.1, wanted.0, wanted.1
    )]
    ImageSize {
        path: PathBuf,
        /// Its width and height.
        found: (usize, usize),
        wanted: (usize, usize),
    },
    #[error("{}: has no images; put some there or remove the class", path.display())]
    EmptyClass { path: PathBuf },
    #[error(
        "{}: the training images have no class {class:?}; remove it or add training images",
        path.display()
    )]
    UnknownClass { path: PathBuf, class: String },
    #[error("{}: all of its labels are one class; give data of two or more", path.display())]
    OneClass { path: PathBuf },
    #[error(
        "{}: has {found} classes, at most {MAX_CLASSES} can be trained; leave some out",
        path.display()
    )]
    TooManyClasses { path: PathBuf, found: usize },
    #[error("{}: {problem}; leave out samples or make them smaller", path.display())]
    TooLarge { path: PathBuf, problem: String },
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
