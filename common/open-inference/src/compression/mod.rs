//! Parapet: content codings of HTTP bodies (RFC 9110, sections 8.4 and 12.5.3): gzip and deflate.
//!
//! [`Coding::of_request`] and [`Coding::for_response`] read the headers; [`decode`] and [`encode`]
//! do the work, away from the threads that serve connections where it takes long. A small body can
//! unfold to a thousand times its size: its decoded bytes are counted first, and memory is set
//! aside for no more than are allowed. A decoded body is read within the turn in which it was
//! decoded ([`Reader`]), and [`in_turn`] gives a long body that came uncompressed a turn of its
//! own, so that no flood of bodies is in work at the same time.

mod accept;
mod codec;
mod turns;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use http::{HeaderMap, StatusCode};
use turns::{SHORT, Turn};

/// Value for `Accept-Encoding` in an answer of 415: what [`Coding::of_request`] understands.
pub const UNDERSTOOD: &str = "gzip, deflate";

/// Bodies of fewer bytes are sent as they are: coding them costs more than it saves.
pub const SMALLEST: usize = 1024;

/// From this length on a body is encoded on another thread; it takes about a millisecond.
const LONG: usize = 64 * 1024;

/// For so long a body that is only better encoded waits for its turn; encoding it then takes as
/// long as it takes.
const PATIENCE: Duration = Duration::from_millis(200);

/// Takes a decoded body, in the turn in which it was decoded.
pub trait Reader: Send + 'static {
    /// Type of the read body.
    type Read: Send + 'static;
    /// Reason for which it is not read.
    type Error: From<CodingError> + Send + 'static;

    /// Sets memory aside for a body of `bytes` bytes.
    ///
    /// # Errors
    /// There is no more memory.
    fn hold(&mut self, bytes: usize) -> Result<(), Self::Error>;

    /// Reads the body.
    ///
    /// # Errors
    /// The body is not what it has to be.
    fn read(self, body: Bytes) -> Result<Self::Read, Self::Error>;
}

/// A coding of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// The gzip format (RFC 1952).
    Gzip,
    /// RFC 1950, that is deflate (RFC 1951) in zlib's format. Bodies without that format, which
    /// some clients send by this name, are read as well.
    Deflate,
}

/// A body whose coding cannot be undone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum CodingError {
    /// A coding that is not known here, or more than one.
    #[error(
        "content encoding {coding:?} is not understood; send gzip, deflate, or the body as it is"
    )]
    Unknown {
        /// The header's value, cut short.
        coding: String,
    },
    /// The decoded body is longer than allowed.
    #[error("the decompressed body is larger than {limit} bytes")]
    TooLarge { limit: usize },
    /// The bytes are not what the header says.
    #[error("the body is not valid {coding}: {reason}")]
    Malformed {
        coding: &'static str,
        reason: Arc<str>,
    },
}

impl CodingError {
    /// The HTTP status that tells the client.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Unknown { .. } => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Malformed { .. } => StatusCode::BAD_REQUEST,
        }
    }
}

impl Coding {
    /// Its name in headers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
        }
    }

    /// The coding of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        match () {
            () if is("gzip") || is("x-gzip") => Some(Self::Gzip),
            () if is("deflate") => Some(Self::Deflate),
            () => None,
        }
    }

    /// The coding of a message's body, as its `Content-Encoding` says; `None` where there is none.
    ///
    /// # Errors
    /// [`CodingError::Unknown`].
    pub fn of_request(headers: &HeaderMap) -> Result<Option<Self>, CodingError> {
        let mut values = headers.get_all(CONTENT_ENCODING).iter();
        let Some(value) = values.next() else {
            return Ok(None);
        };
        let name = value.to_str().map(str::trim).unwrap_or_default();
        let only_one = values.next().is_none();
        if only_one && (name.eq_ignore_ascii_case("identity") || value.is_empty()) {
            return Ok(None);
        }
        let coding = Self::of_name(name).filter(|_| only_one);
        let shown = || {
            String::from_utf8_lossy(value.as_bytes())
                .chars()
                .take(40)
                .collect()
        };
        coding
            .map(Some)
            .ok_or_else(|| CodingError::Unknown { coding: shown() })
    }

    /// The coding that a request's `Accept-Encoding` likes best for the answer; `None` for the body
    /// as it is.
    pub fn for_response(headers: &HeaderMap) -> Option<Self> {
        let values = headers.get_all(ACCEPT_ENCODING).iter();
        accept::best(values.filter_map(|value| value.to_str().ok()))
    }
}

/// Undoes `coding`, of which at most `limit` bytes may come out, and has `reader` read them. When
/// too many others are at it, too, it waits for its turn: the caller bounds the time.
///
/// # Errors
/// [`CodingError::TooLarge`] and [`CodingError::Malformed`]; the reader's.
pub async fn decode<R: Reader>(
    coding: Coding,
    body: Bytes,
    limit: usize,
    reader: R,
) -> Result<R::Read, R::Error> {
    let failed = || CodingError::Malformed {
        coding: coding.name(),
        reason: "unpacking it failed".into(),
    };
    // However few bytes there are, it is not known how many come out. Nearly all bodies turn out to
    // be short.
    let turn = Turn::to_unpack(SHORT).await.ok_or_else(failed)?;
    let short = turn.take(move |_| {
        let short = limit.min(SHORT);
        match codec::decoded_len(coding, &body, short) {
            Err(CodingError::TooLarge { .. }) if short < limit => Err((body, reader)),
            length => Ok(decode_to(coding, &body, length, reader)),
        }
    });
    let (body, reader) = match short.await.ok_or_else(failed)? {
        Ok(read) => return read,
        Err(long) => long,
    };
    let turn = Turn::to_unpack(limit).await.ok_or_else(failed)?;
    let long = turn.take(move |turn| {
        let length = codec::decoded_len(coding, &body, limit);
        turn.shrink_to(length.as_ref().copied().unwrap_or_default());
        decode_to(coding, &body, length, reader)
    });
    long.await.ok_or_else(failed)?
}

fn decode_to<R: Reader>(
    coding: Coding,
    body: &[u8],
    length: Result<usize, CodingError>,
    mut reader: R,
) -> Result<R::Read, R::Error> {
    let length = length?;
    reader.hold(length)?;
    reader.read(codec::decode(coding, body, length)?)
}

/// Does `work` on a body of `bytes` bytes in its turn, on another thread. `None` if it panics.
pub async fn in_turn<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    Turn::to_read(bytes).await?.take(|_| work()).await
}

/// The body in `coding`; `None` if it is better sent as it is, or too many others wait
/// for their turn.
pub async fn encode(coding: Coding, body: &Bytes) -> Option<Bytes> {
    let encoded = match body.len() {
        ..SMALLEST => return None,
        SMALLEST..LONG => codec::encode(coding, body),
        LONG.. => {
            let body = body.clone();
            let turn = tokio::time::timeout(PATIENCE, Turn::to_unpack(SHORT))
                .await
                .ok()??;
            turn.take(move |_| codec::encode(coding, &body)).await?
        }
    };
    (encoded.len() < body.len()).then_some(encoded)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use http::HeaderValue;

    use super::*;

    fn of(values: &[&'static str]) -> Result<Option<Coding>, CodingError> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(CONTENT_ENCODING, HeaderValue::from_static(value));
        }
        Coding::of_request(&headers)
    }

    #[test]
    fn one_known_coding_is_read() {
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(of(&["identity"]), Ok(None));
        assert_eq!(of(&["GZip"]), Ok(Some(Coding::Gzip)));
        assert_eq!(of(&["deflate"]), Ok(Some(Coding::Deflate)));
        for unknown in [
            &["br"][..],
            &["gzip, gzip"],
            &["gzip", "gzip"],
            &["identity", "br"],
            &["gzip;q=1"],
        ] {
            assert_eq!(
                of(unknown).unwrap_err().status(),
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "{unknown:?}"
            );
        }
    }

    /// Reads any body, of at most so many bytes.
    struct Plain(usize);

    impl Reader for Plain {
        type Read = Bytes;
        type Error = CodingError;

        fn hold(&mut self, bytes: usize) -> Result<(), CodingError> {
            if bytes <= self.0 {
                Ok(())
            } else {
                Err(CodingError::TooLarge { limit: self.0 })
            }
        }

        fn read(self, body: Bytes) -> Result<Bytes, CodingError> {
            Ok(body)
        }
    }

    #[tokio::test]
    async fn a_body_is_held_by_its_decoded_length_and_read_whatever_that_is() {
        for length in [0, 1, SHORT, SHORT + 1, 3 * SHORT] {
            let body = Bytes::from(vec![7; length]);
            let encoded = codec::encode(Coding::Gzip, &body);
            let decode = |limit, held| decode(Coding::Gzip, encoded.clone(), limit, Plain(held));
            assert_eq!(decode(length, length).await.unwrap(), body);
            let too_large = |limit| Err(CodingError::TooLarge { limit });
            if let Some(less) = length.checked_sub(1) {
                assert_eq!(decode(less, length).await, too_large(less), "{length}");
                assert_eq!(
                    decode(length, less).await,
                    too_large(less),
                    "not held: {length}"
                );
            }
        }
    }

    #[tokio::test]
    async fn small_bodies_and_those_that_do_not_shrink_go_as_they_are() {
        assert_eq!(
            encode(Coding::Gzip, &Bytes::from(vec![0; SMALLEST - 1])).await,
            None
        );
        for length in [SMALLEST, LONG] {
            let body = Bytes::from(vec![0; length]);
            let encoded = encode(Coding::Gzip, &body).await.unwrap();
            assert_eq!(
                decode(Coding::Gzip, encoded, length, Plain(length))
                    .await
                    .unwrap(),
                body
            );
            let mut state = 1_u32;
            let noise = std::iter::repeat_with(|| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            });
            assert_eq!(
                encode(Coding::Gzip, &noise.take(length).collect()).await,
                None,
                "noise of {length} bytes"
            );
        }
    }
}
