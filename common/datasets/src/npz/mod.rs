//! NumPy's `.npz`: a zip file of arrays, as `np.savez` writes. For the trainer's data.

mod npy;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

pub use npy::{Element, Header, Kind};
use zip::ZipArchive;

/// First bytes of a zip file.
pub const ZIP_MAGIC: [u8; 4] = *b"PK\x03\x04";
/// Most unpacked bytes read of an array: a small zip file can unpack to any size.
const MAX_BYTES: u64 = 1 << 30;
const SUFFIX: &str = ".npy";

/// An `.npz` file that cannot be read. Each message names the file and what to do.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what variants and fields are")]
pub enum NpzError {
    #[error("{}: cannot read it as .npz ({source}); write it with numpy.savez", path.display())]
    Zip {
        path: PathBuf,
        source: zip::result::ZipError,
    },
    #[error(
        "{}: array {array:?}: {problem}; write the file again with numpy.savez",
        path.display()
    )]
    Damaged {
        path: PathBuf,
        array: String,
        problem: String,
    },
    #[error(
        "{}: array {array:?} is in Fortran order; save numpy.ascontiguousarray of it",
        path.display()
    )]
    Fortran { path: PathBuf, array: String },
    #[error(
        "{}: array {array:?} holds more than {MAX_BYTES} bytes; save fewer rows",
        path.display()
    )]
    TooLarge { path: PathBuf, array: String },
}

/// An opened file: all its headers, none of its elements.
#[derive(Debug)]
pub struct Npz {
    path: PathBuf,
    zip: ZipArchive<File>,
    arrays: Vec<Array>,
}

/// An array of the file, not read yet.
#[derive(Debug, Clone)]
pub struct Array {
    /// Its name, without `.npy`.
    pub name: String,
    /// Type, order and shape.
    pub header: Header,
    place: usize,
}

impl Npz {
    /// Reads the headers of `file`, opened from `path`.
    ///
    /// # Errors
    /// If it is no zip file, or an array in it has no sound header.
    pub fn open(path: &Path, file: File) -> Result<Self, NpzError> {
        let broken = |source| NpzError::Zip {
            path: path.to_path_buf(),
            source,
        };
        let mut zip = ZipArchive::new(file).map_err(broken)?;
        let mut arrays = Vec::new();
        for place in 0..zip.len() {
            let entry = zip.by_index(place).map_err(broken)?;
            let name = entry.name().map_err(broken)?.into_owned();
            let Some(name) = name.strip_suffix(SUFFIX).map(str::to_owned) else {
                continue;
            };
            let header = Header::read(entry).map_err(|problem| NpzError::Damaged {
                path: path.to_path_buf(),
                array: name.clone(),
                problem,
            })?;
            arrays.push(Array {
                name,
                header,
                place,
            });
        }
        Ok(Self {
            path: path.to_path_buf(),
            zip,
            arrays,
        })
    }

    /// Returns the path of the archive.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The arrays, in the file's order.
    pub fn arrays(&self) -> &[Array] {
        &self.arrays
    }

    /// The type and the bytes of an array's elements, row-major.
    ///
    /// # Errors
    /// If the array is damaged, too large, of a type that is not read, or in Fortran order.
    pub fn read(&mut self, array: &Array) -> Result<(Element, Vec<u8>), NpzError> {
        let header = &array.header;
        let named = || (self.path.clone(), array.name.clone());
        let damaged = |problem: String| {
            let (path, array) = named();
            NpzError::Damaged {
                path,
                array,
                problem,
            }
        };
        let element = header
            .element()
            .ok_or_else(|| damaged("its type cannot be read".to_owned()))?;
        if header.fortran && header.shape.len() > 1 {
            let (path, array) = named();
            return Err(NpzError::Fortran { path, array });
        }
        let wanted = header.bytes(element.width);
        let Some(wanted) = wanted.filter(|&bytes| bytes <= MAX_BYTES) else {
            let (path, array) = named();
            return Err(NpzError::TooLarge { path, array });
        };
        let mut entry = self.zip.by_index(array.place).map_err(|source| {
            let path = self.path.clone();
            NpzError::Zip { path, source }
        })?;
        Header::read(&mut entry).map_err(damaged)?;
        let mut bytes = Vec::new();
        // One byte more: at the end of the entry, its checksum is compared.
        entry
            .take(wanted + 1)
            .read_to_end(&mut bytes)
            .map_err(|source| damaged(source.to_string()))?;
        if bytes.len() as u64 != wanted {
            let (shape, found) = (&header.shape, bytes.len());
            let problem = format!("shape {shape:?} makes {wanted} bytes, there are {found}");
            return Err(damaged(problem));
        }
        Ok((element, bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};

    use zip::write::SimpleFileOptions;

    use super::*;

    fn npz(arrays: &[(&str, &[u8])]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut zip = zip::ZipWriter::new(file.reopen().unwrap());
        for (name, contents) in arrays {
            zip.start_file(*name, SimpleFileOptions::default()).unwrap();
            zip.write_all(contents).unwrap();
        }
        zip.finish().unwrap().rewind().unwrap();
        file
    }

    fn npy(header: &str, elements: &[u8]) -> Vec<u8> {
        let mut array = b"\x93NUMPY\x01\x00".to_vec();
        array.extend((header.len() as u16).to_le_bytes());
        array.extend(header.as_bytes());
        array.extend(elements);
        array
    }

    #[test]
    fn arrays_are_listed_and_read() {
        let header = |descr: &str, length: usize| {
            format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({length},), }}")
        };
        let array = npy(&header("<u2", 2), &[1, 0, 2, 1]);
        let short = npy(&header("|u1", 9), &[1]);
        let file = npz(&[
            ("x.npy", &array),
            ("readme.txt", b"no array"),
            ("y.npy", &short),
        ]);
        let mut npz = Npz::open(file.path(), file.reopen().unwrap()).unwrap();
        let arrays = npz.arrays().to_vec();
        let names: Vec<_> = arrays.iter().map(|array| array.name.as_str()).collect();
        assert_eq!(names, ["x", "y"]);
        let (element, bytes) = npz.read(&arrays[0]).unwrap();
        assert_eq!(element.integers(&bytes).collect::<Vec<_>>(), [1, 258]);
        let damaged = npz.read(&arrays[1]).unwrap_err();
        assert!(matches!(damaged, NpzError::Damaged { .. }), "{damaged}");
    }

    #[test]
    fn other_files_are_refused() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&ZIP_MAGIC).unwrap();
        let error = Npz::open(file.path(), file.reopen().unwrap()).unwrap_err();
        assert!(matches!(error, NpzError::Zip { .. }), "{error}");
    }
}
