//! Abuse of the request's header.

use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::task::JoinSet;

use crate::site::{INFER, Site, status_of, until_closed};

/// Slowloris: a byte now and then, the end never. Cut off at the header's timeout, however
/// many bytes came.
pub async fn trickle(site: &Site) {
    let mut abusers = JoinSet::new();
    for _ in 0..20 {
        let mut stream = site.abuser().await;
        abusers.spawn(async move {
            stream.write_all(b"POST / HTTP/1.1\r\nx: ").await.unwrap();
            let mut sent = 0;
            while stream.write_all(b"x").await.is_ok() {
                sent += 1;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            sent
        });
    }
    while let Some(sent) = abusers.join_next().await {
        assert!(sent.unwrap() < 1000, "a header of 20 s was waited for");
    }
}

pub async fn field_too_long(site: &Site) {
    let long = "x".repeat(20_000);
    assert_eq!(site.status(&format!("x: {long}\r\n"), "").await, 431);
}

pub async fn endless(site: &Site) {
    let mut stream = site.abuser().await;
    let mut sent = 0;
    stream.write_all(b"GET /v2 HTTP/1.1\r\n").await.unwrap();
    while sent < 100_000_000 && stream.write_all(&[b'x'; 4096]).await.is_ok() {
        sent += 4096;
    }
    assert!(sent < 16_000_000, "{sent} bytes of a header were taken");
}

pub async fn too_many_fields(site: &Site) {
    let fields: String = (0..200).map(|i| format!("x{i}: y\r\n")).collect();
    assert_eq!(site.status(&fields, "").await, 431);
}

pub async fn path_too_long(site: &Site) {
    let said = site
        .send(format!(
            "GET /{} HTTP/1.1\r\nhost: x\r\n\r\n",
            "x".repeat(70_000)
        ))
        .await;
    assert!([414, 431].contains(&status_of(&said)), "{said}");
}

/// Request smuggling: two readers of one request would not agree where it ends.
pub async fn two_lengths(site: &Site) {
    for lengths in [
        "content-length: 3\r\ncontent-length: 30",
        "content-length: 3, 30",
        "content-length: +3",
    ] {
        let said = site
            .send(format!(
                "POST {INFER} HTTP/1.1\r\nhost: x\r\n{lengths}\r\n\r\nabc"
            ))
            .await;
        assert_eq!(status_of(&said), 400, "{lengths}: {said}");
    }
}

/// The chunks count, and nothing after them is taken for a request.
pub async fn length_and_chunks(site: &Site) {
    let smuggled = "GET /v2 HTTP/1.1\r\nhost: x\r\n\r\n";
    for fields in [
        "content-length: 4\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ncontent-length: 4",
    ] {
        let request =
            format!("POST {INFER} HTTP/1.1\r\nhost: x\r\n{fields}\r\n\r\n0\r\n\r\n{smuggled}");
        let said = site.send(request).await;
        assert_eq!(
            (status_of(&said), said.matches("HTTP/1.1").count()),
            (400, 1),
            "{said}"
        );
    }
    for encoding in ["identity", "gzip, identity", "chunked, gzip", "\x0bchunked"] {
        let request = format!(
            "POST {INFER} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: {encoding}\r\n\r\n0\r\n\r\n"
        );
        let said = site.send(request).await;
        assert_eq!(status_of(&said), 400, "{encoding}: {said}");
    }
}

pub async fn garbage(site: &Site) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..20 {
        let bytes: Vec<u8> = (0..300)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state as u8
            })
            .collect();
        let said = site.send(bytes).await;
        assert!([0, 400].contains(&status_of(&said)), "{said}");
    }
    for line in [
        "GET / HTTP/9.9\r\n\r\n",
        "\0\0\0\0\r\n\r\n",
        "GET  / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\nx\r\n\r\n",
    ] {
        let said = site.send(line).await;
        assert!(
            [0, 400, 505].contains(&status_of(&said)),
            "{line:?}: {said}"
        );
    }
}

pub async fn tls_hello(site: &Site) {
    let hello = [
        &[
            0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03,
        ][..],
        &[0x5a; 508],
    ]
    .concat();
    let said = site.send(hello).await;
    assert!([0, 400].contains(&status_of(&said)), "{said}");
}

pub async fn http_2_preface(site: &Site) {
    let mut stream = site.abuser().await;
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .await
        .unwrap();
    let _ = stream.write_all(&settings).await;
    // Streams that are opened and reset at once, without end: none is served.
    let mut sent = 0;
    let (open, reset) = (
        [0, 0, 1, 1, 5, 0, 0, 0, 1, 0x82],
        [0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 8],
    );
    while sent < 1_000_000
        && stream
            .write_all(&[&open[..], &reset].concat())
            .await
            .is_ok()
    {
        sent += 1;
    }
    assert!(sent < 1_000_000, "a million streams were taken");
    until_closed(&mut stream).await;
}
