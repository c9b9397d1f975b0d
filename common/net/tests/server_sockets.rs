//! The accept loop on real sockets.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use axum::routing::post;
use parapet_net::server::{DrainReport, Limits, Server, read_body};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

const SECOND: Duration = Duration::from_secs(1);

async fn start() -> (SocketAddr, oneshot::Sender<()>, tokio::task::JoinHandle<DrainReport>) {
    let echo = async |body: Body| match read_body(body, 100_000, SECOND).await {
        Ok(body) => (StatusCode::OK, format!("{} bytes", body.len())),
        Err(error) => (error.status(), error.to_string()),
    };
    let app = axum::Router::new().route("/", post(echo));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (shutdown, asked) = oneshot::channel::<()>();
    let asked = async move { asked.await.unwrap_or(()) };
    let serving = tokio::spawn(Server::new(app, Limits::default()).run(listener, asked, SECOND));
    (address, shutdown, serving)
}

async fn exchange(stream: &mut TcpStream, length: usize) -> String {
    let head = format!("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&vec![0; length]).await.unwrap();
    let mut buffer = [0; 1024];
    let length = stream.read(&mut buffer).await.unwrap();
    String::from_utf8_lossy(&buffer[..length]).into_owned()
}

#[tokio::test]
async fn bodies_pass_and_the_port_closes_on_shutdown() {
    let (address, shutdown, serving) = start().await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    for length in [3, 100_000] {
        let answer = exchange(&mut stream, length).await;
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.ends_with(&format!("{length} bytes")),
            "{answer}"
        );
    }
    shutdown.send(()).unwrap();
    let DrainReport { drained, aborted } = serving.await.unwrap();
    assert_eq!((drained, aborted), (1, 0));
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_before_it_is_sent() {
    let (address, _shutdown, _serving) = start().await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100001\r\n\r\n";
    stream.write_all(head).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 413") && answer.ends_with("larger than 100000 bytes"),
        "{answer}"
    );
}
