//! MNIST's four IDX files; `classes.txt` beside them may name the classes, one a line.

use std::fs;
use std::path::{Path, PathBuf};

use parapet_idx::{Idx, read_idx};
use sha2::{Digest, Sha256};

use crate::data::{DataError, Loaded, Samples, hexadecimal, scaled};

const CLASSES: &str = "classes.txt";

pub(in crate::data) fn load(folder: &Path) -> Result<Loaded, DataError> {
    let mut hash = Sha256::new();
    let train = load_split(folder, "train", &mut hash)?;
    let test = load_split(folder, "t10k", &mut hash)?;
    let class_names = fs::read_to_string(folder.join(CLASSES))
        .map(|names| {
            names.lines().map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
        })
        .unwrap_or_default();
    Ok(Loaded { train, test, class_names, sha256: hexadecimal(&hash.finalize()) })
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
    Ok(Samples { shape, values: scaled(&images.bytes), labels: labels.bytes })
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
