//! Samples with their classes, from IDX or `.npz` files.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;

use anyhow::{bail, ensure};
use parapet_datasets::idx::read_idx;
use parapet_datasets::npz::{Npz, ZIP_MAGIC};

use super::npz::{self, Values};

#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    pub images: &'a Path,
    /// IDX or `.npz` file of their classes; those of an `.npz` file of samples may be in it.
    pub labels: Option<&'a Path>,
    pub images_key: Option<&'a str>,
    pub labels_key: Option<&'a str>,
}

/// Samples of one shape; with their classes where these are known.
#[derive(Debug, Clone)]
pub struct Rows {
    pub shape: Vec<usize>,
    /// Number of samples; at least one.
    pub count: usize,
    values: Values,
    labels: Option<Vec<usize>>,
    /// Where samples and classes come from: a file, or an array of one.
    pub names: (String, Option<String>),
}

impl Rows {
    /// Reads a file of samples and, where there is one, one of classes. Their contents tell IDX
    /// from `.npz`.
    pub fn load(source: Source<'_>) -> anyhow::Result<Self> {
        let path = source.images;
        let (name, dims, values) = if let Some(mut npz) = open_npz(path)? {
            let (array, dims, values) = npz::images(&mut npz, source.images_key)?;
            (named(path, &array), dims, values)
        } else {
            refuse_key(path, source.images_key, "--images-key")?;
            let idx = read_idx(path)?;
            (
                path.display().to_string(),
                idx.dims,
                Values::Bytes(idx.bytes),
            )
        };
        let (count, shape) = match dims.as_slice() {
            [count, shape @ ..] if !shape.is_empty() => (*count, shape.to_vec()),
            _ => bail!("{}", wrong_axes(path, dims.len())),
        };
        let empty = match &values {
            Values::Bytes(bytes) => bytes.is_empty(),
            Values::Floats(floats) => floats.is_empty(),
        };
        ensure!(
            !empty,
            "{}: holds no samples; use a file that does",
            path.display()
        );
        let (labels_name, labels) = read_labels(source)?.unzip();
        if let Some(known) = labels.as_ref().map(Vec::len) {
            let (path, labels_path) = (path.display(), source.labels.unwrap_or(path).display());
            ensure!(
                known == count,
                "{path} has {count} samples but {labels_path} has {known} labels; give two files \
                 that belong together"
            );
        }
        Ok(Self {
            shape,
            count,
            values,
            labels,
            names: (name, labels_name),
        })
    }

    pub fn sample_len(&self) -> usize {
        self.shape.iter().product()
    }

    /// The values of sample `row`, bytes scaled to `0.0..=1.0`; empty if there is no such sample.
    pub fn sample(&self, row: usize) -> Vec<f32> {
        let length = self.sample_len();
        let range = row * length..(row + 1) * length;
        match &self.values {
            Values::Bytes(bytes) => {
                let bytes = bytes.get(range).unwrap_or_default().iter();
                bytes.map(|&byte| f32::from(byte) / 255.0).collect()
            }
            Values::Floats(floats) => floats.get(range).unwrap_or_default().to_vec(),
        }
    }

    pub fn label(&self, row: usize) -> Option<usize> {
        self.labels.as_ref()?.get(row).copied()
    }
}

/// The file as `.npz`; `None` if it is something else, or cannot be read, which the reader of
/// IDX then reports.
fn open_npz(path: &Path) -> anyhow::Result<Option<Npz>> {
    let Ok(mut file) = File::open(path) else {
        return Ok(None);
    };
    let mut start = [0; ZIP_MAGIC.len()];
    if file.read_exact(&mut start).is_err() || start != ZIP_MAGIC || file.rewind().is_err() {
        return Ok(None);
    }
    npz::open(path, file).map(Some)
}

fn named(path: &Path, array: &str) -> String {
    format!("{}[{array}]", path.display())
}

fn wrong_axes(path: &Path, axes: usize) -> String {
    format!(
        "{}: has {axes} axes; images want 2 or more (count, then a sample's), labels 1; check \
         which file is which",
        path.display()
    )
}

fn refuse_key(path: &Path, key: Option<&str>, option: &str) -> anyhow::Result<()> {
    if let Some(key) = key {
        let path = path.display();
        bail!("{path}: is no .npz file, so it has no array {key:?}; leave out {option}");
    }
    Ok(())
}

fn read_labels(source: Source<'_>) -> anyhow::Result<Option<(String, Vec<usize>)>> {
    let path = source.labels.unwrap_or(source.images);
    if let Some(mut npz) = open_npz(path)? {
        let found = npz::labels(&mut npz, source.labels_key, source.labels.is_some())?;
        return Ok(found.map(|(array, labels)| (named(path, &array), labels)));
    }
    refuse_key(path, source.labels_key, "--labels-key")?;
    if source.labels.is_none() {
        return Ok(None);
    }
    let labels = read_idx(path)?;
    let axes = labels.dims.len();
    ensure!(axes == 1, "{}", wrong_axes(path, axes));
    let classes = labels.bytes.into_iter().map(usize::from).collect();
    Ok(Some((path.display().to_string(), classes)))
}
