//! Abuse of the request's body.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::site::{Site, many, read_response, status_of, twenty, until_all_closed, until_closed};
use crate::support::INFER;

/// Time between two pieces of a body that trickles.
const PAUSE: Duration = Duration::from_millis(20);

async fn begin(site: &Site, fields: &str) -> TcpStream {
    let mut stream = site.abuser().await;
    let head = format!("POST {INFER} HTTP/1.1\r\nhost: x\r\n{fields}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

/// Sends `piece` again and again until the server has had enough; its answer. `pause` is the
/// abuser's pace: nothing is awaited.
async fn repeat(mut stream: TcpStream, piece: &[u8], pause: Duration) -> String {
    let (mut reading, mut writing) = stream.split();
    let write = async {
        while writing.write_all(piece).await.is_ok() {
            tokio::time::sleep(pause).await;
        }
    };
    let mut said = String::new();
    let read = async {
        let mut bytes = Vec::new();
        let _ = reading.read_to_end(&mut bytes).await;
        said = String::from_utf8_lossy(&bytes).into_owned();
    };
    tokio::join!(write, read);
    said
}

/// Slowloris in the body: cut off at the body's timeout, however many bytes came.
async fn trickle_of(site: &Site, fields: &str, piece: &'static [u8]) {
    let repeat = |stream| repeat(stream, piece, PAUSE);
    for said in twenty(async || begin(site, fields).await, repeat).await {
        assert_eq!(status_of(&said), 408, "{said}");
    }
}

pub async fn trickle(site: &Site) {
    trickle_of(site, "content-length: 50000", b" ").await;
}

pub async fn trickling_chunks(site: &Site) {
    trickle_of(site, "transfer-encoding: chunked", b"1\r\n \r\n").await;
}

/// Refused before it is sent; and while it is sent, the answer still gets through.
pub async fn too_long_announced(site: &Site) {
    for length in [100_001_u64, u64::MAX - 1, u64::MAX] {
        let mut stream = begin(site, &format!("content-length: {length}")).await;
        let said = until_closed(&mut stream).await;
        // The largest lengths are none at all.
        let status = status_of(&said);
        assert!([413, 400, 431].contains(&status), "{length}: {said}");
    }
    let stream = begin(site, "content-length: 1000000").await;
    let said = repeat(stream, &[b' '; 1000], Duration::ZERO).await;
    assert_eq!(status_of(&said), 413, "{said}");
}

pub async fn too_long_chunked(site: &Site) {
    let chunk = [b"2710\r\n".as_slice(), &[b' '; 10_000], b"\r\n"].concat();
    let stream = begin(site, "transfer-encoding: chunked").await;
    let said = repeat(stream, &chunk, Duration::ZERO).await;
    assert_eq!(status_of(&said), 413, "{said}");
}

pub async fn garbled_chunks(site: &Site) {
    for body in [
        "zz\r\nab\r\n",
        "-1\r\n",
        "ffffffffffffffffff\r\na",
        "2\r\nabc\r\n0\r\n\r\n",
        "\r\n\r\n",
        "1;\r\x00\nx",
    ] {
        let mut stream = begin(site, "transfer-encoding: chunked").await;
        stream.write_all(body.as_bytes()).await.unwrap();
        let said = until_closed(&mut stream).await;
        assert!([0, 400].contains(&status_of(&said)), "{body:?}: {said}");
    }
}

/// Trailers and extensions of chunks are bounded as well.
pub async fn endless_chunk_parts(site: &Site) {
    for start in ["1;", "1\r\n \r\n0\r\n"] {
        let mut stream = begin(site, "transfer-encoding: chunked").await;
        stream.write_all(start.as_bytes()).await.unwrap();
        let piece = if start.ends_with(';') {
            "x".repeat(1000)
        } else {
            format!("x: {}\r\n", "y".repeat(1000))
        };
        let mut sent = 0;
        while sent < 100_000 && stream.write_all(piece.as_bytes()).await.is_ok() {
            sent += 1;
        }
        assert!(sent < 100_000, "100 MB of them were taken");
    }
}

/// All bodies together have a bound, that of each and of the number of connections aside. Small
/// ones are not touched by it.
pub async fn fill_memory(site: &Site) {
    let fill = async || {
        let mut stream = begin(site, "content-length: 99999").await;
        let _ = stream.write_all(&vec![b' '; 99_990]).await;
        stream
    };
    let said = until_all_closed(many(20, fill).await).await;
    let statuses: Vec<u16> = said.iter().map(|said| status_of(said)).collect();
    let refused = statuses.iter().all(|status| [408, 503].contains(status));
    assert!(refused, "{statuses:?}");
    assert!(statuses.contains(&503), "{statuses:?}");
}

pub async fn expect_continue(site: &Site) {
    let mut stream = begin(site, "content-length: 10\r\nexpect: 100-continue").await;
    assert_eq!(read_response(&mut stream).await.unwrap().0, 100);
    assert_eq!(status_of(&until_closed(&mut stream).await), 408);
    let mut stream = begin(site, "content-length: 1000000\r\nexpect: 100-continue").await;
    // It is not asked for first.
    assert_eq!(status_of(&until_closed(&mut stream).await), 413);
}

pub async fn broken_off(site: &Site) {
    for fields in ["content-length: 1000", "transfer-encoding: chunked"] {
        for _ in 0..50 {
            let mut stream = begin(site, fields).await;
            // One that comes before the last ones were found to be gone may be closed as one too
            // many.
            let _ = stream.write_all(b"3e8\r\n").await;
        }
    }
}
