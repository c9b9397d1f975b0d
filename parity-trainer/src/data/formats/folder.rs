//! Image folders: `train/CLASS/*.png|jpg|jpeg` and `test/CLASS/...`. Classes are numbered, and images read, in the order of
//! their names.

use std::fs;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::images::{Collector, Encoded, Split, is_hidden, is_image};
use crate::data::{DataError, LoadProgress, Loaded};

/// Files that are read together.
const BATCH: usize = 256;
/// Most bytes of an image file.
pub(super) const MAX_IMAGE_BYTES: u64 = 64 << 20;

/// An image's file.
#[derive(Debug)]
struct Image {
    path: PathBuf,
    split: Split,
    class: String,
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
                    images.push(Image { path, split, class: name.clone() });
                }
            } else if is_image(&name) {
                return Err(DataError::Misplaced { path: place, problem: "lies in no class's folder" });
            }
        }
    }
    let mut collector = Collector::new(folder, Some(images.len()), progress);
    for (split, class) in &classes {
        collector.class(*split, class);
    }
    for batch in images.chunks(BATCH) {
        let read: Vec<Encoded> = batch.par_iter().map(read).collect::<Result<_, _>>()?;
        for image in read {
            collector.add(image)?;
        }
    }
    collector.finish()
}

/// What lies in a folder, by name, without what is hidden.
fn children(folder: &Path) -> Result<Vec<(String, PathBuf)>, DataError> {
    let failed = |source| DataError::Read { path: folder.to_path_buf(), source };
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
    let failed = |source| DataError::Read { path: image.path.clone(), source };
    let length = fs::metadata(&image.path).map_err(failed)?.len();
    if length > MAX_IMAGE_BYTES {
        let problem = format!("has {length} bytes, an image has at most {MAX_IMAGE_BYTES}");
        return Err(DataError::TooLarge { path: image.path.clone(), problem });
    }
    let bytes = fs::read(&image.path).map_err(failed)?;
    let Image { path, split, class } = image;
    Ok(Encoded { path: path.clone(), split: *split, class: class.clone(), bytes })
}
