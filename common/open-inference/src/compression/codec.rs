//! Bytes in, bytes out.

use std::io::{self, Read, Write};

use bytes::Bytes;
use flate2::Compression;
use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};
use parking_lot::Mutex;

use crate::compression::turns::{LONG_BYTES, SHORT};
use crate::compression::{Coding, CodingError};

pub(crate) fn decoded_len(coding: Coding, body: &[u8], limit: usize) -> Result<usize, CodingError> {
    // One byte more than allowed, if there are so many.
    let mut decoder = reader(coding, body).take(limit as u64 + 1);
    let copied = io::copy(&mut decoder, &mut io::sink());
    let length = copied.map_err(|error| malformed(coding, &error))?;
    match usize::try_from(length) {
        Ok(length) if length <= limit => Ok(length),
        _ => Err(CodingError::TooLarge { limit }),
    }
}

pub(crate) fn decode(coding: Coding, body: &[u8], length: usize) -> Result<Bytes, CodingError> {
    let is_long = length > SHORT;
    let mut decoded = if is_long { long_buffer(length) } else { Vec::with_capacity(length) };
    let mut decoder = reader(coding, body).take(length as u64);
    decoder.read_to_end(&mut decoded).map_err(|error| malformed(coding, &error))?;
    Ok(if is_long { Bytes::from_owner(Long(decoded)) } else { decoded.into() })
}

/// Buffer of a long body that is gone. The next one takes it: an allocator, which gives memory
/// back some time after it was freed, would hold those of several bodies.
static SPARE: Mutex<Vec<u8>> = Mutex::new(Vec::new());

fn long_buffer(length: usize) -> Vec<u8> {
    let mut spare = std::mem::take(&mut *SPARE.lock());
    if spare.capacity() < length {
        drop(spare);
        // Bodies of nearly the same length take the same buffer.
        return Vec::with_capacity(length.next_multiple_of(SHORT));
    }
    spare.clear();
    spare
}

/// Decoded long body. Its buffer becomes the spare one.
struct Long(Vec<u8>);

impl AsRef<[u8]> for Long {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Long {
    fn drop(&mut self) {
        let mut spare = SPARE.lock();
        if (spare.capacity()..=LONG_BYTES).contains(&self.0.capacity()) {
            std::mem::swap(&mut *spare, &mut self.0);
        }
    }
}

fn malformed(coding: Coding, error: &io::Error) -> CodingError {
    CodingError::Malformed { coding: coding.name(), reason: error.to_string().into() }
}

fn reader(coding: Coding, body: &[u8]) -> Box<dyn Read + '_> {
    match coding {
        Coding::Gzip => Box::new(MultiGzDecoder::new(body)),
        Coding::Deflate if is_zlib(body) => Box::new(ZlibDecoder::new(body)),
        Coding::Deflate => Box::new(DeflateDecoder::new(body)),
    }
}

/// Returns true if the body begins with zlib's header of two bytes (RFC 1950, section 2.2).
fn is_zlib(body: &[u8]) -> bool {
    matches!(body, [method, flags, ..]
        if method & 0x0f == 8 && (u16::from(*method) << 8 | u16::from(*flags)).is_multiple_of(31))
}

pub(crate) fn encode(coding: Coding, body: &[u8]) -> Bytes {
    // The fastest level: what it leaves of tensors is not much more than what the others do.
    let level = Compression::fast();
    let room = Vec::with_capacity(body.len() / 2);
    let encoded = match coding {
        Coding::Gzip => {
            let mut encoder = GzEncoder::new(room, level);
            encoder.write_all(body).and_then(|()| encoder.finish())
        }
        Coding::Deflate => {
            let mut encoder = ZlibEncoder::new(room, level);
            encoder.write_all(body).and_then(|()| encoder.finish())
        }
    };
    // Writing into memory does not fail; were it to, the body goes as it is.
    encoded.map_or_else(|_| Bytes::copy_from_slice(body), Bytes::from)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::{decoded_len, encode, *};

    const BOTH: [Coding; 2] = [Coding::Gzip, Coding::Deflate];

    fn decode(coding: Coding, body: &[u8], limit: usize) -> Result<Bytes, CodingError> {
        let length = decoded_len(coding, body, limit)?;
        let decoded = super::decode(coding, body, length)?;
        assert_eq!(decoded.len(), length);
        Ok(decoded)
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes_to_itself(body in prop::collection::vec(0_u8..4, 0..3000)) {
            for coding in BOTH {
                let encoded = encode(coding, &body);
                prop_assert_eq!(decode(coding, &encoded, body.len()).unwrap(), &body[..]);
            }
        }

        #[test]
        fn arbitrary_bytes_never_give_more_than_allowed(
            body in prop::collection::vec(any::<u8>(), 0..200),
            limit in 0_usize..50,
        ) {
            for coding in BOTH {
                if let Ok(decoded) = decode(coding, &body, limit) {
                    prop_assert!(decoded.len() <= limit);
                }
            }
        }
    }

    #[test]
    fn long_bodies_take_the_buffer_of_the_one_before_and_nothing_of_its_contents() {
        let through = |body: &[u8], limit| {
            let encoded = encode(Coding::Gzip, body);
            decode(Coding::Gzip, &encoded, limit).unwrap()
        };
        let lengths = [SHORT + 2, 2 * SHORT, SHORT + 1, LONG_BYTES + 1];
        for (byte, length) in (1..).zip(lengths) {
            let body = vec![byte; length];
            let kept = through(&body, length);
            let other = through(&[9; SHORT + 1], length);
            assert_eq!((kept, other), (body.into(), vec![9; SHORT + 1].into()));
        }
        assert!(SPARE.lock().capacity() <= LONG_BYTES);
    }

    #[test]
    fn the_limit_counts_decoded_bytes() {
        let bomb = vec![0; 10 << 20];
        let (length, limit) = (bomb.len(), 1 << 20);
        for coding in BOTH {
            let encoded = encode(coding, &bomb);
            assert!(encoded.len() < length / 100);
            let refused = decode(coding, &encoded, limit);
            assert_eq!(refused, Err(CodingError::TooLarge { limit }));
            assert_eq!(decode(coding, &encoded, length).unwrap().len(), length);
            assert!(decode(coding, &encoded, length - 1).is_err());
        }
    }

    #[test]
    fn what_is_cut_short_or_something_else_is_malformed() {
        for coding in BOTH {
            let encoded = encode(coding, &[7; 500]);
            for other in [&encoded[..encoded.len() - 5], b"{\"inputs\":[]}"] {
                let error = decode(coding, other, 1000).unwrap_err();
                assert!(matches!(error, CodingError::Malformed { .. }), "{error}");
            }
        }
    }

    #[test]
    fn deflate_without_its_format_is_read() {
        let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(b"tensor").unwrap();
        let encoded = encoder.finish().unwrap();
        let decoded = decode(Coding::Deflate, &encoded, 6).unwrap();
        assert_eq!(decoded, &b"tensor"[..]);
    }
}
