//! Reading a request's body within bounds.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::http::StatusCode;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use tokio::time::{Instant, timeout_at};

use crate::server::{BodyMemory, Reserved};

#[allow(missing_docs, reason = "the messages say what variants and fields are")]
/// Reason why a body was not read.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// Found before or while reading.
    #[error("the body is larger than {limit} bytes")]
    TooLarge { limit: usize },
    /// Worth a retry.
    #[error("the body did not arrive within {limit:?}")]
    Timeout { limit: Duration },
    /// Worth a retry.
    #[error("all requests' bodies together would be larger than {limit} bytes; try again later")]
    NoMemory { limit: usize },
    /// The connection broke, or the chunks are malformed.
    #[error("the body broke off: {source}")]
    Aborted { source: axum::Error },
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

/// Bytes of a body that come before memory is set aside for the rest of it, on the word of its
/// `Content-Length` or up to the limit. The system gives pages as they are written to.
const RESERVE: usize = 64 << 10;
/// Time for which others wait for all that a body has announced; from then on, for what has come.
const SOON: Duration = Duration::from_secs(1);

/// Reads `body` whole. A body that arrives in one piece, as small ones do, is not copied.
pub async fn read_body(
    body: Body,
    max_bytes: usize,
    timeout: Duration,
) -> Result<Bytes, BodyError> {
    Receiving::of(body, max_bytes, timeout, None).read().await
}

/// As [`read_body`], within the memory that all bodies share: hold on to what is returned beside
/// the body for as long as to the body. What a client merely announces takes none of it, but long
/// bodies wait for each other: those that were begun before are received and decoded first.
pub async fn read_body_within(
    body: Body,
    max_bytes: usize,
    timeout: Duration,
    memory: &Arc<BodyMemory>,
) -> Result<(Bytes, Reserved), BodyError> {
    let mut reserved = memory.reserve(None);
    Ok((Receiving::of(body, max_bytes, timeout, Some(&mut reserved)).read().await?, reserved))
}

struct Receiving<'a> {
    body: Body,
    limit: usize,
    timeout: Duration,
    ends: Instant,
    reserved: Option<&'a mut Reserved>,
    /// End of the time for which others wait for all that was announced.
    soon: Option<Instant>,
}

impl<'a> Receiving<'a> {
    fn of(body: Body, limit: usize, timeout: Duration, reserved: Option<&'a mut Reserved>) -> Self {
        Self { body, limit, timeout, ends: Instant::now() + timeout, reserved, soon: None }
    }

    async fn read(mut self) -> Result<Bytes, BodyError> {
        let announced = self.body.size_hint().lower();
        if usize::try_from(announced).map_or(true, |announced| announced > self.limit) {
            return Err(BodyError::TooLarge { limit: self.limit });
        }
        let Some(first) = self.next(0).await? else { return Ok(Bytes::new()) };
        self.hold(first.len()).await?;
        let Some(mut piece) = self.next(first.len()).await? else { return Ok(first) };
        let mut whole = BytesMut::from(first);
        whole.reserve(piece.len() + self.left().min(RESERVE));
        loop {
            let length = whole.len() + piece.len();
            self.hold(length).await?;
            if length > whole.capacity() {
                // Once, so that no body is copied again and again into memory of twice its length.
                whole.reserve(piece.len() + self.left().min(self.limit - length));
            }
            whole.extend_from_slice(&piece);
            match self.next(length).await? {
                Some(next) => piece = next,
                None => return Ok(whole.freeze()),
            }
        }
    }

    /// Bytes that are announced and have not come; the most that there can be if none are.
    fn left(&self) -> usize {
        let exact = self.body.size_hint().exact().and_then(|left| usize::try_from(left).ok());
        exact.unwrap_or(self.limit)
    }

    async fn next(&mut self, length: usize) -> Result<Option<Bytes>, BodyError> {
        if let Some(soon) = self.soon {
            if let Ok(piece) = timeout_at(soon, next_piece(&mut self.body)).await {
                return piece;
            }
            if let Some(reserved) = &mut self.reserved {
                reserved.expect_no_more_than(length);
            }
        }
        let (piece, limit) = (next_piece(&mut self.body), self.timeout);
        timeout_at(self.ends, piece).await.unwrap_or(Err(BodyError::Timeout { limit }))
    }

    /// Sets memory aside for `length` bytes in all; a long body waits for its turn first.
    async fn hold(&mut self, length: usize) -> Result<(), BodyError> {
        if length > self.limit {
            return Err(BodyError::TooLarge { limit: self.limit });
        }
        let all = length.saturating_add(self.left()).min(self.limit);
        let Some(reserved) = &mut self.reserved else { return Ok(()) };
        if reserved.waits_with(length) {
            if timeout_at(self.ends, reserved.turn(all)).await.is_err() {
                return Err(reserved.no_memory());
            }
            self.soon = Some(Instant::now() + SOON);
        }
        reserved.hold(length)
    }
}

async fn next_piece(body: &mut Body) -> Result<Option<Bytes>, BodyError> {
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(|source| BodyError::Aborted { source })?.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::StreamBody;
    use hyper::body::{Frame, SizeHint};
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use tokio::sync::mpsc;

    const TIMEOUT: Duration = Duration::from_secs(1);

    /// A body that says nothing of its length, as a chunked one.
    fn chunked(chunks: Vec<Result<&'static [u8], &'static str>>, ends: bool) -> Body {
        let (sender, receiver) = mpsc::channel(chunks.len().max(1));
        for chunk in chunks {
            sender.try_send(chunk.map(|data| Frame::data(Bytes::from_static(data)))).unwrap();
        }
        let keep_open = (!ends).then_some(sender);
        let stream =
            futures::stream::unfold((receiver, keep_open), async |(mut receiver, sender)| {
                receiver.recv().await.map(|frame| (frame, (receiver, sender)))
            });
        Body::new(StreamBody::new(Box::pin(stream)))
    }

    #[tokio::test(start_paused = true)]
    async fn one_piece_is_handed_on_as_it_is() {
        let data = Bytes::from_static(b"12345678");
        let read = read_body(Body::from(data.clone()), 8, TIMEOUT).await;
        assert_eq!(read.unwrap().as_ptr(), data.as_ptr());
        assert_eq!(read_body(Body::empty(), 0, TIMEOUT).await.unwrap(), "");
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_holds_whether_announced_or_not() {
        let announced = read_body(Body::from("123456789"), 8, TIMEOUT).await;
        assert!(matches!(announced, Err(BodyError::TooLarge { limit: 8 })));
        let read = async |limit| {
            let chunks = vec![Ok(&b"1234"[..]), Ok(b"56"), Ok(b"78")];
            read_body(chunked(chunks, true), limit, TIMEOUT).await
        };
        assert_eq!(read(8).await.unwrap(), "12345678");
        for limit in [3, 5, 7] {
            let refused = read(limit).await.unwrap_err();
            assert!(matches!(refused, BodyError::TooLarge { .. }));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn all_bodies_share_their_memory() {
        let read = async |body, memory| read_body_within(body, 8, TIMEOUT, memory).await;
        let memory = Arc::new(BodyMemory::counting_beyond(0, 10));
        let first = read(Body::from("123456"), &memory).await.unwrap();
        let chunks = || chunked(vec![Ok(&b"1234"[..]), Ok(b"5")], true);
        let refused = read(chunks(), &memory).await.unwrap_err();
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(memory.held(), 6, "a refused body gives back what it had");
        drop(first);
        let (body, _reserved) = read(chunks(), &memory).await.unwrap();
        assert_eq!((&body[..], memory.held()), (&b"12345"[..], 5));
        let small = Arc::new(BodyMemory::counting_beyond(6, 0));
        assert!(read(Body::from("123456"), &small).await.is_ok());
        assert!(read(Body::from("1234567"), &small).await.is_err());
    }

    /// A body that announces so many bytes.
    struct Announced(Body, u64);

    impl hyper::body::Body for Announced {
        type Data = Bytes;
        type Error = axum::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
            Pin::new(&mut self.0).poll_frame(context)
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(self.1)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come_keeps_another_waiting_for_a_second() {
        let memory = Arc::new(BodyMemory::counting_beyond(1, 20));
        let shared = Arc::clone(&memory);
        let trickles = tokio::spawn(async move {
            let body = Body::new(Announced(chunked(vec![Ok(b"12")], false), 14));
            read_body_within(body, 16, 10 * TIMEOUT, &shared).await.unwrap_err()
        });
        tokio::task::yield_now().await;
        let begun = Instant::now();
        let read = async |pieces: &[&'static [u8]]| {
            let body = chunked(pieces.iter().map(|&piece| Ok(piece)).collect(), true);
            read_body_within(body, 16, 5 * TIMEOUT, &memory).await
        };
        assert!(read(&[b"1"]).await.is_ok(), "a short body needs no turn");
        assert_eq!(begun.elapsed(), Duration::ZERO);
        // It may have as many as 16, and 20 are received at a time.
        let (body, mut reserved) = read(&[b"12", b"34"]).await.unwrap();
        assert_eq!((&body[..], begun.elapsed()), (&b"1234"[..], SOON));
        let refused = read(&[b"12", b"34"]).await.unwrap_err();
        assert!(matches!(refused, BodyError::NoMemory { limit: 20 }));
        assert_eq!(begun.elapsed(), SOON + 5 * TIMEOUT);
        reserved.decoded();
        assert!(read(&[b"12", b"34"]).await.is_ok());
        assert!(matches!(trickles.await.unwrap(), BodyError::Timeout { .. }));
    }

    #[tokio::test(start_paused = true)]
    async fn slow_and_broken_bodies_are_told_apart() {
        let error = async |body| read_body(body, 8, TIMEOUT).await.unwrap_err();
        let slow = error(chunked(vec![Ok(b"1234")], false)).await;
        assert_eq!(slow.status(), StatusCode::REQUEST_TIMEOUT);
        let broken = error(chunked(vec![Ok(b"1234"), Err("reset")], true)).await;
        assert_eq!(broken.status(), StatusCode::BAD_REQUEST);
        assert!(broken.to_string().contains("reset"));
    }
}
