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

/// A file that is not sound IDX, and the fix, in one line.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct IdxError {
    path: PathBuf,
    problem: String,
}

/// Reads `path`, gzip-compressed or not (its contents tell, not its name).
///
/// # Errors
/// [`IdxError`], naming the file.
pub fn read_idx(path: &Path) -> Result<Idx, IdxError> {
    read(path).map_err(|problem| IdxError { path: path.to_path_buf(), problem })
}

fn read(path: &Path) -> Result<Idx, String> {
    let raw = std::fs::read(path).map_err(|source| {
        format!("cannot read it: {source}; give the path of an IDX file, plain or .gz")
    })?;
    if !raw.starts_with(&GZIP_MAGIC) {
        return parse(&raw);
    }
    let mut unpacked = Vec::new();
    let mut decoder = MultiGzDecoder::new(raw.as_slice()).take(MAX_BYTES + 1);
    let read = decoder.read_to_end(&mut unpacked);
    read.map_err(|source| format!("truncated or damaged gzip file ({source}); fetch it again"))?;
    if unpacked.len() as u64 > MAX_BYTES {
        return Err(format!("holds more than {MAX_BYTES} bytes unpacked; use a smaller file"));
    }
    parse(&unpacked)
}

fn parse(contents: &[u8]) -> Result<Idx, String> {
    let [0, 0, UNSIGNED_BYTE, axes @ 1..=u8::MAX, rest @ ..] = contents else {
        let start = contents.get(..4).unwrap_or(contents);
        return Err(format!(
            "not an IDX file of unsigned bytes: starts with {start:02x?}, wanted [00, 00, 08, \
                number of axes]; check that it is the right file"
        ));
    };
    let torn = |header: &[usize], wanted: u128, found: usize| {
        format!(
            "its header {header:?} announces {wanted} bytes, {found} follow: truncated or damaged; \
                fetch it again"
        )
    };
    let length = 4 * usize::from(*axes);
    let Some((lengths, bytes)) = rest.split_at_checked(length) else {
        return Err(torn(&[], length as u128, rest.len()));
    };
    let (lengths, _) = lengths.as_chunks();
    let dims = lengths.iter().map(|&dim| u32::from_be_bytes(dim) as usize);
    let dims: Vec<usize> = dims.collect();
    let mut factors = dims.iter().map(|&dim| dim as u128);
    let wanted = factors.try_fold(1, u128::checked_mul).unwrap_or(u128::MAX);
    if wanted != bytes.len() as u128 {
        return Err(torn(&dims, wanted, bytes.len()));
    }
    Ok(Idx { dims, bytes: bytes.to_vec() })
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
        let says = |read: Result<Idx, IdxError>, part: &str| {
            let message = read.unwrap_err().to_string();
            assert!(message.contains(part) && !message.contains('\n'), "{part}: {message}");
        };
        says(read_idx(Path::new("/nowhere/x")), "/nowhere/x: cannot read it");
        for wrong in [&b""[..], b"\0\0\x0d\x01\0\0\0\0"] {
            says(read(wrong), "not an IDX file of unsigned bytes");
        }
        let huge = [&b"\0\0\x08\x03"[..], &[0xff; 12]].concat();
        for (contents, wanted, found) in [
            (&b"\0\0\x08\x03\0\0"[..], 12, 2),
            (&SOUND[..17], 6, 5),
            (&huge, u128::from(u32::MAX).pow(3), 0),
        ] {
            let part = format!("announces {wanted} bytes, {found} follow");
            says(read(contents), &part);
        }
        let packed = gzip(SOUND);
        says(read(&packed[..packed.len() - 9]), "damaged gzip file");
    }
}
