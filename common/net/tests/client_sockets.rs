//! Real sockets, and servers that misbehave.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, StatusCode};
use parapet_net::client::{Connections, Limits, SendError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const LIMITS: Limits = Limits { connect_timeout: None, max_response_bytes: 1024, max_idle: 4 };

fn request() -> Request<Full<Bytes>> {
    Request::post("/")
        .header("host", "server")
        .body(Full::new(Bytes::from_static(b"query")))
        .unwrap()
}

/// Reads one request of [`request`]'s form; false at the end of the connection.
async fn read_request(stream: &mut TcpStream) -> bool {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\nquery") {
        let mut part = [0; 1024];
        match stream.read(&mut part).await {
            Ok(0) | Err(_) => return false,
            Ok(length) => read.extend_from_slice(&part[..length]),
        }
    }
    true
}

/// A server that takes `takes` requests on each connection, answers the first `answers` of them and
/// then closes it. Counts connections, or requests.
async fn serve(
    (takes, answers): (usize, usize),
    response: &'static [u8],
    counts_requests: bool,
) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            counted.fetch_add(usize::from(!counts_requests), Ordering::SeqCst);
            let counted = Arc::clone(&counted);
            tokio::spawn(async move {
                for taken in 0..takes {
                    if !read_request(&mut stream).await {
                        return;
                    }
                    counted.fetch_add(usize::from(counts_requests), Ordering::SeqCst);
                    if taken < answers {
                        stream.write_all(response).await.unwrap();
                    }
                }
            });
        }
    });
    (address, count)
}

/// A server that answers `answers` requests on each connection and then closes it; counts
/// connections.
async fn server(answers: usize, response: &'static [u8]) -> (SocketAddr, Arc<AtomicUsize>) {
    serve((answers, answers), response, false).await
}

async fn failed(address: SocketAddr) -> SendError {
    let client = Connections::new(address, LIMITS);
    client.send(request).await.unwrap_err()
}

/// Sends four requests.
async fn at_once(client: &Connections) {
    let sent = (0..4).map(|_| client.send(request));
    futures::future::try_join_all(sent).await.unwrap();
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[tokio::test]
async fn one_connection_carries_one_request_after_another() {
    let (address, connections) = server(usize::MAX, OK).await;
    let client = Connections::new(address, LIMITS);
    for _ in 0..5 {
        let response = client.send(request).await.unwrap();
        assert_eq!((response.status, &response.body[..]), (StatusCode::OK, &b"ok"[..]));
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn requests_at_once_have_a_connection_each_and_few_are_kept() {
    let (address, connections) = server(usize::MAX, OK).await;
    let max_idle = 2;
    let client = Connections::new(address, Limits { max_idle, ..LIMITS });
    for _ in 0..2 {
        at_once(&client).await;
    }
    assert_eq!(connections.load(Ordering::SeqCst), 4 + 2);
}

#[tokio::test]
async fn a_kept_connection_that_was_closed_is_replaced() {
    let (address, connections) = server(1, OK).await;
    let client = Connections::new(address, LIMITS);
    for sent in 1..=3 {
        client.send(request).await.unwrap();
        assert_eq!(connections.load(Ordering::SeqCst), sent);
    }
}

#[tokio::test]
async fn a_request_is_sent_at_most_twice_however_many_connections_are_idle() {
    // It answers one request on each connection, and closes it when it has read a second one.
    let (address, requests) = serve((2, 1), OK, true).await;
    let client = Connections::new(address, LIMITS);
    at_once(&client).await;
    assert_eq!(requests.load(Ordering::SeqCst), 4);
    client.send(request).await.unwrap();
    assert_eq!(requests.load(Ordering::SeqCst), 6);
}

#[tokio::test]
async fn a_fresh_connection_that_ends_without_a_response_is_an_error() {
    let (address, connections) = server(0, OK).await;
    let error = failed(address).await;
    assert!(matches!(error, SendError::Lost(_)) && !error.is_unsent(), "{error}");
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_response_that_is_too_long_or_cut_short_is_an_error() {
    type Ending = fn(&SendError) -> bool;
    let long = [&b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n"[..], &[b'x'; 5000]].concat();
    let long: &'static [u8] = long.leak();
    let ended: [(&[u8], Ending); 2] = [
        (long, |error| matches!(error, SendError::TooLong { .. })),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nshort", |error| {
            matches!(error, SendError::Body(_))
        }),
    ];
    for (response, expected) in ended {
        let (address, connections) = server(1, response).await;
        let error = failed(address).await;
        assert!(expected(&error) && !error.is_unsent(), "{error:?}");
        assert_eq!(
            connections.load(Ordering::SeqCst),
            1,
            "a response that began is not asked for again"
        );
    }
}

#[tokio::test]
async fn nobody_there_is_told_from_a_lost_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = failed(address).await;
    assert!(matches!(error, SendError::Connect(_)) && error.is_unsent(), "{error}");
}
