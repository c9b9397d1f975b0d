//! A real etcd, from its package; without it these tests are skipped, unless `PARAPET_TEST_ETCD` is
//! set.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use parapet_frontend::discovery::{Discovery as _, Etcd as Backend, Settings, follow};
use parapet_net::test_certificates::{authority, identity};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::{addresses, until, until_found};

const PREFIX: &str = "/parapet/replicas/";

struct Etcd {
    child: Child,
    folder: TempDir,
    /// Of clients, of clients within TLS, of members.
    ports: [u16; 3],
}

impl Etcd {
    async fn start() -> Option<Self> {
        let version = Command::new("etcd").arg("--version").stdout(Stdio::null()).status().await;
        if version.is_err() {
            let hint = "etcd is not installed (Debian, Ubuntu: `apt install etcd-server`)";
            assert!(std::env::var_os("PARAPET_TEST_ETCD").is_none(), "{hint}");
            eprintln!("skipped: {hint}");
            return None;
        }
        let ports = [(); 3]
            .map(|()| TcpListener::bind("127.0.0.1:0").unwrap())
            .map(|l| l.local_addr().unwrap().port());
        let folder = tempfile::tempdir().unwrap();
        certificates(folder.path());
        let child = spawn(&folder, ports);
        let etcd = Self { child, folder, ports };
        etcd.answers().await;
        Some(etcd)
    }

    fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.ports[0])
    }

    async fn post(&self, path: &str, body: &serde_json::Value) -> bool {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let head = format!("POST {path} HTTP/1.1\r\nhost: etcd\r\n");
        let body = body.to_string();
        let length = body.len();
        let request = format!("{head}connection: close\r\ncontent-length: {length}\r\n\r\n{body}");
        let asking = async {
            let mut stream = tokio::net::TcpStream::connect(self.endpoint()).await?;
            stream.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            std::io::Result::Ok(answer)
        };
        let answer = asking.await;
        answer.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
    }

    async fn answers(&self) {
        let question = serde_json::json!({ "key": base64("x") });
        let asking = async {
            let mut turns = tokio::time::interval(Duration::from_millis(50));
            while !self.post("/v3/kv/range", &question).await {
                turns.tick().await;
            }
        };
        let answered = tokio::time::timeout(Duration::from_secs(10), asking).await;
        answered.expect("etcd does not answer");
    }

    /// A backend of this etcd, with this table and scheme in its settings.
    fn backend(&self, table: &str, scheme: &str) -> Result<Backend, String> {
        let etcd = format!(r#"{{"prefix": "{PREFIX}", {table}}}"#);
        let json = format!(r#"{{"etcd": {etcd}, "scheme": "{scheme}"}}"#);
        let mut settings: Settings = serde_json::from_str(&json).unwrap();
        settings.check().unwrap();
        let loaded = settings.load(self.folder.path());
        loaded.map_err(|mistake| mistake.problem)?;
        Ok(Backend::new(settings.etcd.unwrap(), settings.scheme))
    }

    async fn put(&self, key: &str, value: &str) {
        let key = base64(&format!("{PREFIX}{key}"));
        let put = serde_json::json!({ "key": key, "value": base64(value) });
        assert!(self.post("/v3/kv/put", &put).await);
    }

    async fn delete(&self, key: &str) {
        let delete = serde_json::json!({ "key": base64(&format!("{PREFIX}{key}")) });
        assert!(self.post("/v3/kv/deleterange", &delete).await);
    }
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// An authority, `ca.pem`, and what it signed: `etcd.crt` and `client.crt`, with their keys; and
/// `other.pem`.
fn certificates(folder: &Path) {
    let (issuer, _) = authority(folder, "ca");
    authority(folder, "other");
    for name in ["etcd", "client"] {
        identity(folder, name, &issuer);
    }
}

fn spawn(folder: &TempDir, ports: [u16; 3]) -> Child {
    let [plain, secure, peer] = ports;
    let secure = format!("https://127.0.0.1:{secure}");
    let [client, peer] = [plain, peer].map(|port| format!("http://127.0.0.1:{port}"));
    let clients = format!("{client},{secure}");
    let flags = [
        ("--listen-client-urls", &clients),
        ("--advertise-client-urls", &clients),
        ("--listen-peer-urls", &peer),
        ("--initial-advertise-peer-urls", &peer),
        ("--initial-cluster", &format!("test={peer}")),
    ];
    let files = [
        ("--data-dir", "data"),
        ("--trusted-ca-file", "ca.pem"),
        ("--cert-file", "etcd.crt"),
        ("--key-file", "etcd.key"),
    ];
    let mut command = Command::new("etcd");
    command.args(["--name", "test", "--log-level", "error"]).arg("--client-cert-auth");
    for (flag, value) in flags {
        command.args([flag, value.as_str()]);
    }
    for (flag, name) in files {
        command.arg(flag).arg(folder.path().join(name));
    }
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    command.kill_on_drop(true).spawn().unwrap()
}

#[tokio::test]
async fn keys_under_a_prefix_are_instances_and_an_outage_changes_nothing() {
    let Some(mut etcd) = Etcd::start().await else {
        return;
    };
    etcd.put("one", "10.0.0.1:9001").await;
    // The first member does not exist: the next one is asked.
    let endpoints = format!(r#""endpoints": ["127.0.0.1:9", "{}"]"#, etcd.endpoint());
    let mut view = follow(etcd.backend(&endpoints, "http").unwrap(), "test".to_owned());
    let one = addresses(&["10.0.0.1:9001"]);
    until_found(&mut view, &one).await;

    etcd.put("two", "10.0.0.2:9001").await;
    etcd.put("broken", "no address").await;
    let both = addresses(&["10.0.0.1:9001", "10.0.0.2:9001"]);
    until_found(&mut view, &both).await;
    etcd.delete("one").await;
    let two = addresses(&["10.0.0.2:9001"]);
    until_found(&mut view, &two).await;

    etcd.child.kill().await.unwrap();
    until(&mut view, "lost", |view| !view.is_current).await;
    assert_eq!(view.borrow().addresses, two);
    etcd.child = spawn(&etcd.folder, etcd.ports);
    etcd.answers().await;
    etcd.put("three", "10.0.0.3:9001").await;
    let now = addresses(&["10.0.0.2:9001", "10.0.0.3:9001"]);
    until_found(&mut view, &now).await;
}

/// etcd within TLS, which asks for its clients' certificates.
#[tokio::test]
async fn members_are_asked_within_tls() {
    let Some(etcd) = Etcd::start().await else {
        return;
    };
    etcd.put("one", "https://10.0.0.1:9001").await;
    let backend = |tls: &str| {
        let endpoint = format!("https://127.0.0.1:{}", etcd.ports[1]);
        let table = format!(r#""endpoints": ["{endpoint}"], "tls": {{{tls}}}"#);
        etcd.backend(&table, "https")
    };
    let own = r#""certificate": "client.crt", "key": "client.key""#;
    let known = backend(&format!(r#""ca": "ca.pem", {own}"#)).unwrap();
    let mut view = follow(known, "test".to_owned());
    let one = addresses(&["10.0.0.1:9001"]);
    until_found(&mut view, &one).await;
    etcd.put("two", "10.0.0.2:9001").await;
    let both = addresses(&["10.0.0.1:9001", "10.0.0.2:9001"]);
    until_found(&mut view, &both).await;

    let another = format!(r#""ca": "ca.pem", {own}, "server_name": "other.example""#);
    let stranger = format!(r#""ca": "other.pem", {own}"#);
    for (tls, said) in [
        (r#""ca": "ca.pem""#, "refused this client's certificate"),
        (&stranger, "none of the configured"),
        (&another, "another name"),
    ] {
        let error = backend(tls).unwrap().next().await.unwrap_err();
        assert!(error.reason.contains(said), "{tls}: {error}");
    }
    let missing = backend(r#""ca": "nowhere.pem""#).unwrap_err();
    assert!(missing.contains("nowhere.pem"), "{missing}");
}

/// A member whose authority is not trusted any more is not asked again.
#[tokio::test]
async fn certificates_for_members_are_read_again() {
    let Some(etcd) = Etcd::start().await else {
        return;
    };
    etcd.put("one", "10.0.0.1:9001").await;
    let tls = r#""tls": {"ca": "trusted.pem", "certificate": "client.crt", "key": "client.key"}"#;
    let endpoint = format!("https://localhost:{}", etcd.ports[1]);
    let file = |name: &str| etcd.folder.path().join(name);
    fs::copy(file("other.pem"), file("trusted.pem")).unwrap();
    let table = format!(r#""endpoints": ["{endpoint}"], {tls}"#);
    let mut backend = etcd.backend(&table, "http").unwrap();
    assert!(backend.next().await.is_err());
    fs::copy(file("ca.pem"), file("trusted.pem")).unwrap();
    assert_eq!(backend.next().await.unwrap(), addresses(&["10.0.0.1:9001"]));
}
