//! An etcd for one test.

use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use parapet_cluster::registry::{EtcdStore, Registry};
use parking_lot::Mutex;
use tempfile::TempDir;

use super::etcd_process::{etcd, free_port, is_installed};

pub struct Etcd {
    child: Mutex<Child>,
    folder: TempDir,
    port: u16,
}

/// A store in the cluster `default` of an etcd at these endpoints.
pub async fn store(endpoints: &[String]) -> EtcdStore {
    EtcdStore::connect(endpoints, "default").await.unwrap()
}

pub async fn registry(endpoints: &[String]) -> Registry {
    Registry::open(Arc::new(store(endpoints).await)).await.unwrap()
}

impl Etcd {
    /// An etcd that answers. `None` where it is not installed, unless `PARAPET_TEST_ETCD` is set.
    pub async fn start() -> Option<Self> {
        if !is_installed() {
            return None;
        }
        // Another process may take a port between its choice and its use.
        for _ in 0..5 {
            let (folder, port) = (tempfile::tempdir().unwrap(), free_port().unwrap());
            let child = Mutex::new(etcd(folder.path(), port).spawn().unwrap());
            let etcd = Self { child, folder, port };
            if etcd.answers().await {
                return Some(etcd);
            }
        }
        panic!("no etcd would start");
    }

    pub fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub async fn registry(&self) -> Registry {
        registry(&[self.endpoint()]).await
    }

    pub async fn store(&self) -> EtcdStore {
        store(&[self.endpoint()]).await
    }

    async fn answers(&self) -> bool {
        for _ in 0..10 {
            if self.child.lock().try_wait().unwrap().is_some() {
                return false;
            }
            // Each attempt takes as long as the time limit of a request, or until there is an
            // answer.
            if EtcdStore::connect(&[self.endpoint()], "default").await.is_ok() {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        false
    }

    pub fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.lock().id()).unwrap();
        kill(Pid::from_raw(id), signal).unwrap();
        if signal == Signal::SIGSTOP {
            // Its threads stop one after the other.
            waitpid(Pid::from_raw(id), Some(WaitPidFlag::WUNTRACED)).unwrap();
        }
    }

    pub fn stop(&self) {
        let mut child = self.child.lock();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Starts it again on the same port, with what is on the disk.
    pub async fn restart(&self) {
        *self.child.lock() = etcd(self.folder.path(), self.port).spawn().unwrap();
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
