//! Binary files of published data sets.
//!
//! MNIST's four IDX files, or the two of images alone; `classes.txt` beside them may name the
//! classes, one a line. CIFAR-10 and CIFAR-100 are records of a label (CIFAR-100: a coarse and a
//! fine one) and 3 x 32 x 32 bytes. Source: <https://www.cs.toronto.edu/~kriz/cifar.html>.

use std::fs;
use std::path::{Path, PathBuf};

use parapet_datasets::idx::{Idx, read_idx};
use sha2::{Digest, Sha256};

use super::{DataSet, Samples, damaged, read_whole, scaled, too_few, unequal_counts};
use crate::{Result, TrainError};

const CIFAR_SHAPE: [usize; 3] = [3, 32, 32];
/// Most bytes of a file of CIFAR's; the largest published one has 154 MB.
const MAX_CIFAR_BYTES: u64 = 1 << 30;

pub(super) fn load_idx(folder: &Path) -> Result<DataSet> {
    let mut hash = Sha256::new();
    let has_labels = |split: &str| find(folder, &[labels_of(split)]).is_some();
    // Labels of one part only are more likely a forgotten file than a wish.
    let labelled = has_labels("train") || has_labels("t10k");
    let train = load_split(folder, "train", labelled, &mut hash)?;
    let test = load_split(folder, "t10k", labelled, &mut hash)?;
    Ok(DataSet::new(train, test, class_names(&folder.join("classes.txt")), hash))
}

fn labels_of(split: &str) -> String {
    format!("{split}-labels-idx1-ubyte")
}

fn load_split(folder: &Path, split: &str, labelled: bool, hash: &mut Sha256) -> Result<Samples> {
    let mut load = |stems: &[String]| {
        let (path, file) = load_file(folder, stems)?;
        hash.update(format!("{:?}", file.dims));
        hash.update(&file.bytes);
        Ok::<_, TrainError>((path, file))
    };
    let (path, images) = load(&[3, 2].map(|axes| format!("{split}-images-idx{axes}-ubyte")))?;
    let (count, shape) = match *images.dims.as_slice() {
        [count, features] => (count, vec![features]),
        [count, height, width] => (count, vec![1, height, width]),
        _ => return Err(wrong_axes(&path, &images)),
    };
    ensure!(!images.bytes.is_empty(), too_few(&path, 0, 1));
    let mut labels = Vec::new();
    if labelled {
        let (labels_path, file) = load(&[labels_of(split)])?;
        let &[label_count] = file.dims.as_slice() else {
            return Err(wrong_axes(&labels_path, &file));
        };
        let [images, labels_of] = [&path, &labels_path].map(|path| path.display().to_string());
        ensure!(count == label_count, unequal_counts(&images, count, &labels_of, label_count));
        labels = file.bytes;
    }
    Ok(Samples::new(shape, scaled(&images.bytes), labels))
}

fn load_file(folder: &Path, stems: &[String]) -> Result<(PathBuf, Idx)> {
    let Some(path) = find(folder, stems) else {
        let stem = stems.first().map_or("", String::as_str);
        let problem = format!(
            "no {stem}[.gz]; --data wants a folder with the four IDX files of MNIST's layout \
                (train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte, \
                t10k-labels-idx1-ubyte, each plain or .gz)"
        );
        return Err(TrainError::input(folder, problem));
    };
    let idx = read_idx(&path).map_err(|error| TrainError::Input(error.to_string()))?;
    Ok((path, idx))
}

/// The first of the files that is there, compressed or not.
fn find(folder: &Path, stems: &[String]) -> Option<PathBuf> {
    let mut paths = stems
        .iter()
        .flat_map(|stem| [format!("{stem}.gz"), stem.clone()].map(|name| folder.join(name)));
    paths.find(|path| path.is_file())
}

fn wrong_axes(path: &Path, file: &Idx) -> TrainError {
    let axes = file.dims.len();
    let wanted = "samples want 2 (count, features) or 3 (count, height, width), labels 1";
    TrainError::input(path, format!("has {axes} axes; {wanted}"))
}

fn class_names(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[derive(Debug)]
pub(super) struct Cifar {
    /// Folder that the published archive unpacks to.
    folder: &'static str,
    train: &'static [&'static str],
    test: &'static str,
    names: &'static str,
    /// Labels in front of the pixels; the last one counts.
    labels: usize,
    classes: u8,
}

const CIFAR10: Cifar = Cifar {
    folder: "cifar-10-batches-bin",
    train: &[
        "data_batch_1.bin",
        "data_batch_2.bin",
        "data_batch_3.bin",
        "data_batch_4.bin",
        "data_batch_5.bin",
    ],
    test: "test_batch.bin",
    names: "batches.meta.txt",
    labels: 1,
    classes: 10,
};
const CIFAR100: Cifar = Cifar {
    folder: "cifar-100-binary",
    train: &["train.bin"],
    test: "test.bin",
    names: "fine_label_names.txt",
    labels: 2,
    classes: 100,
};

/// The folder with CIFAR's files: `path`, or the one that the published archive unpacks to in it.
pub(super) fn find_cifar(path: &Path) -> Option<(PathBuf, &'static Cifar)> {
    let folders = ["", CIFAR10.folder, CIFAR100.folder].map(|name| path.join(name));
    folders.into_iter().find_map(|folder| {
        let has_files = |layout: &&Cifar| folder.join(layout.train[0]).is_file();
        let layout = [&CIFAR10, &CIFAR100].into_iter().find(has_files)?;
        Some((folder, layout))
    })
}

pub(super) fn load_cifar(folder: &Path, layout: &Cifar) -> Result<DataSet> {
    let mut hash = Sha256::new();
    let mut read = |files: &[&str]| {
        let mut samples = Samples::new(CIFAR_SHAPE.to_vec(), Vec::new(), Vec::new());
        for file in files {
            append_cifar(&mut samples, &folder.join(file), layout, &mut hash)?;
        }
        Ok::<_, TrainError>(samples)
    };
    let (train, test) = (read(layout.train)?, read(&[layout.test])?);
    Ok(DataSet::new(train, test, class_names(&folder.join(layout.names)), hash))
}

fn append_cifar(to: &mut Samples, path: &Path, layout: &Cifar, hash: &mut Sha256) -> Result<()> {
    let contents = read_whole(path, MAX_CIFAR_BYTES)?;
    let (length, record) = (contents.len(), layout.labels + to.sample_len());
    let is_whole = length > 0 && length.is_multiple_of(record);
    let problem = format!("has {length} bytes, not a whole number of records of {record}");
    ensure!(is_whole, damaged(path, &problem));
    hash.update(&contents);
    for record in contents.chunks_exact(record) {
        let (labels, pixels) = record.split_at(layout.labels);
        let label = labels.last().copied().unwrap_or_default();
        if label >= layout.classes {
            let (record, classes) = (to.labels.len(), layout.classes);
            let problem = format!("record {record} has label {label}, there are {classes} classes");
            return Err(damaged(path, &problem));
        }
        to.labels.push(label);
        to.values.extend(scaled(pixels));
    }
    Ok(())
}
