//! MNIST's four IDX files, or the two of images alone; `classes.txt` beside them may name the
//! classes, one a line.

use std::fs;
use std::path::{Path, PathBuf};

use parapet_datasets::idx::{Idx, read_idx};
use sha2::{Digest, Sha256};

use crate::data::{DataError, Loaded, Samples, scaled};

const CLASSES: &str = "classes.txt";
const TRAIN: &str = "train";
const TEST: &str = "t10k";

pub(in crate::data) fn load(folder: &Path) -> Result<Loaded, DataError> {
    let mut hash = Sha256::new();
    // Labels of one part only are more likely a forgotten file than a wish.
    let labelled = [TRAIN, TEST]
        .iter()
        .any(|split| find(folder, &[&labels_of(split)]).is_some());
    let train = load_split(folder, TRAIN, labelled, &mut hash)?;
    let test = load_split(folder, TEST, labelled, &mut hash)?;
    let class_names = fs::read_to_string(folder.join(CLASSES))
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

fn labels_of(split: &str) -> String {
    format!("{split}-labels-idx1-ubyte")
}

fn load_split(
    folder: &Path,
    split: &str,
    labelled: bool,
    hash: &mut Sha256,
) -> Result<Samples, DataError> {
    let (images_path, images) = load_file(
        folder,
        &[
            &format!("{split}-images-idx3-ubyte"),
            &format!("{split}-images-idx2-ubyte"),
        ],
    )?;
    let labels = if labelled {
        Some(load_file(folder, &[&labels_of(split)])?)
    } else {
        None
    };
    let shape = match images.dims.as_slice() {
        &[_, features] => vec![features],
        &[_, height, width] => vec![1, height, width],
        dims => {
            return Err(DataError::Dimensions {
                path: images_path,
                dims: dims.len(),
            });
        }
    };
    if images.bytes.is_empty() {
        return Err(DataError::TooFew {
            path: images_path,
            found: 0,
            wanted: 1,
        });
    }
    let mut note = |file: &Idx| {
        hash.update(format!("{:?}", file.dims));
        hash.update(&file.bytes);
    };
    note(&images);
    let labels = match labels {
        None => Vec::new(),
        Some((labels_path, labels)) => {
            let &[label_count] = labels.dims.as_slice() else {
                return Err(DataError::Dimensions {
                    path: labels_path,
                    dims: labels.dims.len(),
                });
            };
            let count = images.dims.first().copied().unwrap_or_default();
            if count != label_count {
                let (images, labels) = (count, label_count);
                return Err(DataError::CountMismatch {
                    images_path,
                    images,
                    labels_path,
                    labels,
                });
            }
            note(&labels);
            labels.bytes
        }
    };
    Ok(Samples {
        shape,
        values: scaled(&images.bytes),
        labels,
    })
}

fn load_file(folder: &Path, stems: &[&str]) -> Result<(PathBuf, Idx), DataError> {
    let missing = || {
        let stem = stems.first().copied().unwrap_or_default().to_owned();
        DataError::Missing {
            folder: folder.to_path_buf(),
            stem,
        }
    };
    let path = find(folder, stems).ok_or_else(missing)?;
    let idx = read_idx(&path)?;
    Ok((path, idx))
}

/// The first of the files that is there, compressed or not.
fn find(folder: &Path, stems: &[&str]) -> Option<PathBuf> {
    let names = stems
        .iter()
        .flat_map(|stem| [format!("{stem}.gz"), (*stem).to_owned()]);
    names
        .map(|name| folder.join(name))
        .find(|path| path.is_file())
}
