//! The instance within TLS.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::path::Path;

use parapet_models::Instance;
use parapet_test_certificates::{authority, identity_until};
use parapet_tls::{Application, ClientFiles, ClientTls, server_name};
use support::{repository, start};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// What the instance answers at `path` within TLS.
async fn get(instance: &Instance, ca: &Path, path: &str) -> String {
    let client = ClientTls::load(ClientFiles { ca: ca.to_owned(), identity: None }).unwrap();
    let stream = TcpStream::connect(instance.address()).await.unwrap();
    let name = server_name("localhost").unwrap();
    let mut stream = client.connector(Application::Http1).connect(name, stream).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A server need not say that it ends TLS, too.
    let _closed = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn metrics_say_when_the_certificate_expires() {
    let repository = repository();
    let (issuer, ca) = authority(repository.path(), "ca");
    let own = identity_until(repository.path(), "own", &issuer, 2040);
    let (certificate, key) = (own.certificate.to_str().unwrap(), own.key.to_str().unwrap());
    let flags = ["linear", "--tls-certificate", certificate, "--tls-key", key];
    let instance = start(repository.path(), &flags).await.unwrap();
    let expires = "parapet_certificate_expiry_timestamp_seconds{role=\"instance\"} ";
    let metrics = get(&instance, &ca, "/metrics").await;
    assert!(metrics.contains(&format!("{expires}2208988800\n")), "{metrics}");

    identity_until(repository.path(), "own", &issuer, 2041);
    assert!(instance.tls().unwrap().reload().unwrap());
    let metrics = get(&instance, &ca, "/metrics").await;
    assert!(metrics.contains(&format!("{expires}2240611200\n")), "{metrics}");
}

#[tokio::test]
async fn without_tls_no_certificate_is_counted() {
    let repository = repository();
    let instance = start(repository.path(), &[]).await.unwrap();
    let metrics = support::Client::new(&instance).get("/metrics").await.text();
    assert!(!metrics.contains("parapet_certificate"), "{metrics}");
}
