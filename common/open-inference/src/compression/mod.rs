//! Content codings of HTTP bodies (RFC 9110, sections 8.4 and 12.5.3): gzip and deflate.
//!
//! [`Coding::of_request`] and [`Coding::for_response`] read the headers; [`read`] and [`encode`] do
//! the work, away from the threads that serve connections where it takes long. A small body can
//! unfold to a thousand times its size: its decoded bytes are counted first, and memory is set
//! aside for no more than are allowed. A body is read within the turn in which it was decoded, and
//! a long body that came uncompressed has a turn of its own, so that no flood of bodies is in work
//! at the same time.

mod codec;
mod turns;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use http::{HeaderMap, StatusCode};
use turns::{SHORT, Turn};

use crate::{Excerpt, ProtocolError, Room};

/// Value for `Accept-Encoding` in an answer of 415: what [`Coding::of_request`] understands.
pub const UNDERSTOOD: &str = "gzip, deflate";

/// Bodies of fewer bytes are sent as they are: coding them costs more than it saves.
pub const SMALLEST: usize = 1024;

/// From this length on a body is encoded on another thread; it takes about a millisecond.
const LONG: usize = 64 * 1024;

/// From this length on (some milliseconds of work) a body is read on another thread.
const LONG_TO_READ: usize = 256 * 1024;

/// For so long a body that is only better encoded waits for its turn; encoding it then takes as
/// long as it takes.
const PATIENCE: Duration = Duration::from_millis(200);

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
#[allow(missing_docs, reason = "the messages say what variants and fields are")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodingError {
    /// More than one coding is not understood either.
    #[error(
        "content encoding {coding:?} is not understood; send gzip, deflate, or the body as it is"
    )]
    Unknown { coding: Excerpt },
    #[error("the decompressed body is larger than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("the body is not valid {coding}: {reason}")]
    Malformed { coding: &'static str, reason: Arc<str> },
    /// Reading it panicked.
    #[error("the body could not be read")]
    Unread,
}

impl CodingError {
    /// The HTTP status that tells the client.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Unknown { .. } => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Malformed { .. } | Self::Unread => StatusCode::BAD_REQUEST,
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
        let is = |known: &&str| name.eq_ignore_ascii_case(known);
        if ["gzip", "x-gzip"].iter().any(is) {
            return Some(Self::Gzip);
        }
        is(&"deflate").then_some(Self::Deflate)
    }

    /// The coding of a message's body, as its `Content-Encoding` says; `None` where there is none.
    ///
    /// # Errors
    /// [`CodingError::Unknown`].
    pub fn of_request(headers: &HeaderMap) -> Result<Option<Self>, CodingError> {
        let mut values = headers.get_all(CONTENT_ENCODING).iter();
        let Some(value) = values.next() else { return Ok(None) };
        let name = value.to_str().map(str::trim).unwrap_or_default();
        match (values.next(), Self::of_name(name)) {
            (None, Some(coding)) => Ok(Some(coding)),
            (None, None) if value.is_empty() || name.eq_ignore_ascii_case("identity") => Ok(None),
            _ => {
                let coding = Excerpt::from(&*String::from_utf8_lossy(value.as_bytes()));
                Err(CodingError::Unknown { coding })
            }
        }
    }

    /// The coding that `Accept-Encoding` likes best for the answer; `None` for the body as it is.
    pub fn for_response(headers: &HeaderMap) -> Option<Self> {
        best(headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok()))
    }
}

/// Has `read` take a body, the bytes held for it, and `room`. A body with a `coding` is unpacked
/// first, to at most `limit` bytes, for which room is asked. `work` of its bytes, as it came, take
/// time to read. When too many others are at it, it waits for its turn: the caller bounds the time.
///
/// # Errors
/// [`CodingError`], [`ProtocolError::NoMemory`]; those of `read`.
pub async fn read<R, T, E>(
    coding: Option<Coding>,
    body: Bytes,
    work: usize,
    limit: usize,
    room: R,
    read: impl FnOnce(Bytes, usize, R) -> Result<T, E> + Send + 'static,
) -> Result<T, E>
where
    R: Room,
    T: Send + 'static,
    E: From<CodingError> + From<ProtocolError> + Send + 'static,
{
    let Some(coding) = coding else {
        let held = body.len();
        if work < LONG_TO_READ {
            return read(body, held, room);
        }
        let turn = Turn::to_read(work).await.ok_or(CodingError::Unread)?;
        return turn.take(move |_| read(body, held, room)).await.ok_or(CodingError::Unread)?;
    };
    let unpack = move |length: Result<usize, CodingError>, body: &[u8], mut room: R| {
        let length = length?;
        let held = body.len().saturating_add(length);
        room.hold(held)?;
        read(codec::decode(coding, body, length)?, held, room)
    };
    // However few bytes there are, it is unknown how many come out. Nearly all bodies prove short.
    let turn = Turn::to_unpack(SHORT).await.ok_or(CodingError::Unread)?;
    let short = turn.take(move |_| {
        let short = limit.min(SHORT);
        match codec::decoded_len(coding, &body, short) {
            Err(CodingError::TooLarge { .. }) if short < limit => Err((body, room, unpack)),
            length => Ok(unpack(length, &body, room)),
        }
    });
    let (body, room, unpack) = match short.await.ok_or(CodingError::Unread)? {
        Ok(read) => return read,
        Err(long) => long,
    };
    let turn = Turn::to_unpack(limit).await.ok_or(CodingError::Unread)?;
    let long = turn.take(move |turn| {
        let length = codec::decoded_len(coding, &body, limit);
        turn.shrink_to(length.as_ref().copied().unwrap_or_default());
        unpack(length, &body, room)
    });
    long.await.ok_or(CodingError::Unread)?
}

/// The body in `coding`; `None` if it is better sent as is, or too many others wait for their turn.
pub async fn encode(coding: Coding, body: &Bytes) -> Option<Bytes> {
    let encoded = match body.len() {
        ..SMALLEST => return None,
        SMALLEST..LONG => codec::encode(coding, body),
        LONG.. => {
            let body = body.clone();
            let turn = tokio::time::timeout(PATIENCE, Turn::to_unpack(SHORT)).await.ok()??;
            turn.take(move |_| codec::encode(coding, &body)).await?
        }
    };
    (encoded.len() < body.len()).then_some(encoded)
}

/// The coding liked best, gzip where two are liked as much; `None` for none of them. `values` are
/// those of all headers.
fn best<'a>(values: impl Iterator<Item = &'a str>) -> Option<Coding> {
    let (mut gzip, mut deflate, mut identity, mut any) = (None, None, None, None);
    for element in values.flat_map(|value| value.split(',')) {
        let (name, quality) = parse(element);
        let named = match Coding::of_name(name) {
            Some(Coding::Gzip) => &mut gzip,
            Some(Coding::Deflate) => &mut deflate,
            None if name == "*" => &mut any,
            None if name.eq_ignore_ascii_case("identity") => &mut identity,
            None => continue,
        };
        *named = Some(quality);
    }
    let [gzip, deflate] = [gzip, deflate].map(|own| own.or(any).unwrap_or(0.0));
    let (coding, most) = match deflate > gzip {
        true => (Coding::Deflate, deflate),
        false => (Coding::Gzip, gzip),
    };
    // A client that prefers the body as it is says so; one that says nothing takes it as well.
    (most > 0.0 && most >= identity.unwrap_or(0.0)).then_some(coding)
}

/// Name and quality of an element. A quality that cannot be read counts for nothing.
fn parse(element: &str) -> (&str, f32) {
    let mut parts = element.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default();
    let quality = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
    let quality = quality.map_or(Ok(1.0), |text| text.trim().parse());
    let is_valid = |quality: &f32| (0.0..=1.0).contains(quality);
    (name, quality.ok().filter(is_valid).unwrap_or(0.0))
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
        let twice = [&["gzip, gzip"][..], &["gzip", "gzip"], &["identity", "br"]];
        for unknown in twice.into_iter().chain([&["br"][..], &["gzip;q=1"]]) {
            let status = of(unknown).unwrap_err().status();
            assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{unknown:?}");
        }
    }

    struct Most(usize);

    impl Room for Most {
        fn hold(&mut self, bytes: usize) -> Result<(), ProtocolError> {
            let holds = bytes <= self.0;
            holds.then_some(()).ok_or(ProtocolError::NoMemory)
        }
    }

    /// Unpacks to at most `limit` bytes, of which `room` may be held beside the body; the error in
    /// words.
    async fn unpack(body: &Bytes, limit: usize, room: usize) -> Result<Bytes, String> {
        let (coding, packed) = (Some(Coding::Gzip), body.len());
        let taken = move |unpacked: Bytes, held, _| {
            assert_eq!(held, packed + unpacked.len());
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(unpacked)
        };
        read(coding, body.clone(), packed, limit, Most(packed + room), taken)
            .await
            .map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_body_is_held_by_its_decoded_length_and_read_whatever_that_is() {
        for length in [0, 1, SHORT, SHORT + 1, 3 * SHORT] {
            let body = Bytes::from(vec![7; length]);
            let encoded = codec::encode(Coding::Gzip, &body);
            assert_eq!(unpack(&encoded, length, length).await.unwrap(), body);
            if let Some(less) = length.checked_sub(1) {
                let too_large = CodingError::TooLarge { limit: less }.to_string();
                assert_eq!(unpack(&encoded, less, length).await, Err(too_large));
                let not_held = ProtocolError::NoMemory.to_string();
                assert_eq!(unpack(&encoded, length, less).await, Err(not_held));
            }
        }
    }

    #[tokio::test]
    async fn small_bodies_and_those_that_do_not_shrink_go_as_they_are() {
        let small = Bytes::from(vec![0; SMALLEST - 1]);
        assert_eq!(encode(Coding::Gzip, &small).await, None);
        for length in [SMALLEST, LONG] {
            let body = Bytes::from(vec![0; length]);
            let encoded = encode(Coding::Gzip, &body).await.unwrap();
            assert_eq!(unpack(&encoded, length, length).await.unwrap(), body);
            let mut state = 1_u32;
            let noise = std::iter::repeat_with(|| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            });
            let noise = noise.take(length).collect();
            assert_eq!(encode(Coding::Gzip, &noise).await, None, "{length}");
        }
    }

    #[test]
    fn the_best_liked_is_chosen() {
        let (gzip, deflate) = (Some(Coding::Gzip), Some(Coding::Deflate));
        for (value, chosen) in [
            ("", None),
            ("identity", None),
            ("br", None),
            ("br;q=1.0, zstd", None),
            ("gzip;q=0", None),
            ("*;q=0", None),
            ("gzip;q=many", None),
            ("gzip;q=-1", None),
            ("identity;q=1, gzip;q=0.5", None),
            ("gzip", gzip),
            ("GZIP", gzip),
            ("x-gzip", gzip),
            ("deflate, gzip", gzip),
            ("gzip;q=0.001", gzip),
            ("*", gzip),
            ("br, gzip;q=0.5", gzip),
            ("gzip ; q=1.0", gzip),
            ("deflate", deflate),
            ("gzip;q=0.5, deflate;q=0.6", deflate),
            ("gzip;q=0, *", deflate),
            ("deflate;q=0.5, gzip;q=0.4", deflate),
        ] {
            assert_eq!(best(std::iter::once(value)), chosen, "{value}");
        }
        let two_headers = ["br", "deflate"].into_iter();
        assert_eq!(best(two_headers), deflate);
    }
}
