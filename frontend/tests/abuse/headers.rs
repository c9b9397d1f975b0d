//! Abuse of the request's header.

use tokio::io::AsyncWriteExt as _;

use crate::grpc::wire::PREFACE;
use crate::site::{self, Random, Site, status_of, until_closed};
use crate::support::INFER;

/// The end never comes. Cut off at the header's timeout, however many bytes came.
pub async fn trickle(site: &Site) {
    let start = b"POST / HTTP/1.1\r\nx: ";
    site::trickle(async || site.abuser().await, start, b'x', 1000).await;
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
    let path = "x".repeat(70_000);
    let request = format!("GET /{path} HTTP/1.1\r\nhost: x\r\n\r\n");
    let said = site.send(request).await;
    assert!([414, 431].contains(&status_of(&said)), "{said}");
}

/// Request smuggling: two readers of one request would not agree where it ends.
pub async fn two_lengths(site: &Site) {
    for lengths in
        ["content-length: 3\r\ncontent-length: 30", "content-length: 3, 30", "content-length: +3"]
    {
        let request = format!("POST {INFER} HTTP/1.1\r\nhost: x\r\n{lengths}\r\n\r\nabc");
        let said = site.send(request).await;
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
        let seen = (status_of(&said), said.matches("HTTP/1.1").count());
        assert_eq!(seen, (400, 1), "{said}");
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
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..20 {
        let said = site.send(random.bytes(300)).await;
        assert!([0, 400].contains(&status_of(&said)), "{said}");
    }
    for line in [
        "GET / HTTP/9.9\r\n\r\n",
        "\0\0\0\0\r\n\r\n",
        "GET  / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\nx\r\n\r\n",
    ] {
        let said = site.send(line).await;
        let status = status_of(&said);
        assert!([0, 400, 505].contains(&status), "{line:?}: {said}");
    }
}

pub async fn tls_hello(site: &Site) {
    let said = site.send(crate::site::tls_hello()).await;
    assert!([0, 400].contains(&status_of(&said)), "{said}");
}

pub async fn http_2_preface(site: &Site) {
    let mut stream = site.abuser().await;
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    stream.write_all(PREFACE).await.unwrap();
    let _ = stream.write_all(&settings).await;
    // Streams that are opened and reset at once, without end: none is served.
    let mut sent = 0;
    let open = [0, 0, 1, 1, 5, 0, 0, 0, 1, 0x82];
    let reset = [0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 8];
    let both = [&open[..], &reset].concat();
    while sent < 1_000_000 && stream.write_all(&both).await.is_ok() {
        sent += 1;
    }
    assert!(sent < 1_000_000, "a million streams were taken");
    until_closed(&mut stream).await;
}
