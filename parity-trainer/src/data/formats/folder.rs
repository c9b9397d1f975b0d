//! Image folders: `train/CLASS/*.png|jpg|jpeg` and `test/CLASS/...`; without labels `train/*.png`
//! and `test/*.png`, or all images in one folder. Classes are numbered, and images read, in the
//! order of their names.

use std::fs;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::images::{Collector, Encoded, Split, is_hidden, is_image};
use crate::data::{DataError, LoadProgress, Loaded};

/// Files that are read together.
const BATCH: usize = 256;
/// Of so many images without a split, one is for the test.
const FLAT_TEST: usize = 10;
/// Most bytes of an image file.
pub(super) const MAX_IMAGE_BYTES: u64 = 64 << 20;

#[derive(Debug)]
struct Image {
    path: PathBuf,
    split: Split,
    class: Option<String>,
}

pub(in crate::data) fn load(
    folder: &Path,
    progress: &mut dyn FnMut(LoadProgress),
) -> Result<Loaded, DataError> {
    let mut images = Vec::new();
    let mut classes = Vec::new();
    for split in [Split::Train, Split::Test] {
        for (name, place) in children(&folder.join(split.name()))? {
            if place.is_dir() {
                classes.push((split, name.clone()));
                for (file, path) in children(&place)? {
                    if !is_image(&file) {
                        let problem = "is neither a png nor a jpeg file";
                        return Err(DataError::Misplaced { path, problem });
                    }
                    images.push(Image {
                        path,
                        split,
                        class: Some(name.clone()),
                    });
                }
            } else if is_image(&name) {
                images.push(Image {
                    path: place,
                    split,
                    class: None,
                });
            }
        }
    }
    if !classes.is_empty()
        && let Some(image) = images.iter().find(|image| image.class.is_none())
    {
        let problem = "lies in no class's folder";
        return Err(DataError::Misplaced {
            path: image.path.clone(),
            problem,
        });
    }
    let mut collector = Collector::new(folder, Some(images.len()), progress);
    for (split, class) in &classes {
        collector.class(*split, class);
    }
    collect(&images, collector)
}

/// Returns true if images lie in `folder` itself.
pub(in crate::data) fn is_flat(names: &[String]) -> bool {
    names.iter().any(|name| is_image(name))
}

/// Reads images that lie in one folder: every tenth, in the order of their names, is for the test.
pub(in crate::data) fn load_flat(
    folder: &Path,
    progress: &mut dyn FnMut(LoadProgress),
) -> Result<Loaded, DataError> {
    let files = children(folder)?
        .into_iter()
        .filter(|(name, _)| is_image(name));
    let image = |(at, (_, path)): (usize, (String, PathBuf))| {
        let split = if (at + 1).is_multiple_of(FLAT_TEST) {
            Split::Test
        } else {
            Split::Train
        };
        Image {
            path,
            split,
            class: None,
        }
    };
    let images: Vec<Image> = files.enumerate().map(image).collect();
    if images.len() < FLAT_TEST {
        let (path, found) = (folder.to_path_buf(), images.len());
        return Err(DataError::TooFew {
            path,
            found,
            wanted: FLAT_TEST,
        });
    }
    let collector = Collector::new(folder, Some(images.len()), progress);
    collect(&images, collector)
}

fn collect(images: &[Image], mut collector: Collector<'_>) -> Result<Loaded, DataError> {
    for batch in images.chunks(BATCH) {
        let read: Vec<Encoded> = batch.par_iter().map(read).collect::<Result<_, _>>()?;
        for image in read {
            collector.add(image)?;
        }
    }
    collector.finish()
}

/// Returns the entries of a folder, by name, without hidden ones.
fn children(folder: &Path) -> Result<Vec<(String, PathBuf)>, DataError> {
    let failed = |source| DataError::Read {
        path: folder.to_path_buf(),
        source,
    };
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

fn read(image: &Image) -> Result<Encoded, DataError> {
    let failed = |source| DataError::Read {
        path: image.path.clone(),
        source,
    };
    let length = fs::metadata(&image.path).map_err(failed)?.len();
    if length > MAX_IMAGE_BYTES {
        let problem = format!("has {length} bytes, an image has at most {MAX_IMAGE_BYTES}");
        return Err(DataError::TooLarge {
            path: image.path.clone(),
            problem,
        });
    }
    let bytes = fs::read(&image.path).map_err(failed)?;
    let Image { path, split, class } = image;
    Ok(Encoded {
        path: path.clone(),
        split: *split,
        class: class.clone(),
        bytes,
    })
}
