//! The binary versions of CIFAR-10 and CIFAR-100: records of a label (CIFAR-100: a coarse and a
//! fine one) and 3 x 32 x 32 bytes. Source: <https://www.cs.toronto.edu/~kriz/cifar.html>.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::data::{DataError, Loaded, Samples, scaled};

const SHAPE: [usize; 3] = [3, 32, 32];
const PIXELS: usize = 3 * 32 * 32;
/// Most bytes of a file; the largest published one has 154 MB.
const MAX_BYTES: u64 = 1 << 30;

/// Layout of the files of one of the two.
#[derive(Debug)]
struct Layout {
    train: &'static [&'static str],
    test: &'static str,
    names: &'static str,
    /// Labels in front of the pixels; the last one counts.
    labels: usize,
    classes: u8,
    /// Folder that the published archive unpacks to.
    folder: &'static str,
}

const CIFAR10: Layout = Layout {
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
    folder: "cifar-10-batches-bin",
};
const CIFAR100: Layout = Layout {
    train: &["train.bin"],
    test: "test.bin",
    names: "fine_label_names.txt",
    labels: 2,
    classes: 100,
    folder: "cifar-100-binary",
};

fn layout(folder: &Path) -> Option<&'static Layout> {
    [&CIFAR10, &CIFAR100].into_iter().find(|layout| {
        layout
            .train
            .first()
            .is_some_and(|file| folder.join(file).is_file())
    })
}

/// The folder with CIFAR's files: `path` or the one that the published archive unpacks to in it.
pub(in crate::data) fn find(path: &Path) -> Option<PathBuf> {
    let unpacked = [path.join(CIFAR10.folder), path.join(CIFAR100.folder)];
    std::iter::once(path.to_path_buf())
        .chain(unpacked)
        .find(|folder| layout(folder).is_some())
}

pub(in crate::data) fn load(folder: &Path) -> Result<Loaded, DataError> {
    let layout = layout(folder).ok_or_else(|| DataError::Unrecognised {
        path: folder.to_path_buf(),
    })?;
    let mut hash = Sha256::new();
    let mut train = Samples {
        shape: SHAPE.to_vec(),
        values: Vec::new(),
        labels: Vec::new(),
    };
    for file in layout.train {
        append(&mut train, &folder.join(file), layout, &mut hash)?;
    }
    let mut test = Samples {
        shape: SHAPE.to_vec(),
        values: Vec::new(),
        labels: Vec::new(),
    };
    append(&mut test, &folder.join(layout.test), layout, &mut hash)?;
    let class_names = fs::read_to_string(folder.join(layout.names))
        .map(|names| {
            names
                .lines()
                .map(str::trim)
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect()
        })
        .unwrap_or_default();
    Ok(Loaded {
        train,
        test,
        class_names,
        sha256: format!("{:x}", hash.finalize()),
    })
}

fn append(
    to: &mut Samples,
    path: &Path,
    layout: &Layout,
    hash: &mut Sha256,
) -> Result<(), DataError> {
    let failed = |source| DataError::Read {
        path: path.to_path_buf(),
        source,
    };
    let damaged = |problem| DataError::Damaged {
        path: path.to_path_buf(),
        problem,
    };
    let length = fs::metadata(path).map_err(failed)?.len();
    if length > MAX_BYTES {
        let problem = format!("has {length} bytes, no file of CIFAR's has more than {MAX_BYTES}");
        return Err(DataError::TooLarge {
            path: path.to_path_buf(),
            problem,
        });
    }
    let contents = fs::read(path).map_err(failed)?;
    let record = layout.labels + PIXELS;
    if contents.is_empty() || !contents.len().is_multiple_of(record) {
        return Err(damaged(format!(
            "has {} bytes, not a whole number of records of {record}",
            contents.len()
        )));
    }
    hash.update(&contents);
    for record in contents.chunks_exact(record) {
        let (labels, pixels) = record.split_at(layout.labels);
        let label = labels.last().copied().unwrap_or_default();
        if label >= layout.classes {
            let record = to.labels.len();
            return Err(damaged(format!(
                "record {record} has label {label}, there are {} classes",
                layout.classes
            )));
        }
        to.labels.push(label);
        to.values.extend(scaled(pixels));
    }
    Ok(())
}
