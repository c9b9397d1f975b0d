#![allow(clippy::unwrap_used, reason = "tests")]

use crate::compression::encode;
use futures::StreamExt as _;
use http::HeaderName;
use http_body_util::{Full, StreamBody};

use super::*;

const LIMIT: usize = 10_000;
const TIME: Duration = Duration::from_secs(5);

/// Memory as a closure has it.
struct Memory<F>(F);

impl<F: FnMut(usize) -> bool + Send + 'static> Hold for Memory<F> {
    fn hold(&mut self, bytes: usize) -> bool {
        (self.0)(bytes)
    }
}

/// A body that comes in these pieces.
fn body(pieces: &[&[u8]]) -> impl Body<Data = Bytes, Error = Infallible> + Unpin + use<> {
    let pieces: Vec<_> = pieces
        .iter()
        .map(|piece| Ok(Frame::data(Bytes::copy_from_slice(piece))))
        .collect();
    StreamBody::new(futures::stream::iter(pieces))
}

fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
    [&[flag][..], &(message.len() as u32).to_be_bytes(), message].concat()
}

/// Returns the message that tonic would read.
async fn received(pieces: &[&[u8]]) -> Result<Bytes, ReceiveError> {
    let (message, _) = receive(
        &mut HeaderMap::new(),
        body(pieces),
        LIMIT,
        TIME,
        Memory(|_| true),
    )
    .await?;
    Ok(message.collect().await.unwrap().to_bytes())
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
    let (message, _) = receive(&mut HeaderMap::new(), body, LIMIT, TIME, Memory(|_| true))
        .await
        .unwrap();
    assert_eq!(
        message.pieces[0].as_ptr(),
        piece.as_ptr(),
        "a long piece is not copied"
    );
    let nothing: [&[&[u8]]; 3] = [&[], &[b""], &[b"", b""]];
    for nothing in nothing {
        assert_eq!(
            received(nothing).await.unwrap(),
            "",
            "tonic says that there is no message"
        );
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
    let error = received(&[&too_large, b"x"]).await.unwrap_err();
    assert!(
        matches!(
            error,
            ReceiveError::TooLarge {
                length: 0xffff_ffff,
                limit: LIMIT
            }
        ),
        "{error}"
    );
    let error = received(&[&framed(0, b"one"), b"x"]).await.unwrap_err();
    assert!(matches!(error, ReceiveError::More), "{error}");
    for part in [&b"\0"[..], b"\0\0\0\0", b"\0\0\0\0\x04", b"\0\0\0\0\x04one"] {
        let error = received(&[part]).await.unwrap_err();
        assert!(
            matches!(error, ReceiveError::Aborted { .. }),
            "{part:?}: {error}"
        );
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
    let error = receive(
        &mut HeaderMap::new(),
        body(&pieces),
        LIMIT,
        TIME,
        Memory(hold),
    )
    .await
    .err()
    .unwrap();
    assert!(matches!(error, ReceiveError::NoMemory), "{error}");
    assert_eq!(asked.try_iter().collect::<Vec<_>>(), [4000, 8000, 9005]);
}

#[tokio::test]
async fn compression_is_undone_and_what_comes_out_is_bounded_and_held() {
    let plain = Bytes::from(vec![7; 9000]);
    for (name, coding) in [("gzip", Coding::Gzip), ("deflate", Coding::Deflate)] {
        let compressed = framed(1, &encode(coding, &plain).await.unwrap());
        assert!(compressed.len() < 1000);
        let headers =
            HeaderMap::from_iter([(HeaderName::from_static(ENCODING), name.parse().unwrap())]);
        let compressed = || body(&[&compressed]);
        let mut after = headers.clone();
        let (decoded, _) = receive(&mut after, compressed(), LIMIT, TIME, Memory(|_| true))
            .await
            .unwrap();
        assert!(!after.contains_key(ENCODING));
        assert_eq!(
            decoded.collect().await.unwrap().to_bytes(),
            framed(0, &plain)
        );
        let too_long = receive(
            &mut headers.clone(),
            compressed(),
            8999,
            TIME,
            Memory(|_| true),
        )
        .await;
        let error = too_long.err().unwrap();
        assert!(
            matches!(
                error,
                ReceiveError::Coding(CodingError::TooLarge { limit: 8999 })
            ),
            "{error}"
        );
        let hold = |bytes| bytes < 9005;
        let error = receive(
            &mut headers.clone(),
            compressed(),
            LIMIT,
            TIME,
            Memory(hold),
        )
        .await
        .err()
        .unwrap();
        assert!(matches!(error, ReceiveError::NoMemory), "{error}");
        let garbled = body(&[&framed(1, b"\x1fgarbled")]);
        let malformed = receive(&mut headers.clone(), garbled, LIMIT, TIME, Memory(|_| true)).await;
        let error = malformed.err().unwrap();
        assert!(
            matches!(error, ReceiveError::Coding(CodingError::Malformed { .. })),
            "{error}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_does_not_end_is_waited_for_no_longer_than_it_may_take() {
    let start = vec![Ok::<_, Infallible>(Frame::data(Bytes::from_static(
        b"\0\0\0\0\x04",
    )))];
    let body = futures::stream::iter(start).chain(futures::stream::pending());
    let before = tokio::time::Instant::now();
    let late = receive(
        &mut HeaderMap::new(),
        StreamBody::new(body),
        LIMIT,
        TIME,
        Memory(|_| true),
    )
    .await;
    let error = late.err().unwrap();
    assert_eq!(
        (error.code(), before.elapsed()),
        (Code::DeadlineExceeded, TIME)
    );
}
