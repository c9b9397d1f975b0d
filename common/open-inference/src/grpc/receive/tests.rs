#![allow(clippy::unwrap_used, reason = "tests")]

use std::convert::Infallible;

use futures::StreamExt as _;
use http::{HeaderName, Request};
use http_body_util::StreamBody;
use hyper::body::Frame;

use super::*;
use crate::compression::encode;

const LIMIT: usize = 10_000;
const TIME: Duration = Duration::from_secs(5);

/// Memory as a closure has it.
struct Memory<F>(F);

impl<F: FnMut(usize) -> bool + Send + 'static> Room for Memory<F> {
    fn hold(&mut self, bytes: usize) -> Result<(), ProtocolError> {
        let holds = (self.0)(bytes);
        holds.then_some(()).ok_or(ProtocolError::NoMemory)
    }
}

type Failed = Box<dyn Error + Send + Sync>;

/// Returns the message that tonic would read, within `limit` and `memory`; with the `headers` as
/// they are after.
async fn receive_from(
    body: impl Body<Data = Bytes, Error = Infallible> + Unpin,
    headers: &mut http::HeaderMap,
    limit: usize,
    memory: impl FnMut(usize) -> bool + Send + 'static,
) -> Result<Bytes, Failed> {
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.headers = std::mem::take(headers);
    let memory = Memory(memory);
    let received =
        receive(&mut parts, body, limit, TIME, memory, |_, _, _| Ok::<_, Failed>(())).await;
    *headers = parts.headers;
    Ok(received?.0.collect().await?.to_bytes())
}

/// A body that comes in these pieces.
fn body(pieces: &[&[u8]]) -> impl Body<Data = Bytes, Error = Infallible> + Unpin + use<> {
    let pieces: Vec<_> =
        pieces.iter().map(|piece| Ok(Frame::data(Bytes::copy_from_slice(piece)))).collect();
    StreamBody::new(futures::stream::iter(pieces))
}

fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
    [&[flag][..], &(message.len() as u32).to_be_bytes(), message].concat()
}

async fn received(pieces: &[&[u8]]) -> Result<Bytes, Failed> {
    receive_from(body(pieces), &mut Default::default(), LIMIT, |_| true).await
}

fn reason<E: Error + 'static>(result: Result<Bytes, Failed>) -> E {
    *result.unwrap_err().downcast().unwrap()
}

#[tokio::test]
async fn a_message_is_handed_on_as_it_came_whatever_its_pieces() {
    let whole = framed(0, &[7; 9000]);
    for size in [1, 3, 5, 6, 100, 4095, 4096, 5000, 9005] {
        let pieces: Vec<&[u8]> = whole.chunks(size).collect();
        assert_eq!(received(&pieces).await.unwrap(), whole, "{size}");
    }
    let piece = Bytes::from(whole.clone());
    let body = Full::new(piece.clone());
    let message = receive_from(body, &mut Default::default(), LIMIT, |_| true).await;
    assert_eq!(message.unwrap().as_ptr(), piece.as_ptr(), "a long piece is not copied");
    let nothing: [&[&[u8]]; 3] = [&[], &[b""], &[b"", b""]];
    for nothing in nothing {
        assert_eq!(received(nothing).await.unwrap(), "", "tonic says that there is no message");
    }
    assert_eq!(received(&[&framed(0, b"")]).await.unwrap(), framed(0, b""));
    assert_eq!(
        received(&[&framed(9, b"x")]).await.unwrap(),
        framed(9, b"x"),
        "tonic says what is wrong"
    );
}

#[tokio::test]
async fn what_is_announced_is_believed_only_against_it() {
    let too_large = [0, 0xff, 0xff, 0xff, 0xff];
    let error = reason(received(&[&too_large, b"x"]).await);
    assert!(
        matches!(error, ReceiveError::TooLarge { length: 0xffff_ffff, limit: LIMIT }),
        "{error}"
    );
    let error = reason(received(&[&framed(0, b"one"), b"x"]).await);
    assert!(matches!(error, ReceiveError::More), "{error}");
    for part in [&b"\0"[..], b"\0\0\0\0", b"\0\0\0\0\x04", b"\0\0\0\0\x04one"] {
        let error = reason(received(&[part]).await);
        assert!(matches!(error, ReceiveError::Aborted { .. }), "{part:?}: {error}");
    }
}

#[tokio::test]
async fn what_is_held_is_asked_for_first() {
    let whole = framed(0, &[7; 9000]);
    let pieces: Vec<&[u8]> = whole.chunks(4000).collect();
    let (sender, asked) = std::sync::mpsc::channel();
    let hold = move |bytes| {
        sender.send(bytes).unwrap();
        bytes <= 8000
    };
    let result = receive_from(body(&pieces), &mut Default::default(), LIMIT, hold).await;
    assert!(matches!(reason(result), ProtocolError::NoMemory));
    assert_eq!(asked.try_iter().collect::<Vec<_>>(), [4000, 8000, 9005]);
}

#[tokio::test]
async fn compression_is_undone_and_what_comes_out_is_bounded_and_held() {
    let plain = Bytes::from(vec![7; 9000]);
    for (name, coding) in [("gzip", Coding::Gzip), ("deflate", Coding::Deflate)] {
        let compressed = framed(1, &encode(coding, &plain).await.unwrap());
        assert!(compressed.len() < 1000);
        let headers = || {
            let encoding = HeaderName::from_static(ENCODING);
            http::HeaderMap::from_iter([(encoding, name.parse().unwrap())])
        };
        let compressed = || body(&[&compressed]);
        let mut after = headers();
        let decoded = receive_from(compressed(), &mut after, LIMIT, |_| true).await;
        assert!(!after.contains_key(ENCODING));
        assert_eq!(decoded.unwrap(), framed(0, &plain));
        let too_long = receive_from(compressed(), &mut headers(), 8999, |_| true).await;
        assert_eq!(reason::<CodingError>(too_long), CodingError::TooLarge { limit: 8999 });
        let hold = |bytes| bytes < 9005;
        let not_held = receive_from(compressed(), &mut headers(), LIMIT, hold).await;
        assert!(matches!(reason(not_held), ProtocolError::NoMemory));
        let garbled = body(&[&framed(1, b"\x1fgarbled")]);
        let error = reason(receive_from(garbled, &mut headers(), LIMIT, |_| true).await);
        assert!(matches!(error, CodingError::Malformed { .. }), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_does_not_end_is_waited_for_no_longer_than_it_may_take() {
    let start = vec![Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"\0\0\0\0\x04")))];
    let body = StreamBody::new(futures::stream::iter(start).chain(futures::stream::pending()));
    let before = tokio::time::Instant::now();
    let late = receive_from(body, &mut Default::default(), LIMIT, |_| true).await;
    assert_eq!(
        (reason::<ReceiveError>(late).code(), before.elapsed()),
        (Code::DeadlineExceeded, TIME)
    );
}
