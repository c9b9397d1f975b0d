//! Registries to test with, over a store in this process or an etcd started for the test.

#![allow(
    unreachable_pub,
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

pub mod etcd;
pub mod proxy;

use std::sync::Arc;
use std::time::Duration;

use parapet_cluster::registry::{MemoryStore, Registry, ServerInfo, View};
use tokio::time::{Instant, timeout};

use etcd::Etcd;
use parapet_cluster::registry::{ServeConfig, ServedConfig, ServedStore, serve_store};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Longer than anything may take, on a machine that is busy with other things, too.
pub const LIMIT: Duration = Duration::from_secs(100);

/// A store in memory that is served to others.
pub struct Served {
    store: MemoryStore,
    endpoint: String,
    serving: JoinHandle<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

pub enum Fixture {
    Memory(MemoryStore),
    Served(Served),
    Etcd(Etcd),
}

impl Fixture {
    pub fn memory() -> Self {
        Self::Memory(MemoryStore::new())
    }

    pub async fn served() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = listener.local_addr().unwrap().to_string();
        let store = MemoryStore::new();
        let served = Arc::new(store.clone());
        let serving = tokio::spawn(async move {
            let forever = std::future::pending();
            serve_store(served, listener, ServeConfig::default(), forever)
                .await
                .unwrap();
        });
        Self::Served(Served {
            store,
            endpoint,
            serving,
        })
    }

    /// Returns `None` if there is no etcd, and the environment does not demand it.
    pub async fn etcd() -> Option<Self> {
        Etcd::start().await.map(Self::Etcd)
    }

    /// One more process' registry.
    pub async fn open(&self) -> Registry {
        match self {
            Self::Memory(store) => Registry::open(Arc::new(store.clone())).await.unwrap(),
            Self::Served(served) => {
                let config = ServedConfig::new(served.endpoint.clone());
                Registry::open(Arc::new(ServedStore::connect(config).await.unwrap()))
                    .await
                    .unwrap()
            }
            Self::Etcd(etcd) => etcd.registry().await,
        }
    }

    /// Makes sure that something took no longer than it may. A real etcd on a busy machine may be
    /// starved, so that only the order of magnitude is checked there.
    pub fn assert_within(&self, limit: Duration, start: Instant) {
        let limit = if matches!(self, Self::Memory(_)) {
            limit
        } else {
            10 * limit
        };
        assert!(start.elapsed() < limit, "{:?}", start.elapsed());
    }

    /// Makes the store unreachable, until [`Fixture::resume`].
    pub fn suspend(&self) {
        match self {
            Self::Memory(store) | Self::Served(Served { store, .. }) => store.set_reachable(false),
            Self::Etcd(etcd) => etcd.suspend(),
        }
    }

    pub fn resume(&self) {
        match self {
            Self::Memory(store) | Self::Served(Served { store, .. }) => store.set_reachable(true),
            Self::Etcd(etcd) => etcd.resume(),
        }
    }

    /// So long that all leases are over.
    pub async fn suspend_for_long(&self) {
        self.suspend();
        match self {
            Self::Memory(store) | Self::Served(Served { store, .. }) => store.lapse_all(),
            Self::Etcd(_) => tokio::time::sleep(Duration::from_secs(5)).await,
        }
        self.resume();
    }
}

pub fn server(address: &str) -> ServerInfo {
    ServerInfo {
        address: address.to_owned(),
        control: String::new(),
        weight: 1,
    }
}

/// Waits until the view is so.
pub async fn until(registry: &Registry, what: &str, is_so: impl Fn(&View) -> bool) -> Arc<View> {
    let mut views = registry.view();
    match timeout(LIMIT, views.wait_for(|view| is_so(view))).await {
        Ok(view) => Arc::clone(&view.unwrap()),
        Err(_) => panic!("never: {what}: {:#?}", registry.view().borrow()),
    }
}

/// Every test of the suite, once over each store.
#[macro_export]
macro_rules! conformance {
    ($($name:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test(start_paused = true)]
            async fn $name() {
                super::$name($crate::support::Fixture::memory()).await;
            })*
        }
        mod served {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name($crate::support::Fixture::served().await).await;
            })*
        }
        mod etcd {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                if let Some(fixture) = $crate::support::Fixture::etcd().await {
                    super::$name(fixture).await;
                }
            })*
        }
    };
}
