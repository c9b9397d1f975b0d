//! Reading a request's body within bounds.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::http::StatusCode;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;

use crate::{BodyMemory, Reserved};

/// Why a body was not read.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The body is longer than allowed; found before or while reading.
    #[error("the body is larger than {limit} bytes")]
    TooLarge {
        /// Bytes allowed.
        limit: usize,
    },
    /// The body did not arrive in time. Worth a retry.
    #[error("the body did not arrive within {limit:?}")]
    Timeout {
        /// The time allowed.
        limit: Duration,
    },
    /// All bodies together hold as much memory as they may. Worth a retry.
    #[error("all requests' bodies together would be larger than {limit} bytes; try again later")]
    NoMemory {
        /// Bytes allowed to all of them.
        limit: usize,
    },
    /// The connection broke, or the chunks are malformed.
    #[error("the body broke off: {source}")]
    Aborted {
        /// What happened.
        source: axum::Error,
    },
}

impl BodyError {
    /// The HTTP status that tells the client.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Timeout { .. } => StatusCode::REQUEST_TIMEOUT,
            Self::NoMemory { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::Aborted { .. } => StatusCode::BAD_REQUEST,
        }
    }
}

/// Memory set aside at once for the rest of a body on the word of its `Content-Length`.
const RESERVE: usize = 64 << 10;

/// Reads `body` whole. A body that arrives in one piece, as small ones do, is not copied.
pub async fn read_body(body: Body, max_bytes: usize, timeout: Duration) -> Result<Bytes, BodyError> {
    tokio::time::timeout(timeout, read(body, max_bytes, |_| Ok(())))
        .await
        .unwrap_or(Err(BodyError::Timeout { limit: timeout }))
}

/// As [`read_body`], within the memory that all bodies share: hold on to what is returned beside the body for as long as
/// to the body. What a client merely announces takes none of it.
///
/// # Errors
/// [`BodyError`].
pub async fn read_body_within(
    body: Body,
    max_bytes: usize,
    timeout: Duration,
    memory: &Arc<BodyMemory>,
) -> Result<(Bytes, Reserved), BodyError> {
    let mut reserved = memory.reserve_nothing();
    let reserve = |length| match reserved.grow_to(length) {
        true => Ok(()),
        false => Err(BodyError::NoMemory { limit: memory.limit() }),
    };
    let body = tokio::time::timeout(timeout, read(body, max_bytes, reserve))
        .await
        .unwrap_or(Err(BodyError::Timeout { limit: timeout }))?;
    Ok((body, reserved))
}

/// `reserve` is asked before so many bytes in all are held.
async fn read(
    mut body: Body,
    limit: usize,
    mut reserve: impl FnMut(usize) -> Result<(), BodyError>,
) -> Result<Bytes, BodyError> {
    let too_large = |announced: u64| usize::try_from(announced).map_or(true, |announced| announced > limit);
    if too_large(body.size_hint().lower()) {
        return Err(BodyError::TooLarge { limit });
    }
    let Some(first) = next_piece(&mut body).await? else { return Ok(Bytes::new()) };
    if first.len() > limit {
        return Err(BodyError::TooLarge { limit });
    }
    reserve(first.len())?;
    let Some(mut piece) = next_piece(&mut body).await? else { return Ok(first) };
    let mut whole = BytesMut::from(first);
    let rest = usize::try_from(body.size_hint().lower()).unwrap_or(RESERVE).min(RESERVE);
    whole.reserve(piece.len() + rest);
    loop {
        if whole.len() + piece.len() > limit {
            return Err(BodyError::TooLarge { limit });
        }
        reserve(whole.len() + piece.len())?;
        whole.extend_from_slice(&piece);
        match next_piece(&mut body).await? {
            Some(next) => piece = next,
            None => return Ok(whole.freeze()),
        }
    }
}

async fn next_piece(body: &mut Body) -> Result<Option<Bytes>, BodyError> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|source| BodyError::Aborted { source })?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::StreamBody;
    use hyper::body::Frame;
    use tokio::sync::mpsc;

    const TIMEOUT: Duration = Duration::from_secs(1);

    /// A body that says nothing of its length, as a chunked one.
    fn chunked(chunks: Vec<Result<&'static [u8], &'static str>>, ends: bool) -> Body {
        let (sender, receiver) = mpsc::channel(chunks.len().max(1));
        for chunk in chunks {
            sender.try_send(chunk.map(|data| Frame::data(Bytes::from_static(data)))).unwrap();
        }
        let keep_open = (!ends).then_some(sender);
        let stream = futures::stream::unfold((receiver, keep_open), async |(mut receiver, sender)| {
            receiver.recv().await.map(|frame| (frame, (receiver, sender)))
        });
        Body::new(StreamBody::new(Box::pin(stream)))
    }

    #[tokio::test(start_paused = true)]
    async fn one_piece_is_handed_on_as_it_is() {
        let data = Bytes::from_static(b"12345678");
        let read = read_body(Body::from(data.clone()), 8, TIMEOUT).await.unwrap();
        assert_eq!(read.as_ptr(), data.as_ptr());
        assert_eq!(read_body(Body::empty(), 0, TIMEOUT).await.unwrap(), "");
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_holds_whether_announced_or_not() {
        let announced = read_body(Body::from("123456789"), 8, TIMEOUT).await;
        assert!(matches!(announced, Err(BodyError::TooLarge { limit: 8 })));
        let chunks = || vec![Ok(&b"1234"[..]), Ok(b"56"), Ok(b"78")];
        assert_eq!(read_body(chunked(chunks(), true), 8, TIMEOUT).await.unwrap(), "12345678");
        for limit in [3, 5, 7] {
            let read = read_body(chunked(chunks(), true), limit, TIMEOUT).await;
            assert!(matches!(read, Err(BodyError::TooLarge { .. })));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn all_bodies_share_their_memory() {
        let memory = Arc::new(BodyMemory::counting_beyond(0, 10));
        let first = read_body_within(Body::from("123456"), 8, TIMEOUT, &memory).await.unwrap();
        let chunks = vec![Ok(&b"1234"[..]), Ok(b"5")];
        let refused = read_body_within(chunked(chunks.clone(), true), 8, TIMEOUT, &memory).await.unwrap_err();
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(memory.held(), 6, "a refused body gives back what it had");
        drop(first);
        let (body, _reserved) = read_body_within(chunked(chunks, true), 8, TIMEOUT, &memory).await.unwrap();
        assert_eq!((&body[..], memory.held()), (&b"12345"[..], 5));
        let small = Arc::new(BodyMemory::counting_beyond(6, 0));
        assert!(read_body_within(Body::from("123456"), 8, TIMEOUT, &small).await.is_ok());
        assert!(read_body_within(Body::from("1234567"), 8, TIMEOUT, &small).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn slow_and_broken_bodies_are_told_apart() {
        let slow = read_body(chunked(vec![Ok(b"1234")], false), 8, TIMEOUT).await.unwrap_err();
        assert_eq!(slow.status(), StatusCode::REQUEST_TIMEOUT);
        let broken = read_body(chunked(vec![Ok(b"1234"), Err("reset")], true), 8, TIMEOUT).await.unwrap_err();
        assert_eq!(broken.status(), StatusCode::BAD_REQUEST);
        assert!(broken.to_string().contains("reset"));
    }
}
