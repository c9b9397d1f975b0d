//! The IDX format of MNIST: two zero bytes, element type, number of axes, their lengths
//! (big-endian), the elements.
//!
//! Source: <https://yann.lecun.com/exdb/mnist/>. Only unsigned bytes (type 8) are read: every
//! published data set has them.

use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const UNSIGNED_BYTE: u8 = 8;
/// Most unpacked bytes read from a file: a small gzip file can unpack to any size.
const MAX_BYTES: u64 = 1 << 30;

/// The contents of an IDX file of unsigned bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idx {
    /// Lengths of the axes, the slowest first; at least one axis.
    pub dims: Vec<usize>,
    /// The elements, as many as the product of `dims`.
    pub bytes: Vec<u8>,
}

/// A file that is not sound IDX.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what variants and fields are")]
pub enum IdxError {
    #[error(
        "{}: cannot read it: {source}; give the path of an IDX file, plain or .gz",
        path.display()
    )]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{}: truncated or damaged gzip file ({source}); fetch it again", path.display())]
    Gzip {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{}: holds more than {MAX_BYTES} bytes unpacked; use a smaller file", path.display())]
    TooLarge { path: PathBuf },
    #[error(
        "{}: not an IDX file of unsigned bytes: starts with {start:02x?}, wanted [00, 00, 08, \
            number of axes]; check \
         that it is the right file",
        path.display()
    )]
    Magic { path: PathBuf, start: Vec<u8> },
    #[error(
        "{}: its header {dims:?} announces {wanted} bytes, {found} follow: truncated or damaged; \
            fetch it again",
        path.display()
    )]
    Length {
        path: PathBuf,
        dims: Vec<usize>,
        wanted: u128,
        found: usize,
    },
}

/// Reads `path`, gzip-compressed or not (its contents tell, not its name).
///
/// # Errors
/// [`IdxError`], naming the file.
pub fn read_idx(path: &Path) -> Result<Idx, IdxError> {
    let named = || path.to_path_buf();
    let raw = std::fs::read(path).map_err(|source| IdxError::Read {
        path: named(),
        source,
    })?;
    if !raw.starts_with(&GZIP_MAGIC) {
        return parse(path, &raw);
    }
    let mut unpacked = Vec::new();
    MultiGzDecoder::new(raw.as_slice())
        .take(MAX_BYTES + 1)
        .read_to_end(&mut unpacked)
        .map_err(|source| IdxError::Gzip {
            path: named(),
            source,
        })?;
    if unpacked.len() as u64 > MAX_BYTES {
        return Err(IdxError::TooLarge { path: named() });
    }
    parse(path, &unpacked)
}

fn parse(path: &Path, contents: &[u8]) -> Result<Idx, IdxError> {
    let path = path.to_path_buf();
    let [0, 0, UNSIGNED_BYTE, axes @ 1..=u8::MAX, rest @ ..] = contents else {
        let start = contents.iter().copied().take(4).collect();
        return Err(IdxError::Magic { path, start });
    };
    let length = |dims: Vec<usize>, wanted: Option<u128>, found: usize| IdxError::Length {
        path,
        dims,
        wanted: wanted.unwrap_or(u128::MAX),
        found,
    };
    let Some((lengths, bytes)) = rest.split_at_checked(4 * usize::from(*axes)) else {
        let wanted = 4 * u128::from(*axes);
        return Err(length(Vec::new(), Some(wanted), rest.len()));
    };
    let (lengths, _) = lengths.as_chunks();
    let dims = lengths.iter().map(|&dim| u32::from_be_bytes(dim) as usize);
    let dims: Vec<usize> = dims.collect();
    let wanted = dims
        .iter()
        .try_fold(1u128, |product, &dim| product.checked_mul(dim as u128));
    if wanted != Some(bytes.len() as u128) {
        return Err(length(dims, wanted, bytes.len()));
    }
    let bytes = bytes.to_vec();
    Ok(Idx { dims, bytes })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const SOUND: &[u8] = b"\0\0\x08\x02\0\0\0\x02\0\0\0\x03abcdef";

    fn read(contents: &[u8]) -> Result<Idx, IdxError> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(contents).unwrap();
        read_idx(file.path())
    }

    fn gzip(contents: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(contents).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn plain_and_gzip_files_read_the_same() {
        for file in [SOUND, &gzip(SOUND)] {
            let Idx { dims, bytes } = read(file).unwrap();
            assert_eq!((dims, &bytes[..]), (vec![2, 3], &b"abcdef"[..]));
        }
    }

    #[test]
    fn broken_files_are_told_apart() {
        let unread = read_idx(Path::new("/nowhere/x")).unwrap_err();
        assert!(matches!(unread, IdxError::Read { .. }));
        for wrong in [&b""[..], b"\0\0\x0d\x01\0\0\0\0"] {
            assert!(matches!(read(wrong).unwrap_err(), IdxError::Magic { .. }));
        }
        let huge = [&b"\0\0\x08\x03"[..], &[0xff; 12]].concat();
        for (contents, wanted, found) in [
            (&b"\0\0\x08\x03\0\0"[..], 12, 2),
            (&SOUND[..17], 6, 5),
            (&huge, u128::from(u32::MAX).pow(3), 0),
        ] {
            let IdxError::Length {
                wanted: w,
                found: f,
                ..
            } = read(contents).unwrap_err()
            else {
                panic!("{contents:?}");
            };
            assert_eq!((w, f), (wanted, found));
        }
        let packed = gzip(SOUND);
        let cut = read(&packed[..packed.len() - 9]).unwrap_err();
        assert!(matches!(cut, IdxError::Gzip { .. }));
    }
}
