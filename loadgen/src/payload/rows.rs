//! Samples with their classes, from IDX files.

use std::path::Path;

use anyhow::{bail, ensure};
use parapet_datasets::idx::read_idx;

/// Samples of one shape; with their classes where these are known.
#[derive(Debug, Clone)]
pub struct Rows {
    pub shape: Vec<usize>,
    /// Number of samples; at least one.
    pub count: usize,
    bytes: Vec<u8>,
    labels: Option<Vec<u8>>,
    /// Files of the samples and the classes.
    pub names: (String, Option<String>),
}

impl Rows {
    /// Reads a file of samples and, where there is one, one of classes.
    pub fn load(images: &Path, labels: Option<&Path>) -> anyhow::Result<Self> {
        let idx = read_idx(images)?;
        let (count, shape) = match idx.dims.as_slice() {
            [count, shape @ ..] if !shape.is_empty() => (*count, shape.to_vec()),
            _ => bail!("{}", wrong_axes(images, idx.dims.len())),
        };
        let images = images.display();
        ensure!(
            !idx.bytes.is_empty(),
            "{images}: holds no samples; use a file that does"
        );
        let mut names = (images.to_string(), None);
        let mut classes = None;
        if let Some(path) = labels {
            let labels = read_idx(path)?;
            let axes = labels.dims.len();
            ensure!(axes == 1, "{}", wrong_axes(path, axes));
            let (path, known) = (path.display(), labels.bytes.len());
            ensure!(
                known == count,
                "{images} has {count} samples but {path} has {known} labels; give two files that \
                 belong together"
            );
            names.1 = Some(path.to_string());
            classes = Some(labels.bytes);
        }
        Ok(Self {
            shape,
            count,
            bytes: idx.bytes,
            labels: classes,
            names,
        })
    }

    pub fn sample_len(&self) -> usize {
        self.shape.iter().product()
    }

    /// The values of sample `row`, scaled to `0.0..=1.0`; empty if there is no such sample.
    pub fn sample(&self, row: usize) -> Vec<f32> {
        let length = self.sample_len();
        let bytes = self.bytes.get(row * length..(row + 1) * length);
        let bytes = bytes.unwrap_or_default().iter();
        bytes.map(|&byte| f32::from(byte) / 255.0).collect()
    }

    pub fn label(&self, row: usize) -> Option<usize> {
        self.labels.as_ref()?.get(row).copied().map(usize::from)
    }
}

fn wrong_axes(path: &Path, axes: usize) -> String {
    format!(
        "{}: has {axes} axes; images want 2 or more (count, then a sample's), labels 1; check \
         which file is which",
        path.display()
    )
}
