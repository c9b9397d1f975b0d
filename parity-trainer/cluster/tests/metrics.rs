//! Metrics of a server, as Prometheus gets them.

#![allow(clippy::unwrap_used, reason = "tests")]

use parapet_cluster::node::transport::Tcp;
use parapet_cluster::registry::Registry;
use parapet_cluster::roles::{ServerRole, ServerSettings};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

#[tokio::test]
async fn a_server_is_scraped_and_says_who_leads() {
    let registry = Registry::in_process().await.unwrap();
    let metrics = Some("127.0.0.1:0".to_owned());
    let settings = ServerSettings {
        metrics,
        ..ServerSettings::new("test")
    };
    let server = ServerRole::join(&registry, settings, Tcp).await.unwrap();
    let address = server.metrics_address().unwrap().to_owned();
    registry
        .view()
        .wait_for(|view| view.leader.is_some())
        .await
        .unwrap();
    let running = tokio::spawn(server.run(std::future::pending()));
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    for line in [
        "parapet_parameter_server_leads 1",
        "parapet_parameter_server_registry_reachable 1",
    ] {
        assert!(
            answer.lines().any(|held| held == line),
            "{line} is not in {answer}"
        );
    }
    running.abort();
}
