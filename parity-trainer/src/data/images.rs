//! Image folders: `train/CLASS/*.png|jpg|jpeg` and `test/CLASS/...`; without labels `train/*.png`
//! and `test/*.png`, or all images in one folder. Classes are numbered, and images read, in the
//! order of their names.
//!
//! Images are decoded on all cores, a batch at a time: little is held in memory besides the result.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use parapet_onnx::runtime::one_line;
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use strum::{Display, EnumString};

use super::{DataSet, MAX_CLASSES, MAX_VALUES, Progress, Samples};
use super::{read_whole, scaled, too_few, too_large, unreadable};
use crate::{Result, TrainError};

const BATCH: usize = 256;
/// Of so many images without a split, one is for the test.
const FLAT_TEST: usize = 10;
pub(super) const MAX_IMAGE_BYTES: u64 = 64 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Display, EnumString)]
#[strum(serialize_all = "snake_case")]
pub(super) enum Split {
    Train,
    Test,
}

pub(super) struct Image {
    path: PathBuf,
    split: Split,
    class: Option<String>,
    /// The file's contents, if they do not lie at `path`.
    pub(super) bytes: Option<Vec<u8>>,
}

impl Image {
    pub(super) fn new(path: PathBuf, split: Split, class: Option<&str>) -> Self {
        Self { path, split, class: class.map(str::to_owned), bytes: None }
    }
}

/// Classes of each split whose folders are there, and which must have images.
pub(super) type Classes = BTreeSet<(Split, String)>;

pub(super) fn load_folder(folder: &Path, progress: Progress<'_>) -> Result<DataSet> {
    let (mut images, mut classes) = (Vec::new(), Classes::new());
    for split in [Split::Train, Split::Test] {
        for (name, place) in children(&folder.join(split.to_string()))? {
            if place.is_dir() {
                for (file, path) in children(&place)? {
                    ensure!(is_image(&file), misplaced(&path, "is neither a png nor a jpeg file"));
                    images.push(Image::new(path, split, Some(&name)));
                }
                classes.insert((split, name));
            } else if is_image(&name) {
                images.push(Image::new(place, split, None));
            }
        }
    }
    decode_all(folder, &images, &classes, progress)
}

/// Reads images that lie in one folder: every tenth, in the order of their names, is for the test.
pub(super) fn load_flat(folder: &Path, progress: Progress<'_>) -> Result<DataSet> {
    let mut images = Vec::new();
    for (name, path) in children(folder)? {
        if is_image(&name) {
            let is_test = (images.len() + 1).is_multiple_of(FLAT_TEST);
            images.push(Image::new(path, if is_test { Split::Test } else { Split::Train }, None));
        }
    }
    ensure!(images.len() >= FLAT_TEST, too_few(folder, images.len(), FLAT_TEST));
    decode_all(folder, &images, &Classes::new(), progress)
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

/// Decodes the images of `source`, in their order; classes are numbered in their names' order.
pub(super) fn decode_all(
    source: &Path,
    images: &[Image],
    classes: &Classes,
    progress: Progress<'_>,
) -> Result<DataSet> {
    let names = class_names(source, images, classes)?;
    let empty = || Samples::new(Vec::new(), Vec::new(), Vec::new());
    let mut decoded = Decoded { splits: [empty(), empty()], shape: None };
    let mut hash = Sha256::new();
    for (at, batch) in images.chunks(BATCH).enumerate() {
        let pixels = batch.par_iter().map(decode).collect::<Result<Vec<_>>>()?;
        for (image, (bytes, shape, values)) in batch.iter().zip(pixels) {
            let class = image.class.as_deref().unwrap_or_default();
            let (split, length) = (image.split.to_string(), bytes.len());
            hash.update(format!("{split}/{class}:{length}:"));
            hash.update(&bytes);
            decoded.append(source, image, shape, values)?;
            if image.class.is_some() {
                let label = names.partition_point(|name| name.as_str() < class);
                decoded.splits[image.split as usize].labels.push(label as u8);
            }
        }
        progress(at * BATCH + batch.len(), Some(images.len()));
    }
    let shape = decoded.shape.unwrap_or_default().to_vec();
    for (samples, split) in decoded.splits.iter_mut().zip([Split::Train, Split::Test]) {
        ensure!(!samples.values.is_empty(), too_few(&source.join(split.to_string()), 0, 1));
        samples.shape.clone_from(&shape);
    }
    let [train, test] = decoded.splits;
    Ok(DataSet::new(train, test, names, hash))
}

/// The classes' names in their order. Each has training images, and images in each folder.
fn class_names(source: &Path, images: &[Image], classes: &Classes) -> Result<Vec<String>> {
    let unlabelled = images.iter().find(|image| image.class.is_none());
    if let (false, Some(image)) = (classes.is_empty(), unlabelled) {
        return Err(misplaced(&image.path, "lies in no class's folder, others do"));
    }
    let class = |image: &Image| Some((image.split, image.class.clone()?));
    let filled: Classes = images.iter().filter_map(class).collect();
    let mut names = BTreeSet::new();
    for (split, class) in classes {
        let folder = source.join(split.to_string());
        let has_images = |split| filled.contains(&(split, class.clone()));
        let problem = "has no images; put some there or remove the class";
        ensure!(has_images(*split), TrainError::input(&folder.join(class), problem));
        let problem = format!(
            "the training images have no class {class:?}; remove it or add training images"
        );
        ensure!(has_images(Split::Train), TrainError::input(&folder, problem));
        names.insert(class.clone());
    }
    let found = names.len();
    let problem = format!("has {found} classes, at most {MAX_CLASSES} can be trained");
    ensure!(found <= MAX_CLASSES, TrainError::input(source, problem + "; leave some out"));
    Ok(names.into_iter().collect())
}

/// Images of both splits so far; without a shape in the samples.
struct Decoded {
    splits: [Samples; 2],
    shape: Option<[usize; 3]>,
}

impl Decoded {
    fn append(
        &mut self,
        source: &Path,
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
        let problem = format!("the images have more than {MAX_VALUES} values together");
        ensure!(held + 3 * pixels <= MAX_VALUES, too_large(source, &problem));
        // Photographs are seldom all coloured: grey ones among them get three equal channels.
        if channels > wanted_channels {
            wanted[0] = channels;
            for samples in &mut self.splits {
                samples.values = in_colour(&samples.values, pixels);
            }
        } else if channels < wanted_channels {
            values = in_colour(&values, pixels);
        }
        self.splits[image.split as usize].values.append(&mut values);
        Ok(())
    }
}

fn in_colour(values: &[f32], pixels: usize) -> Vec<f32> {
    values.chunks_exact(pixels.max(1)).flat_map(|plane| plane.repeat(3)).collect()
}

pub(super) fn is_image(name: &str) -> bool {
    let end = name.rsplit_once('.').map(|(_, end)| end.to_ascii_lowercase());
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
type Pixels<'a> = (Cow<'a, [u8]>, [usize; 3], Vec<f32>);

/// Decodes an image to eight bits a channel, without transparency.
fn decode(image: &Image) -> Result<Pixels<'_>> {
    let bytes: Cow<'_, [u8]> = match &image.bytes {
        Some(bytes) => bytes.into(),
        None => read_whole(&image.path, MAX_IMAGE_BYTES)?.into(),
    };
    let decoded = image::load_from_memory(&bytes).map_err(|error| {
        let fix = "images are png or jpeg: convert it, or fetch it again";
        TrainError::input(&image.path, format!("{}; {fix}", one_line(&error)))
    })?;
    let (width, height) = (decoded.width() as usize, decoded.height() as usize);
    if !decoded.color().has_color() {
        return Ok((bytes, [1, height, width], scaled(decoded.into_luma8().as_raw())));
    }
    let pixels = scaled(decoded.into_rgb8().as_raw());
    let plane = |channel: usize| pixels.iter().skip(channel).step_by(3).copied();
    Ok((bytes, [3, height, width], (0..3).flat_map(plane).collect()))
}
