//! Image folders: `train/CLASS/*.png|jpg|jpeg` and `test/CLASS/...`; without labels `train/*.png`
//! and `test/*.png`, or all images in one folder. Classes are numbered, and images read, in the
//! order of their names.
//!
//! Images are decoded on all cores, a batch at a time, so that what is held in memory besides the
//! result stays small.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use sha2::{Digest, Sha256};

use super::{DataSet, MAX_CLASSES, MAX_VALUES, Progress, Samples};
use super::{read_whole, scaled, too_few, too_large, unreadable};
use crate::{Result, TrainError};

pub(super) const BATCH: usize = 256;
/// Of so many images without a split, one is for the test.
const FLAT_TEST: usize = 10;
pub(super) const MAX_IMAGE_BYTES: u64 = 64 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Split {
    Train,
    Test,
}

impl Split {
    /// The one whose folder is called `name`.
    pub(super) fn named(name: &str) -> Option<Self> {
        let mut both = [Self::Train, Self::Test].into_iter();
        both.find(|split| split.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Test => "test",
        }
    }
}

pub(super) struct Image {
    path: PathBuf,
    split: Split,
    /// None for an image without a label.
    class: Option<String>,
    /// The file's contents, if they do not lie at `path`.
    pub(super) bytes: Option<Vec<u8>>,
}

impl Image {
    pub(super) fn new(path: PathBuf, split: Split, class: Option<&str>) -> Self {
        Self {
            path,
            split,
            class: class.map(str::to_owned),
            bytes: None,
        }
    }
}

pub(super) fn load_folder(folder: &Path, progress: Progress<'_>) -> Result<DataSet> {
    let (mut images, mut classes) = (Vec::new(), Vec::new());
    for split in [Split::Train, Split::Test] {
        for (name, place) in children(&folder.join(split.name()))? {
            if place.is_dir() {
                for (file, path) in children(&place)? {
                    if !is_image(&file) {
                        return Err(misplaced(&path, "is neither a png nor a jpeg file"));
                    }
                    images.push(Image::new(path, split, Some(&name)));
                }
                classes.push((split, name));
            } else if is_image(&name) {
                images.push(Image::new(place, split, None));
            }
        }
    }
    let unlabelled = images.iter().find(|image| image.class.is_none());
    if let (false, Some(image)) = (classes.is_empty(), unlabelled) {
        return Err(misplaced(&image.path, "lies in no class's folder"));
    }
    let mut collector = Collector::new(folder, Some(images.len()), progress);
    for (split, class) in &classes {
        collector.class(*split, class);
    }
    collect(images, collector)
}

/// Reads images that lie in one folder: every tenth, in the order of their names, is for the test.
pub(super) fn load_flat(folder: &Path, progress: Progress<'_>) -> Result<DataSet> {
    let mut images = Vec::new();
    for (name, path) in children(folder)? {
        if is_image(&name) {
            let is_test = (images.len() + 1).is_multiple_of(FLAT_TEST);
            let split = if is_test { Split::Test } else { Split::Train };
            images.push(Image::new(path, split, None));
        }
    }
    if images.len() < FLAT_TEST {
        return Err(too_few(folder, images.len(), FLAT_TEST));
    }
    let collector = Collector::new(folder, Some(images.len()), progress);
    collect(images, collector)
}

fn collect(images: Vec<Image>, mut collector: Collector<'_>) -> Result<DataSet> {
    for batch in images.chunks(BATCH) {
        collector.add(batch)?;
    }
    collector.finish()
}

fn children(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let failed = |source| unreadable(folder, &source);
    let mut children = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !is_hidden(&name) {
            children.push((name, entry.path()));
        }
    }
    children.sort();
    Ok(children)
}

/// Images of both splits, in the order in which they came.
pub(super) struct Collector<'a> {
    source: &'a Path,
    progress: Progress<'a>,
    total: Option<usize>,
    decoded: usize,
    /// Number of images of each class of each split.
    classes: BTreeMap<(Split, String), usize>,
    /// Class names by provisional label: the order of the names is only known at the end.
    names: Vec<String>,
    /// Values and provisional labels of training and test; without a shape until the end.
    splits: [Samples; 2],
    shape: Option<[usize; 3]>,
    hash: Sha256,
}

impl<'a> Collector<'a> {
    pub(super) fn new(source: &'a Path, total: Option<usize>, progress: Progress<'a>) -> Self {
        let empty = || Samples::new(Vec::new(), Vec::new(), Vec::new());
        Self {
            source,
            progress,
            total,
            decoded: 0,
            classes: BTreeMap::new(),
            names: Vec::new(),
            splits: [empty(), empty()],
            shape: None,
            hash: Sha256::new(),
        }
    }

    /// Makes a class known, which must then have images.
    pub(super) fn class(&mut self, split: Split, class: &str) {
        self.classes.entry((split, class.to_owned())).or_default();
    }

    pub(super) fn add(&mut self, images: &[Image]) -> Result<()> {
        let decoded = images.par_iter().map(decode).collect::<Result<Vec<_>>>()?;
        for (image, (bytes, shape, values)) in images.iter().zip(decoded) {
            if self.decoded > 0 && image.class.is_some() == self.names.is_empty() {
                let problem = match image.class {
                    Some(_) => "lies in a class's folder, images before it in none",
                    None => "lies in no class's folder, images before it do",
                };
                return Err(misplaced(&image.path, problem));
            }
            let class = image.class.as_deref().unwrap_or_default();
            let (split, length) = (image.split.name(), bytes.len());
            self.hash.update(format!("{split}/{class}:{length}:"));
            self.hash.update(&bytes);
            self.append(image, shape, values)?;
            self.decoded += 1;
        }
        (self.progress)(self.decoded, self.total);
        Ok(())
    }

    fn append(
        &mut self,
        image: &Image,
        [channels, height, width]: [usize; 3],
        mut values: Vec<f32>,
    ) -> Result<()> {
        let wanted = self.shape.get_or_insert([channels, height, width]);
        let [wanted_channels, wanted_height, wanted_width] = *wanted;
        if (height, width) != (wanted_height, wanted_width) {
            let problem = format!(
                "is {width} x {height} pixels, those before it are {wanted_width} x \
                    {wanted_height}; bring all images to one size"
            );
            return Err(TrainError::input(&image.path, problem));
        }
        let pixels = height * width;
        let held: usize = self.splits.iter().map(|samples| samples.values.len()).sum();
        if held + 3 * pixels > MAX_VALUES {
            let problem = format!("the images have more than {MAX_VALUES} values together");
            return Err(too_large(self.source, &problem));
        }
        // Photographs are seldom all coloured: grey ones among them get three equal channels.
        if channels > wanted_channels {
            wanted[0] = channels;
            for samples in &mut self.splits {
                samples.values = in_colour(&samples.values, pixels);
            }
        } else if channels < wanted_channels {
            values = in_colour(&values, pixels);
        }
        let split = image.split as usize;
        if let Some(class) = &image.class {
            let class_of_split = (image.split, class.clone());
            *self.classes.entry(class_of_split).or_default() += 1;
            let label = self.label(class)?;
            self.splits[split].labels.push(label);
        }
        self.splits[split].values.append(&mut values);
        Ok(())
    }

    fn label(&mut self, class: &str) -> Result<u8> {
        let known = self.names.iter().position(|name| name == class);
        let label = known.unwrap_or(self.names.len());
        if known.is_none() {
            self.names.push(class.to_owned());
        }
        u8::try_from(label).map_err(|_| {
            let found = self.names.len();
            let problem = format!("has {found} classes, at most {MAX_CLASSES} can be trained");
            TrainError::input(self.source, problem + "; leave some out")
        })
    }

    /// All images; classes are numbered in the order of their names.
    pub(super) fn finish(mut self) -> Result<DataSet> {
        for ((split, class), &images) in &self.classes {
            let folder = self.source.join(split.name());
            if images == 0 {
                let problem = "has no images; put some there or remove the class";
                return Err(TrainError::input(&folder.join(class), problem));
            }
            if !self.classes.contains_key(&(Split::Train, class.clone())) {
                let problem = format!("the training images have no class {class:?}");
                let fix = "; remove it or add training images";
                return Err(TrainError::input(&folder, problem + fix));
            }
        }
        let mut class_names = self.names.clone();
        class_names.sort();
        let order = |name: &String| class_names.binary_search(name).unwrap_or_default() as u8;
        let order: Vec<u8> = self.names.iter().map(order).collect();
        for (samples, split) in self.splits.iter_mut().zip([Split::Train, Split::Test]) {
            if samples.values.is_empty() {
                return Err(too_few(&self.source.join(split.name()), 0, 1));
            }
            samples.shape = self.shape.unwrap_or_default().to_vec();
            for label in &mut samples.labels {
                *label = order[usize::from(*label)];
            }
        }
        let [train, test] = self.splits;
        Ok(DataSet::new(train, test, class_names, self.hash))
    }
}

fn in_colour(values: &[f32], pixels: usize) -> Vec<f32> {
    let planes = values.chunks_exact(pixels.max(1));
    planes.flat_map(|plane| plane.repeat(3)).collect()
}

/// Returns true if a file's name says that it is an image that can be read.
pub(super) fn is_image(name: &str) -> bool {
    let end = name
        .rsplit_once('.')
        .map(|(_, end)| end.to_ascii_lowercase());
    matches!(end.as_deref(), Some("png" | "jpg" | "jpeg"))
}

/// Returns true if a file is none of the user's data, such as what a file manager leaves behind.
pub(super) fn is_hidden(name: &str) -> bool {
    name.starts_with('.') || matches!(name, "Thumbs.db" | "desktop.ini" | "__MACOSX")
}

pub(super) fn misplaced(path: &Path, problem: &str) -> TrainError {
    let wanted = "an image folder has train/CLASS/*.png or *.jpg, and test/CLASS/...; or, without \
        labels, no CLASS at all";
    TrainError::input(path, format!("{problem}; {wanted}"))
}

/// A file's contents, the image's shape, and its values with the channels one after the other.
type Decoded<'a> = (Cow<'a, [u8]>, [usize; 3], Vec<f32>);

/// Decodes an image to eight bits a channel, without transparency.
fn decode(image: &Image) -> Result<Decoded<'_>> {
    let bytes: Cow<'_, [u8]> = match &image.bytes {
        Some(bytes) => bytes.into(),
        None => read_whole(&image.path, MAX_IMAGE_BYTES)?.into(),
    };
    let decoded = image::load_from_memory(&bytes).map_err(|error| {
        let reason = error.to_string();
        let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
        let fix = "images are png or jpeg: convert it, or fetch it again";
        TrainError::input(&image.path, format!("{reason}; {fix}"))
    })?;
    let (width, height) = (decoded.width() as usize, decoded.height() as usize);
    if !decoded.color().has_color() {
        let values = scaled(decoded.into_luma8().as_raw());
        return Ok((bytes, [1, height, width], values));
    }
    let pixels = scaled(decoded.into_rgb8().as_raw());
    let plane = |channel: usize| pixels.iter().skip(channel).step_by(3).copied();
    let values = (0..3).flat_map(plane).collect();
    Ok((bytes, [3, height, width], values))
}
