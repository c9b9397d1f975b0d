//! An etcd for one test.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parapet_cluster::registry::{EtcdConfig, EtcdStore, Registry};
use parking_lot::Mutex;
use tempfile::TempDir;

pub struct Etcd {
    child: Mutex<Child>,
    folder: TempDir,
    client_port: u16,
    peer_port: u16,
}

impl Etcd {
    /// An etcd that answers. `None` where it is not installed, unless `PARAPET_TEST_ETCD` is set.
    pub async fn start() -> Option<Self> {
        if Command::new("etcd")
            .arg("--version")
            .stdout(Stdio::null())
            .status()
            .is_err()
        {
            let hint = "etcd is not installed (Debian, Ubuntu: `apt install etcd-server`)";
            assert!(std::env::var_os("PARAPET_TEST_ETCD").is_none(), "{hint}");
            eprintln!("skipped: {hint}");
            return None;
        }
        // Another process may take a port between its choice and its use.
        for _ in 0..5 {
            let [client, peer] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
            let (client_port, peer_port) = (
                client.local_addr().unwrap().port(),
                peer.local_addr().unwrap().port(),
            );
            drop((client, peer));
            let folder = tempfile::tempdir().unwrap();
            let child = Mutex::new(spawn(&folder, client_port, peer_port));
            let etcd = Self {
                child,
                folder,
                client_port,
                peer_port,
            };
            if etcd.answers().await {
                return Some(etcd);
            }
        }
        panic!("no etcd would start");
    }

    pub fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.client_port)
    }

    pub async fn registry(&self) -> Registry {
        self.registry_at(self.endpoint()).await
    }

    pub async fn registry_at(&self, endpoint: String) -> Registry {
        let store = EtcdStore::connect(EtcdConfig::new(vec![endpoint]))
            .await
            .unwrap();
        Registry::open(Arc::new(store)).await.unwrap()
    }

    async fn answers(&self) -> bool {
        let config = EtcdConfig::new(vec![self.endpoint()]);
        for _ in 0..10 {
            if self.child.lock().try_wait().unwrap().is_some() {
                return false;
            }
            // Each attempt takes as long as the time limit of a request, or until there is an
            // answer.
            if EtcdStore::connect(config.clone()).await.is_ok() {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        false
    }

    fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.lock().id()).unwrap();
        kill(Pid::from_raw(id), signal).unwrap();
    }

    pub fn suspend(&self) {
        self.signal(Signal::SIGSTOP);
    }

    pub fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    pub fn stop(&self) {
        let mut child = self.child.lock();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// On the same ports, with what is on the disk.
    pub async fn restart(&self) {
        *self.child.lock() = spawn(&self.folder, self.client_port, self.peer_port);
        assert!(self.answers().await, "etcd does not come back");
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let mut child = self.child.lock();
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn spawn(folder: &TempDir, client_port: u16, peer_port: u16) -> Child {
    let [client, peer] = [client_port, peer_port].map(|port| format!("http://127.0.0.1:{port}"));
    Command::new("etcd")
        .args(["--name", "test", "--data-dir"])
        .arg(folder.path())
        .args([
            "--listen-client-urls",
            &client,
            "--advertise-client-urls",
            &client,
        ])
        .args([
            "--listen-peer-urls",
            &peer,
            "--initial-advertise-peer-urls",
            &peer,
        ])
        .args(["--initial-cluster", &format!("test={peer}")])
        .args(["--log-level", "error"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}
