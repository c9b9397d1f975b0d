//! A real etcd, from its package; without it these tests are skipped, unless `PARAPET_TEST_ETCD` is set.

use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

use parapet_discovery::{Addresses, Etcd as Backend, EtcdSettings, follow};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::{addresses, until};

const PREFIX: &str = "/parapet/replicas/";

struct Etcd {
    child: Child,
    folder: TempDir,
    ports: [u16; 2],
}

impl Etcd {
    async fn start() -> Option<Self> {
        if Command::new("etcd").arg("--version").stdout(Stdio::null()).status().await.is_err() {
            let hint = "etcd is not installed (Debian, Ubuntu: `apt install etcd-server`)";
            assert!(std::env::var_os("PARAPET_TEST_ETCD").is_none(), "{hint}");
            eprintln!("skipped: {hint}");
            return None;
        }
        let ports = [(); 2]
            .map(|()| TcpListener::bind("127.0.0.1:0").unwrap())
            .map(|l| l.local_addr().unwrap().port());
        let folder = tempfile::tempdir().unwrap();
        let child = spawn(&folder, ports);
        let etcd = Self { child, folder, ports };
        etcd.answers().await;
        Some(etcd)
    }

    fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.ports[0])
    }

    async fn post(&self, path: &str, body: &serde_json::Value) -> bool {
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: etcd\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.to_string().len()
        );
        let asking = async {
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            let mut stream = tokio::net::TcpStream::connect(self.endpoint()).await.ok()?;
            stream.write_all(request.as_bytes()).await.ok()?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.ok()?;
            answer.starts_with("HTTP/1.1 200").then_some(())
        };
        asking.await.is_some()
    }

    async fn answers(&self) {
        let asking = async {
            let mut turns = tokio::time::interval(Duration::from_millis(50));
            while !self.post("/v3/kv/range", &serde_json::json!({ "key": base64("x") })).await {
                turns.tick().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), asking).await.expect("etcd does not answer");
    }

    async fn put(&self, key: &str, value: &str) {
        let put = serde_json::json!({ "key": base64(&format!("{PREFIX}{key}")), "value": base64(value) });
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

fn spawn(folder: &TempDir, ports: [u16; 2]) -> Child {
    let [client, peer] = ports.map(|port| format!("http://127.0.0.1:{port}"));
    Command::new("etcd")
        .args(["--name", "test", "--log-level", "error", "--data-dir"])
        .arg(folder.path())
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("test={peer}")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn keys_under_a_prefix_are_instances_and_an_outage_changes_nothing() {
    let Some(mut etcd) = Etcd::start().await else { return };
    etcd.put("one", "10.0.0.1:9001").await;
    // The first member does not exist: the next one is asked.
    let endpoints = vec!["127.0.0.1:9".to_owned(), etcd.endpoint()];
    let backend = Backend::new(EtcdSettings { endpoints, prefix: PREFIX.to_owned() });
    let mut view = follow(backend, "test".to_owned());
    let one = addresses(&["10.0.0.1:9001"]);
    until(&mut view, "one", |view| view.is_current && view.addresses == one).await;

    etcd.put("two", "10.0.0.2:9001").await;
    etcd.put("broken", "no address").await;
    let both = addresses(&["10.0.0.1:9001", "10.0.0.2:9001"]);
    until(&mut view, "both", |view| view.addresses == both).await;
    etcd.delete("one").await;
    let two = addresses(&["10.0.0.2:9001"]);
    until(&mut view, "the second alone", |view| view.addresses == two).await;

    etcd.child.kill().await.unwrap();
    until(&mut view, "lost", |view| !view.is_current).await;
    assert_eq!(view.borrow().addresses, two);
    etcd.child = spawn(&etcd.folder, etcd.ports);
    etcd.answers().await;
    etcd.put("three", "10.0.0.3:9001").await;
    let now: Addresses = addresses(&["10.0.0.2:9001", "10.0.0.3:9001"]);
    until(&mut view, "found again", |view| view.is_current && view.addresses == now).await;
}
