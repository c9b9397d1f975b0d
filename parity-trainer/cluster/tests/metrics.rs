//! Metrics of a server, as Prometheus gets them.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use parapet_cluster::node::NodeConfig;
use parapet_cluster::registry::{MemoryStore, Registry};
use parapet_cluster::roles::{ServerRole, ServerSettings};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

#[tokio::test]
async fn scraped_server_says_that_it_leads() {
    let registry = Registry::open(Arc::new(MemoryStore::default())).await.unwrap();
    let mut settings = ServerSettings::new(NodeConfig::default());
    settings.metrics = Some("127.0.0.1:0".to_owned());
    let server = ServerRole::join(&registry, settings).await.unwrap();
    let address = server.metrics_address.clone().unwrap();
    let mut views = registry.view();
    views.wait_for(|view| view.leader.is_some()).await.unwrap();
    let running = tokio::spawn(server.run(std::future::pending()));
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    for name in ["leads", "registry_reachable"] {
        let line = format!("parapet_parameter_server_{name} 1");
        assert!(answer.lines().any(|held| held == line), "{line} is not in {answer}");
    }
    running.abort();
}
