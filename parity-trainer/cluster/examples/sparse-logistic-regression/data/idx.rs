//! Rows of bytes in IDX files.

use std::path::Path;

use parapet_datasets::idx::read_idx;

use super::{DataError, file};
use crate::Rows;

pub(super) fn load(folder: &Path) -> Result<(u32, Rows, Rows), DataError> {
    let (features, train) = part(folder, "train-images-idx", "train-labels-idx", None)?;
    let (_, held_out) = part(folder, "t10k-images-idx", "t10k-labels-idx", Some(features))?;
    Ok((u32::try_from(features).unwrap_or(u32::MAX), train, held_out))
}

/// The rows of one pair of files, and how many features they have.
fn part(
    folder: &Path,
    rows: &'static str,
    labels: &'static str,
    wanted: Option<usize>,
) -> Result<(usize, Rows), DataError> {
    let (path, label_path) = (file(folder, rows)?, file(folder, labels)?);
    let (idx, labels) = (read_idx(&path)?, read_idx(&label_path)?.bytes);
    let features = idx.dims.iter().skip(1).product::<usize>();
    if idx.dims.first() != Some(&labels.len()) || features == 0 || u32::try_from(features).is_err()
    {
        return Err(DataError::Shape {
            path,
            rows: idx.dims,
            labels: labels.len(),
        });
    }
    if labels.is_empty() {
        return Err(DataError::Empty(path));
    }
    if let Some(wanted) = wanted.filter(|&wanted| wanted != features) {
        return Err(DataError::Features {
            path,
            found: features,
            wanted,
        });
    }
    let mut read = Rows::default();
    for (row, (bytes, &label)) in idx.bytes.chunks_exact(features).zip(&labels).enumerate() {
        if label > 1 {
            return Err(DataError::Label {
                path: label_path,
                row: row + 1,
                found: label.to_string(),
            });
        }
        let values = (0..).zip(bytes).filter(|&(_, &byte)| byte > 0);
        let values = values.map(|(feature, &byte)| (feature, f32::from(byte) / 255.0));
        let intercept = (u32::try_from(features).unwrap_or(u32::MAX), 1.0);
        read.push(label == 1, values.chain([intercept]));
    }
    Ok((features, read))
}
