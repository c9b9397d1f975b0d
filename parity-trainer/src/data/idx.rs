//! The IDX format of MNIST: two zero bytes, element type, number of axes, their lengths (big-endian), the elements.
//!
//! Source: <https://yann.lecun.com/exdb/mnist/>. Only unsigned bytes (type 8) are read: every published data set has them.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const UNSIGNED_BYTE: u8 = 8;

/// The contents of an IDX file of unsigned bytes.
#[derive(Debug)]
pub(super) struct Idx {
    pub(super) dims: Vec<usize>,
    pub(super) bytes: Vec<u8>,
}

/// A file that is not sound IDX.
#[derive(Debug, thiserror::Error)]
pub enum IdxError {
    /// The file cannot be read.
    #[error("{}: cannot read it: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file ends early or its compressed contents are damaged.
    #[error("{}: truncated or damaged gzip file ({source}); fetch it again", path.display())]
    Gzip {
        /// The file.
        path: PathBuf,
        /// What the decompressor said.
        source: std::io::Error,
    },
    /// The first bytes are not those of an IDX file.
    #[error(
        "{}: not an IDX file of unsigned bytes: starts with {start:02x?}, wanted [00, 00, 08, number of axes]; check \
         that it is the right file",
        path.display()
    )]
    Magic {
        /// The file.
        path: PathBuf,
        /// Its first four bytes, or fewer.
        start: Vec<u8>,
    },
    /// The header announces another number of bytes than follow.
    #[error("{}: its header {dims:?} announces {wanted} bytes, {found} follow: truncated or damaged; fetch it again", path.display())]
    Length {
        /// The file.
        path: PathBuf,
        /// Axes of the header.
        dims: Vec<usize>,
        /// Bytes announced.
        wanted: u128,
        /// Bytes found.
        found: usize,
    },
}

/// Reads `path`, gzip-compressed or not (its contents tell, not its name).
pub(super) fn read_idx(path: &Path) -> Result<Idx, IdxError> {
    let raw = fs::read(path).map_err(|source| IdxError::Read { path: path.to_path_buf(), source })?;
    if !raw.starts_with(&GZIP_MAGIC) {
        return parse(path, &raw);
    }
    let mut unpacked = Vec::new();
    MultiGzDecoder::new(raw.as_slice())
        .read_to_end(&mut unpacked)
        .map_err(|source| IdxError::Gzip { path: path.to_path_buf(), source })?;
    parse(path, &unpacked)
}

fn parse(path: &Path, contents: &[u8]) -> Result<Idx, IdxError> {
    let path = || path.to_path_buf();
    let [0, 0, UNSIGNED_BYTE, axes @ 1..=u8::MAX, rest @ ..] = contents else {
        return Err(IdxError::Magic { path: path(), start: contents.iter().copied().take(4).collect() });
    };
    let Some((lengths, bytes)) = rest.split_at_checked(4 * usize::from(*axes)) else {
        let wanted = 4 * u128::from(*axes);
        return Err(IdxError::Length { path: path(), dims: Vec::new(), wanted, found: rest.len() });
    };
    let dims: Vec<usize> = lengths
        .chunks_exact(4)
        .map(|length| length.iter().fold(0, |value, &byte| value << 8 | usize::from(byte)))
        .collect();
    let wanted = dims.iter().try_fold(1u128, |product, &dim| product.checked_mul(dim as u128));
    if wanted != Some(bytes.len() as u128) {
        let (wanted, found) = (wanted.unwrap_or(u128::MAX), bytes.len());
        return Err(IdxError::Length { path: path(), dims, wanted, found });
    }
    Ok(Idx { dims, bytes: bytes.to_vec() })
}
