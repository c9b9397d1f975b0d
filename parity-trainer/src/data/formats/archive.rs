//! An image folder in a tar file, gzip-compressed or not, read from front to back and never
//! unpacked to disk. Folders around `train` and `test` are passed over.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use super::folder::MAX_IMAGE_BYTES;
use super::images::{Collector, Encoded, Split, is_hidden, is_image};
use crate::data::{DataError, LoadProgress, Loaded};

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

pub(in crate::data) fn load(
    path: &Path,
    progress: &mut dyn FnMut(LoadProgress),
) -> Result<Loaded, DataError> {
    let failed = |source| DataError::Read {
        path: path.to_path_buf(),
        source,
    };
    let mut file = File::open(path).map_err(failed)?;
    let mut start = [0; 2];
    let compressed = file.read_exact(&mut start).is_ok() && start == GZIP_MAGIC;
    file.rewind().map_err(failed)?;
    let file = BufReader::with_capacity(1 << 18, file);
    let mut collector = Collector::new(path, None, progress);
    if compressed {
        collect(path, MultiGzDecoder::new(file), &mut collector)?;
    } else {
        collect(path, file, &mut collector)?;
    }
    collector.finish()
}

fn collect(
    path: &Path,
    contents: impl Read,
    collector: &mut Collector<'_>,
) -> Result<(), DataError> {
    let damaged = |source: io::Error| DataError::Damaged {
        path: path.to_path_buf(),
        problem: format!("truncated or damaged ({source})"),
    };
    let mut archive = tar::Archive::new(contents);
    for entry in archive.entries().map_err(damaged)? {
        let mut entry = entry.map_err(damaged)?;
        let name = entry
            .path()
            .map_err(damaged)?
            .to_string_lossy()
            .into_owned();
        let shown: PathBuf = format!("{}:{name}", path.display()).into();
        let kind = entry.header().entry_type();
        match place(&name, kind.is_dir()) {
            Place::Other => {}
            Place::Class { split, class } => collector.class(split, class),
            Place::Wrong(problem) => {
                return Err(DataError::Misplaced {
                    path: shown,
                    problem,
                });
            }
            Place::Image { split, class } => {
                if !kind.is_file() {
                    let problem = "is a link, not a file";
                    return Err(DataError::Misplaced {
                        path: shown,
                        problem,
                    });
                }
                let length = entry.size();
                if length > MAX_IMAGE_BYTES {
                    let problem =
                        format!("has {length} bytes, an image has at most {MAX_IMAGE_BYTES}");
                    return Err(DataError::TooLarge {
                        path: shown,
                        problem,
                    });
                }
                let mut bytes = Vec::with_capacity(length as usize);
                entry.read_to_end(&mut bytes).map_err(damaged)?;
                if bytes.len() as u64 != length {
                    return Err(damaged(io::ErrorKind::UnexpectedEof.into()));
                }
                collector.add(Encoded {
                    path: shown,
                    split,
                    class: class.map(str::to_owned),
                    bytes,
                })?;
            }
        }
    }
    // To the very end, where a gzip file's checksum stands.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(damaged)?;
    Ok(())
}

/// Place of an entry of the archive.
#[derive(Debug, PartialEq, Eq)]
enum Place<'a> {
    Image {
        split: Split,
        class: Option<&'a str>,
    },
    Class {
        split: Split,
        class: &'a str,
    },
    Wrong(&'static str),
    Other,
}

fn place(name: &str, folder: bool) -> Place<'_> {
    let parts: Vec<&str> = name
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .collect();
    if parts.iter().any(|part| is_hidden(part)) {
        return Place::Other;
    }
    let Some((at, split)) = parts
        .iter()
        .enumerate()
        .find_map(|(at, part)| Some((at, Split::named(part)?)))
    else {
        return Place::Other;
    };
    match parts.get(at + 1..).unwrap_or_default() {
        [class] if folder => Place::Class { split, class },
        [file] if !folder && is_image(file) => Place::Image { split, class: None },
        [class, file] if !folder && is_image(file) => Place::Image {
            split,
            class: Some(class),
        },
        [_, _] if !folder => Place::Wrong("is neither a png nor a jpeg file"),
        [_, _, ..] => Place::Wrong("lies too deep"),
        _ => Place::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_told_apart() {
        let image = Place::Image {
            split: Split::Train,
            class: Some("cat"),
        };
        assert_eq!(place("./data/train/cat/1.JPG", false), image);
        assert_eq!(
            place("test/cat/", true),
            Place::Class {
                split: Split::Test,
                class: "cat"
            }
        );
        for name in [
            "README",
            "train/notes.txt",
            "train/cat/._1.jpg",
            "val/cat/1.png",
        ] {
            assert_eq!(place(name, false), Place::Other, "{name}");
        }
        assert_eq!(
            place("train/1.png", false),
            Place::Image {
                split: Split::Train,
                class: None
            }
        );
        for name in ["train/cat/1.gif", "train/cat/tabby/1.png"] {
            assert!(matches!(place(name, false), Place::Wrong(_)), "{name}");
        }
        assert_eq!(place("train/", true), Place::Other);
    }
}
