//! Detection of the format of data.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use super::formats::{archive, cifar, folder, idx, npz, safetensors};
use super::{DataError, LoadProgress, Loaded};

/// A data set that was found, in one of the formats there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// A folder with MNIST's four files.
    Idx(PathBuf),
    /// A folder with CIFAR's binary files.
    Cifar(PathBuf),
    /// A folder with `train/CLASS/` and `test/CLASS/`, or with images right in the two.
    ImageFolder(PathBuf),
    /// A folder with images without split or labels.
    Images(PathBuf),
    /// An image folder in a tar file, compressed or not.
    ImageArchive(PathBuf),
    Npz(PathBuf),
    /// Arrays as safetensors.
    Safetensors(PathBuf),
}

/// Finds out what `path` is: folders by the names in them, files by their first bytes and then
/// by their name.
pub(super) fn recognise(path: &Path) -> Result<Source, DataError> {
    let unrecognised = || DataError::Unrecognised {
        path: path.to_path_buf(),
    };
    if path.is_file() {
        return file(path)?.ok_or_else(unrecognised);
    }
    let names = match fs::read_dir(path) {
        Ok(entries) => entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()),
        Err(_) => return Err(unrecognised()),
    };
    let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    if names
        .iter()
        .any(|name| name.contains("-idx") && name.contains("-ubyte"))
    {
        return Ok(Source::Idx(path.to_path_buf()));
    }
    if let Some(folder) = cifar::find(path) {
        return Ok(Source::Cifar(folder));
    }
    if path.join("train").is_dir() && path.join("test").is_dir() {
        return Ok(Source::ImageFolder(path.to_path_buf()));
    }
    let mut data = names.iter().filter(|name| has_known_end(name));
    match (data.next(), data.next()) {
        (Some(name), None) => file(&path.join(name))?.ok_or_else(unrecognised),
        (Some(first), Some(second)) => {
            let (path, first, second) = (path.to_path_buf(), first.clone(), second.clone());
            Err(DataError::Ambiguous {
                path,
                first,
                second,
            })
        }
        (None, _) if folder::is_flat(&names) => Ok(Source::Images(path.to_path_buf())),
        (None, _) => Err(unrecognised()),
    }
}

const ARCHIVES: [&str; 3] = [".tar", ".tar.gz", ".tgz"];
const SAFETENSORS: &str = ".safetensors";
const NPZ: &str = ".npz";

fn has_known_end(name: &str) -> bool {
    ARCHIVES
        .iter()
        .chain([&SAFETENSORS, &NPZ])
        .any(|end| name.ends_with(end))
}

fn file(path: &Path) -> Result<Option<Source>, DataError> {
    let name = path.to_string_lossy();
    let mut start = [0; 4];
    let failed = |source| DataError::Read {
        path: path.to_path_buf(),
        source,
    };
    let read = File::open(path)
        .map_err(failed)?
        .take(4)
        .read(&mut start)
        .map_err(failed)?;
    let path = path.to_path_buf();
    Ok(
        if start == parapet_datasets::npz::ZIP_MAGIC || name.ends_with(NPZ) {
            Some(Source::Npz(path))
        } else if ARCHIVES.iter().any(|end| name.ends_with(end)) && read > 0 {
            Some(Source::ImageArchive(path))
        } else if name.ends_with(SAFETENSORS) {
            Some(Source::Safetensors(path))
        } else {
            None
        },
    )
}

impl Source {
    pub(super) fn load(&self, progress: &mut dyn FnMut(LoadProgress)) -> Result<Loaded, DataError> {
        match self {
            Self::Idx(folder) => idx::load(folder),
            Self::Cifar(folder) => cifar::load(folder),
            Self::ImageFolder(path) => folder::load(path, progress),
            Self::Images(path) => folder::load_flat(path, progress),
            Self::ImageArchive(path) => archive::load(path, progress),
            Self::Npz(path) => npz::load(path),
            Self::Safetensors(path) => safetensors::load(path),
        }
    }
}
