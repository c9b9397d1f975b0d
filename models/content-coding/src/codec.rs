//! Bytes in, bytes out.

use std::io::{self, Read, Write};

use bytes::Bytes;
use flate2::Compression;
use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};

use crate::{Coding, CodingError};

pub(crate) fn decode(coding: Coding, body: &[u8], limit: usize) -> Result<Bytes, CodingError> {
    let decoded = match coding {
        Coding::Gzip => read(MultiGzDecoder::new(body), limit),
        Coding::Deflate if is_zlib(body) => read(ZlibDecoder::new(body), limit),
        Coding::Deflate => read(DeflateDecoder::new(body), limit),
    };
    let decoded = decoded.map_err(|error| CodingError::Malformed {
        coding: coding.name(),
        reason: error.to_string().into(),
    })?;
    if decoded.len() > limit {
        return Err(CodingError::TooLarge { limit });
    }
    Ok(decoded.into())
}

/// One byte more than allowed, if there are so many.
fn read(decoder: impl Read, limit: usize) -> io::Result<Vec<u8>> {
    let mut decoded = Vec::new();
    decoder.take(limit as u64 + 1).read_to_end(&mut decoded)?;
    Ok(decoded)
}

/// Whether the two bytes of zlib's header are there (RFC 1950, section 2.2).
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

    use super::*;

    const BOTH: [Coding; 2] = [Coding::Gzip, Coding::Deflate];

    proptest! {
        #[test]
        fn what_is_encoded_decodes_to_itself(body in prop::collection::vec(0_u8..4, 0..3000)) {
            for coding in BOTH {
                let encoded = encode(coding, &body);
                prop_assert_eq!(decode(coding, &encoded, body.len()).unwrap(), &body[..]);
            }
        }

        #[test]
        fn arbitrary_bytes_never_give_more_than_allowed(body in prop::collection::vec(any::<u8>(), 0..200), limit in 0_usize..50) {
            for coding in BOTH {
                if let Ok(decoded) = decode(coding, &body, limit) {
                    prop_assert!(decoded.len() <= limit);
                }
            }
        }
    }

    #[test]
    fn the_limit_counts_decoded_bytes() {
        let bomb = vec![0; 10 << 20];
        for coding in BOTH {
            let encoded = encode(coding, &bomb);
            assert!(encoded.len() < bomb.len() / 100);
            let limit = 1 << 20;
            assert_eq!(decode(coding, &encoded, limit), Err(CodingError::TooLarge { limit }));
            assert_eq!(decode(coding, &encoded, bomb.len()).unwrap().len(), bomb.len());
            assert!(decode(coding, &encoded, bomb.len() - 1).is_err());
        }
    }

    #[test]
    fn what_is_cut_short_or_something_else_is_malformed() {
        for coding in BOTH {
            let encoded = encode(coding, &[7; 500]);
            let cut = decode(coding, &encoded[..encoded.len() - 5], 1000);
            assert!(matches!(cut, Err(CodingError::Malformed { .. })), "{cut:?}");
            let other = decode(coding, b"{\"inputs\":[]}", 1000);
            assert!(matches!(other, Err(CodingError::Malformed { .. })), "{other:?}");
        }
    }

    #[test]
    fn deflate_without_its_format_is_read() {
        let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(b"tensor").unwrap();
        assert_eq!(decode(Coding::Deflate, &encoder.finish().unwrap(), 6).unwrap(), &b"tensor"[..]);
    }
}
