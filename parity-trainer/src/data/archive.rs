//! An image folder in a tar file, gzip-compressed or not, never unpacked to disk. Folders around
//! `train` and `test` are passed over.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use super::images::{
    Classes, Image, MAX_IMAGE_BYTES, Split, decode_all, is_hidden, is_image, misplaced,
};
use super::{DataSet, Progress, damaged, too_large, unreadable};
use crate::Result;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// Most encoded bytes of all images together; all are read at once.
const MAX_BYTES: u64 = 1 << 34;

pub(super) fn load(path: &Path, progress: Progress<'_>) -> Result<DataSet> {
    let failed = |source| unreadable(path, &source);
    let mut file = File::open(path).map_err(failed)?;
    let mut start = [0; 2];
    let compressed = file.read_exact(&mut start).is_ok() && start == GZIP_MAGIC;
    file.rewind().map_err(failed)?;
    let file = BufReader::with_capacity(1 << 18, file);
    let contents: Box<dyn Read> =
        if compressed { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
    let (images, classes) = read(path, contents)?;
    decode_all(path, &images, &classes, progress)
}

fn read(path: &Path, contents: impl Read) -> Result<(Vec<Image>, Classes)> {
    let torn = |source| damaged(path, &format!("truncated or damaged ({source})"));
    let (mut images, mut classes, mut held) = (Vec::new(), Classes::new(), 0);
    let mut archive = tar::Archive::new(contents);
    for entry in archive.entries().map_err(torn)? {
        let mut entry = entry.map_err(torn)?;
        let name = entry.path().map_err(torn)?.to_string_lossy().into_owned();
        let shown = PathBuf::from(format!("{}:{name}", path.display()));
        let (kind, length) = (entry.header().entry_type(), entry.size());
        let (split, class) = match place(&name, kind.is_dir()) {
            Place::Other => continue,
            Place::Class(split, class) => {
                classes.insert((split, class.to_owned()));
                continue;
            }
            Place::Wrong(problem) => return Err(misplaced(&shown, problem)),
            Place::Image(split, class) => (split, class),
        };
        ensure!(kind.is_file(), misplaced(&shown, "is a link, not a file"));
        held += length;
        if length > MAX_IMAGE_BYTES || held > MAX_BYTES {
            let problem = format!(
                "has {length} bytes, an image has at most {MAX_IMAGE_BYTES}, all together have at \
                    most {MAX_BYTES}"
            );
            return Err(too_large(&shown, &problem));
        }
        let mut bytes = Vec::with_capacity(length as usize);
        entry.read_to_end(&mut bytes).map_err(torn)?;
        ensure!(bytes.len() as u64 == length, torn(io::ErrorKind::UnexpectedEof.into()));
        classes.extend(class.map(|class| (split, class.to_owned())));
        let mut image = Image::new(shown, split, class);
        image.bytes = Some(bytes);
        images.push(image);
    }
    // To the very end, where a gzip file's checksum stands.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(torn)?;
    Ok((images, classes))
}

#[derive(Debug, PartialEq, Eq)]
enum Place<'a> {
    /// An image, with the class whose folder it lies in.
    Image(Split, Option<&'a str>),
    Class(Split, &'a str),
    Wrong(&'static str),
    Other,
}

fn place(name: &str, is_folder: bool) -> Place<'_> {
    let is_named = |part: &&str| !part.is_empty() && *part != ".";
    let parts: Vec<&str> = name.split('/').filter(is_named).collect();
    let split = |(at, part): (usize, &&str)| Some((at, part.parse::<Split>().ok()?));
    let Some((at, split)) = parts.iter().enumerate().find_map(split) else { return Place::Other };
    if parts.iter().any(|part| is_hidden(part)) {
        return Place::Other;
    }
    match parts.get(at + 1..).unwrap_or_default() {
        [class] if is_folder => Place::Class(split, class),
        [file] if !is_folder && is_image(file) => Place::Image(split, None),
        [class, file] if !is_folder && is_image(file) => Place::Image(split, Some(class)),
        [_, _] if !is_folder => Place::Wrong("is neither a png nor a jpeg file"),
        [_, _, ..] => Place::Wrong("lies too deep"),
        _ => Place::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_told_apart_by_their_path() {
        let image = Place::Image(Split::Train, Some("cat"));
        let neither = Place::Wrong("is neither a png nor a jpeg file");
        let cases = [
            ("./data/train/cat/1.JPG", image),
            ("train/1.png", Place::Image(Split::Train, None)),
            ("test/cat/", Place::Class(Split::Test, "cat")),
            ("train/", Place::Other),
            ("README", Place::Other),
            ("train/notes.txt", Place::Other),
            ("train/cat/._1.jpg", Place::Other),
            ("val/cat/1.png", Place::Other),
            ("train/cat/1.gif", neither),
            ("train/cat/tabby/1.png", Place::Wrong("lies too deep")),
        ];
        for (name, expected) in cases {
            assert_eq!(place(name, name.ends_with('/')), expected, "{name}");
        }
    }
}
