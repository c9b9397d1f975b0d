//! Collects images, with their classes if they have any: decodes them on all cores, a batch at a
//! time, so that what is held in memory besides the result stays small.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use image::{ColorType, DynamicImage, ImageReader};
use rayon::prelude::*;
use sha2::{Digest, Sha256};

use crate::data::{DataError, LoadProgress, Loaded, MAX_CLASSES, MAX_VALUES, Samples, scaled};

/// Images that are decoded together.
const BATCH: usize = 512;
/// Encoded bytes after which a batch is decoded although it is not full.
const BATCH_BYTES: usize = 32 << 20;

/// Part of the data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Split {
    Train,
    Test,
}

impl Split {
    /// The one whose folder is called `name`.
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "train" => Some(Self::Train),
            "test" => Some(Self::Test),
            _ => None,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Test => "test",
        }
    }
}

/// An image file that was not decoded yet.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) path: PathBuf,
    pub(super) split: Split,
    /// None for an image without a label.
    pub(super) class: Option<String>,
    pub(super) bytes: Vec<u8>,
}

/// Grey or red-green-blue, the channels one after the other.
#[derive(Debug, PartialEq)]
struct Decoded {
    channels: usize,
    width: usize,
    height: usize,
    values: Vec<f32>,
}

/// Images of both splits, in the order in which they came.
pub(super) struct Collector<'a> {
    /// Folder or archive, for messages.
    source: PathBuf,
    progress: &'a mut dyn FnMut(LoadProgress),
    total: Option<usize>,
    waiting: Vec<Encoded>,
    waiting_bytes: usize,
    /// Number of images of each class of each split.
    classes: BTreeMap<(Split, String), usize>,
    /// Class names by provisional label: the order of the names is only known at the end.
    labels: Vec<String>,
    /// True if the images seen so far have classes.
    labelled: Option<bool>,
    train: Part,
    test: Part,
    /// Width and height.
    size: Option<(usize, usize)>,
    channels: usize,
    hash: Sha256,
}

#[derive(Debug, Default)]
struct Part {
    images: usize,
    values: Vec<f32>,
    labels: Vec<usize>,
}

impl<'a> Collector<'a> {
    pub(super) fn new(
        source: &Path,
        total: Option<usize>,
        progress: &'a mut dyn FnMut(LoadProgress),
    ) -> Self {
        Self {
            source: source.to_path_buf(),
            progress,
            total,
            waiting: Vec::new(),
            waiting_bytes: 0,
            classes: BTreeMap::new(),
            labels: Vec::new(),
            labelled: None,
            train: Part::default(),
            test: Part::default(),
            size: None,
            channels: 1,
            hash: Sha256::new(),
        }
    }

    /// Makes a class known, which must then have images.
    pub(super) fn class(&mut self, split: Split, class: &str) {
        self.classes.entry((split, class.to_owned())).or_default();
    }

    pub(super) fn add(&mut self, image: Encoded) -> Result<(), DataError> {
        let labelled = image.class.is_some();
        if *self.labelled.get_or_insert(labelled) != labelled {
            let problem = if labelled {
                "lies in a class's folder, images before it in none"
            } else {
                "lies in no class's folder, images before it do"
            };
            return Err(DataError::Misplaced {
                path: image.path,
                problem,
            });
        }
        if let Some(class) = &image.class {
            *self
                .classes
                .entry((image.split, class.clone()))
                .or_default() += 1;
        }
        self.waiting_bytes += image.bytes.len();
        self.waiting.push(image);
        if self.waiting.len() >= BATCH || self.waiting_bytes >= BATCH_BYTES {
            self.decode()?;
        }
        Ok(())
    }

    fn decode(&mut self) -> Result<(), DataError> {
        let waiting = std::mem::take(&mut self.waiting);
        self.waiting_bytes = 0;
        let decoded: Vec<Decoded> = waiting.par_iter().map(decode).collect::<Result<_, _>>()?;
        for (encoded, decoded) in waiting.into_iter().zip(decoded) {
            self.append(&encoded, decoded)?;
        }
        let samples = self.train.images + self.test.images;
        (self.progress)(LoadProgress {
            samples,
            total: self.total,
        });
        Ok(())
    }

    fn append(&mut self, encoded: &Encoded, mut image: Decoded) -> Result<(), DataError> {
        let found = (image.width, image.height);
        let wanted = *self.size.get_or_insert(found);
        if found != wanted {
            return Err(DataError::ImageSize {
                path: encoded.path.clone(),
                found,
                wanted,
            });
        }
        let pixels = found.0 * found.1;
        if self.train.values.len() + self.test.values.len() + 3 * pixels > MAX_VALUES {
            let problem = format!("the images have more than {MAX_VALUES} values together");
            return Err(DataError::TooLarge {
                path: self.source.clone(),
                problem,
            });
        }
        // Photographs are seldom all coloured: grey ones among them get three equal channels.
        if image.channels > self.channels {
            for part in [&mut self.train, &mut self.test] {
                part.values = in_colour(&part.values, pixels);
            }
            self.channels = image.channels;
        } else if image.channels < self.channels {
            image.values = in_colour(&image.values, pixels);
        }
        let class = encoded.class.as_deref().unwrap_or_default();
        self.hash.update(format!(
            "{}/{class}:{}:",
            encoded.split.name(),
            encoded.bytes.len()
        ));
        self.hash.update(&encoded.bytes);
        let label = encoded
            .class
            .as_deref()
            .map(|class| self.label(class))
            .transpose()?;
        let part = match encoded.split {
            Split::Train => &mut self.train,
            Split::Test => &mut self.test,
        };
        part.values.append(&mut image.values);
        part.labels.extend(label);
        part.images += 1;
        Ok(())
    }

    fn label(&mut self, class: &str) -> Result<usize, DataError> {
        if let Some(label) = self.labels.iter().position(|name| name == class) {
            return Ok(label);
        }
        self.labels.push(class.to_owned());
        let found = self.labels.len();
        if found > MAX_CLASSES {
            return Err(DataError::TooManyClasses {
                path: self.source.clone(),
                found,
            });
        }
        Ok(found - 1)
    }

    /// All images; classes are numbered in the order of their names.
    pub(super) fn finish(mut self) -> Result<Loaded, DataError> {
        self.decode()?;
        for ((split, class), &images) in &self.classes {
            let path = || self.source.join(split.name());
            if images == 0 {
                return Err(DataError::EmptyClass {
                    path: path().join(class),
                });
            }
            if !self.classes.contains_key(&(Split::Train, class.clone())) {
                return Err(DataError::UnknownClass {
                    path: path(),
                    class: class.clone(),
                });
            }
        }
        for (split, part) in [(Split::Train, &self.train), (Split::Test, &self.test)] {
            if part.images == 0 {
                let path = self.source.join(split.name());
                return Err(DataError::TooFew {
                    path,
                    found: 0,
                    wanted: 1,
                });
            }
        }
        let (width, height) = self.size.unwrap_or_default();
        let shape = vec![self.channels, height, width];
        let mut class_names = self.labels.clone();
        class_names.sort();
        let order = |name: &String| class_names.binary_search(name).unwrap_or_default() as u8;
        let order: Vec<u8> = self.labels.iter().map(order).collect();
        let samples = |Part { values, labels, .. }: Part| {
            let labels = labels
                .iter()
                .map(|&label| order.get(label).copied().unwrap_or_default())
                .collect();
            Samples {
                shape: shape.clone(),
                values,
                labels,
            }
        };
        let (train, test) = (samples(self.train), samples(self.test));
        Ok(Loaded {
            train,
            test,
            class_names,
            sha256: format!("{:x}", self.hash.finalize()),
        })
    }
}

/// Grey values as three equal channels.
fn in_colour(values: &[f32], pixels: usize) -> Vec<f32> {
    values
        .chunks_exact(pixels.max(1))
        .flat_map(|plane| [plane, plane, plane].concat())
        .collect()
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

/// Decodes an image to eight bits a channel, without transparency.
fn decode(image: &Encoded) -> Result<Decoded, DataError> {
    let failed = |reason: String| DataError::Image {
        path: image.path.clone(),
        reason: reason.split_whitespace().collect::<Vec<_>>().join(" "),
    };
    let reader = ImageReader::new(Cursor::new(&image.bytes)).with_guessed_format();
    let reader = reader.map_err(|source| failed(source.to_string()))?;
    let decoded = reader
        .decode()
        .map_err(|source| failed(source.to_string()))?;
    let (width, height) = (decoded.width() as usize, decoded.height() as usize);
    Ok(match is_grey(&decoded) {
        true => Decoded {
            channels: 1,
            width,
            height,
            values: scaled(decoded.into_luma8().as_raw()),
        },
        false => {
            let pixels = decoded.into_rgb8();
            let plane = |channel: usize| pixels.as_raw().iter().skip(channel).step_by(3);
            let values = (0..3)
                .flat_map(plane)
                .map(|&byte| f32::from(byte) / 255.0)
                .collect();
            Decoded {
                channels: 3,
                width,
                height,
                values,
            }
        }
    })
}

fn is_grey(image: &DynamicImage) -> bool {
    matches!(
        image.color(),
        ColorType::L8 | ColorType::La8 | ColorType::L16 | ColorType::La16
    )
}
