//! The instance within TLS.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::path::Path;
use std::time::Duration;

use parapet_models::Instance;
use parapet_net::test_certificates::{
    Identity, authority, identity, identity_until, revocation_list,
};
use parapet_net::tls::{Application, ClientSettings, ClientTls, server_name};
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
    let (certificate, key) = identity.cloned().map(|own| (own.certificate, own.key)).unzip();
    let files = ClientSettings { ca: ca.to_owned(), certificate, key, ..ClientSettings::default() };
    let connector = ClientTls::load(files).unwrap().connector(Application::Http1);
    let stream = TcpStream::connect(instance.address).await.unwrap();
    let name = server_name("localhost").unwrap();
    connector.connect(name, stream).await.unwrap()
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

/// Starts an instance with these files of TLS.
async fn start_within_tls(folder: &Path, files: &[(&str, &Path)], more: &[&str]) -> Instance {
    let mut flags = vec!["linear"];
    for (flag, file) in files {
        flags.extend([*flag, file.to_str().unwrap()]);
    }
    start(folder, &[&flags, more].concat()).await.unwrap()
}

fn own_files(own: &Identity) -> [(&'static str, &Path); 2] {
    let (certificate, key) = (&own.certificate, &own.key);
    [("--tls-certificate", certificate), ("--tls-key", key)]
}

#[tokio::test]
async fn metrics_say_when_the_certificate_expires() {
    let repository = repository();
    let (issuer, ca) = authority(repository.path(), "ca");
    let own = identity_until(repository.path(), "own", &issuer, 2040);
    let instance = start_within_tls(repository.path(), &own_files(&own), &[]).await;
    let expires = async |seconds: u64| {
        let name = "parapet_certificate_expiry_timestamp_seconds";
        let line = format!("{name}{{role=\"instance\"}} {seconds}\n");
        let metrics = get(&instance, &ca, None, "/metrics").await;
        assert!(metrics.contains(&line), "{metrics}");
    };
    expires(2_208_988_800).await;
    identity_until(repository.path(), "own", &issuer, 2041);
    assert!(instance.tls().unwrap().reload().unwrap());
    expires(2_240_611_200).await;
}

#[tokio::test]
async fn clients_that_are_revoked_are_refused() {
    let repository = repository();
    let folder = repository.path();
    let (issuer, ca) = authority(folder, "ca");
    let names = ["own", "kept", "revoked"].map(|name| identity(folder, name, &issuer));
    let [own, kept, revoked] = &names;
    let crl = revocation_list(folder, "ca", &issuer, &[], 2040);
    let clients = [("--tls-client-ca", &*ca), ("--tls-client-crl", &*crl)];
    let files = [own_files(own), clients].concat();
    let instance = start_within_tls(folder, &files, &[]).await;
    for client in [kept, revoked] {
        let metrics = get(&instance, &ca, Some(client), "/metrics").await;
        let due =
            "parapet_revocation_list_expiry_timestamp_seconds{role=\"instance\"} 2208988800\n";
        assert!(metrics.contains(due), "{metrics}");
    }
    // It holds a connection meanwhile, over which it was answered.
    let mut held = connect(&instance, &ca, Some(revoked)).await;
    let request = b"GET /v2 HTTP/1.1\r\nhost: localhost\r\n\r\n";
    held.write_all(request).await.unwrap();
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
    let files = [&own_files(&own)[..], &[("--tls-client-ca", &ca)]].concat();
    let health = ["--health-listen", "127.0.0.1:0"];
    let instance = start_within_tls(folder, &files, &health).await;
    let ready = get(&instance, &ca, None, "/v2/health/ready").await;
    assert_eq!(ready, "", "nobody without a certificate");
    let client = support::Client::at(instance.health_address.unwrap());
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
