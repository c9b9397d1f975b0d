//! The instance within TLS.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::path::Path;
use std::time::Duration;

use parapet_models::Instance;
use parapet_net::test_certificates::{authority, identity, identity_until, revocation_list};
use parapet_net::tls::{Application, ClientFiles, ClientTls, Identity, server_name};
use support::{repository, start};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

const LIMIT: Duration = Duration::from_secs(10);

/// A connection of this client.
async fn connect(
    instance: &Instance,
    ca: &Path,
    identity: Option<&Identity>,
) -> impl AsyncRead + AsyncWrite + Unpin {
    let files = ClientFiles {
        ca: ca.to_owned(),
        crl: None,
        identity: identity.cloned(),
    };
    let client = ClientTls::load(files).unwrap();
    let stream = TcpStream::connect(instance.address()).await.unwrap();
    let name = server_name("localhost").unwrap();
    client
        .connector(Application::Http1)
        .connect(name, stream)
        .await
        .unwrap()
}

/// Returns the instance's answer at `path` within TLS; empty if it does not accept this client.
async fn get(instance: &Instance, ca: &Path, identity: Option<&Identity>, path: &str) -> String {
    let mut stream = connect(instance, ca, identity).await;
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    let mut answer = Vec::new();
    // In TLS 1.3 a server refuses a client only now. One that does not need not say that it ends
    // TLS, too.
    let _sent = stream.write_all(request.as_bytes()).await;
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
    let metrics = get(&instance, &ca, None, "/metrics").await;
    assert!(
        metrics.contains(&format!("{expires}2208988800\n")),
        "{metrics}"
    );

    identity_until(repository.path(), "own", &issuer, 2041);
    assert!(instance.tls().unwrap().reload().unwrap());
    let metrics = get(&instance, &ca, None, "/metrics").await;
    assert!(
        metrics.contains(&format!("{expires}2240611200\n")),
        "{metrics}"
    );
}

#[tokio::test]
async fn clients_that_are_revoked_are_refused() {
    let repository = repository();
    let folder = repository.path();
    let (issuer, ca) = authority(folder, "ca");
    let names = ["own", "kept", "revoked"].map(|name| identity(folder, name, &issuer));
    let [own, kept, revoked] = &names;
    let crl = revocation_list(folder, "ca", &issuer, &[], 2040);
    let files = [&own.certificate, &own.key, &ca, &crl].map(|file| file.to_str().unwrap());
    let flags = [
        "--tls-certificate",
        "--tls-key",
        "--tls-client-ca",
        "--tls-client-crl",
    ];
    let flags: Vec<&str> = flags
        .into_iter()
        .zip(files)
        .flat_map(|(flag, file)| [flag, file])
        .collect();
    let instance = start(folder, &[&["linear"][..], &flags].concat())
        .await
        .unwrap();
    for client in [kept, revoked] {
        let metrics = get(&instance, &ca, Some(client), "/metrics").await;
        let due =
            "parapet_revocation_list_expiry_timestamp_seconds{role=\"instance\"} 2208988800\n";
        assert!(metrics.contains(due), "{metrics}");
    }
    // It holds a connection meanwhile, over which it was answered.
    let mut held = connect(&instance, &ca, Some(revoked)).await;
    held.write_all(b"GET /v2 HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await
        .unwrap();
    let mut answer = [0; 12];
    held.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    revocation_list(folder, "ca", &issuer, &[revoked], 2040);
    assert!(instance.tls().unwrap().reload().unwrap());
    let ended = tokio::time::timeout(LIMIT, held.read_to_end(&mut Vec::new())).await;
    assert!(ended.is_ok(), "the connection goes on");
    assert!(!get(&instance, &ca, Some(kept), "/metrics").await.is_empty());
    assert_eq!(get(&instance, &ca, Some(revoked), "/metrics").await, "");
}

/// Probes and scrapers have no certificate: an instance that asks for one tells them how it is
/// elsewhere, and nothing more.
#[tokio::test]
async fn probes_need_no_certificate() {
    let repository = repository();
    let folder = repository.path();
    let (issuer, ca) = authority(folder, "ca");
    let own = identity(folder, "own", &issuer);
    let files = [&own.certificate, &own.key, &ca].map(|file| file.to_str().unwrap());
    let flags = ["--tls-certificate", "--tls-key", "--tls-client-ca"];
    let flags: Vec<&str> = flags
        .into_iter()
        .zip(files)
        .flat_map(|(flag, file)| [flag, file])
        .collect();
    let health = ["--health-listen", "127.0.0.1:0"];
    let instance = start(folder, &[&["linear"][..], &flags, &health].concat())
        .await
        .unwrap();
    assert_eq!(
        get(&instance, &ca, None, "/v2/health/ready").await,
        "",
        "nobody without a certificate"
    );
    let client = support::Client::at(instance.health_address().unwrap());
    for path in ["/v2/health/live", "/v2/health/ready", "/metrics"] {
        assert_eq!(client.get(path).await.status, 200, "{path}");
    }
    for path in ["/v2", "/v2/models/linear", "/v2/models/linear/infer"] {
        assert_eq!(client.get(path).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn without_tls_no_certificate_is_counted() {
    let repository = repository();
    let instance = start(repository.path(), &[]).await.unwrap();
    let metrics = support::Client::new(&instance).get("/metrics").await.text();
    assert!(!metrics.contains("parapet_certificate"), "{metrics}");
}
