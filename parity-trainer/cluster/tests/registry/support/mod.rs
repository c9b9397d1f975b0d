//! Registries to test with, over a store in this process or an etcd started for the test.

#![allow(unreachable_pub, clippy::unwrap_used, clippy::panic, reason = "tests")]

pub mod etcd;
#[path = "../../support/etcd_process.rs"]
mod etcd_process;
pub mod proxy;
#[path = "../../support/until.rs"]
mod until;

use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use parapet_cluster::node::wire::VERSION;
use parapet_cluster::registry::{
    Joining, Member, Membership, MemoryStore, Registry, ServedStore, ServerInfo, serve_store,
};
use parapet_parameter_server::{ArrayId, Epoch, KeyRange, NodeId, Route, Routing};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use etcd::Etcd;
pub use until::{LIMIT, until};

pub const ARRAY: ArrayId = ArrayId(7);

pub enum Fixture {
    Memory(MemoryStore),
    /// A store in memory that is served to others at an endpoint.
    Served {
        store: MemoryStore,
        endpoint: String,
        _serving: AbortOnDropHandle<()>,
    },
    Etcd(Etcd),
}

impl Fixture {
    pub fn memory() -> Self {
        Self::Memory(MemoryStore::default())
    }

    pub async fn served() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = listener.local_addr().unwrap().to_string();
        let store = MemoryStore::default();
        let serving = serve_store(Arc::new(store.clone()), listener, std::future::pending());
        let _serving = AbortOnDropHandle::new(tokio::spawn(serving));
        Self::Served { store, endpoint, _serving }
    }

    /// One more process' registry.
    pub async fn open(&self) -> Registry {
        match self {
            Self::Memory(store) => Registry::open(Arc::new(store.clone())).await.unwrap(),
            Self::Served { endpoint, .. } => {
                let store = ServedStore::connect(endpoint).await.unwrap();
                Registry::open(Arc::new(store)).await.unwrap()
            }
            Self::Etcd(etcd) => etcd.registry().await,
        }
    }

    pub async fn open_two(&self) -> (Registry, Registry) {
        (self.open().await, self.open().await)
    }

    /// Makes sure that something took no longer than it may. A real etcd on a busy machine may be
    /// starved, so that only the order of magnitude is checked there.
    pub fn assert_within(&self, limit: Duration, start: Instant) {
        let slack = if matches!(self, Self::Memory(_)) { 1 } else { 10 };
        assert!(start.elapsed() < slack * limit, "{:?}", start.elapsed());
    }

    /// Cuts the store off, or ends that.
    pub fn set_reachable(&self, reachable: bool) {
        match self {
            Self::Memory(store) | Self::Served { store, .. } => store.set_reachable(reachable),
            Self::Etcd(etcd) if reachable => etcd.signal(Signal::SIGCONT),
            Self::Etcd(etcd) => etcd.signal(Signal::SIGSTOP),
        }
    }

    /// Cuts the store off for so long that all leases are over.
    pub async fn suspend_for_long(&self) {
        self.set_reachable(false);
        match self {
            Self::Memory(store) | Self::Served { store, .. } => store.lapse_all(),
            Self::Etcd(_) => tokio::time::sleep(Duration::from_secs(5)).await,
        }
        self.set_reachable(true);
    }
}

pub fn server(address: &str) -> ServerInfo {
    ServerInfo {
        address: address.to_owned(),
        weight: 1,
        protocol: VERSION,
        ..ServerInfo::default()
    }
}

pub async fn join_server(registry: &Registry, address: &str) -> (Membership, NodeId) {
    let membership = registry.join(Joining::Server(server(address))).await.unwrap();
    let Member::Server(node) = membership.id() else { panic!("{:?}", membership.id()) };
    (membership, node)
}

pub fn route(start: u64, end: u64, epoch: u64, chain: &[NodeId]) -> Route {
    Route {
        array: ARRAY,
        range: KeyRange::new(start, end),
        epoch: Epoch(epoch),
        chain: chain.to_vec(),
    }
}

/// A table of one shard, whose epoch is the version.
pub fn table(version: u64, chain: &[NodeId]) -> Routing {
    Routing::new(version, vec![route(0, 100, version, chain)]).unwrap()
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
                if let Some(etcd) = $crate::support::etcd::Etcd::start().await {
                    super::$name($crate::support::Fixture::Etcd(etcd)).await;
                }
            })*
        }
    };
}
