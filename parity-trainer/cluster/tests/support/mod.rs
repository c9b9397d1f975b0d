//! A cluster within the test's process: real roles over a registry in memory.

#![allow(unreachable_pub, dead_code, reason = "tests")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

pub mod learning;
mod until;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parapet_cluster::array::{ArraySpec, FilterSpec};
use parapet_cluster::node::{
    Counters, Membership, NodeConfig, ServerHandle, TaskSpec, Transport, Worker,
};
use parapet_cluster::registry::{MemoryStore, Registry, Store as _, Transaction, View};
use parapet_cluster::roles::training::Job;
use parapet_cluster::roles::{
    ClusterError, ServerRole, ServerSettings, await_array, coordinate, define,
};
use parapet_parameter_server::{
    ArrayId, ClientArray, Clock, Consistency, CoordinatorConfig, KeyRange, NodeId, RuleSpec,
    Values, WorkerId,
};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;

pub use until::{LIMIT, until};

pub const ARRAY: ArrayId = ArrayId(1);
pub const KEYS: KeyRange = KeyRange::new(0, 64);
pub const WIDTH: usize = 3;
const NUMBERS: usize = 64 * WIDTH;
const SHARDS: u64 = 8;
pub const CLUSTER: &str = "test";

/// Waits for what should come within a generous limit.
pub async fn soon<R>(future: impl Future<Output = R>) -> R {
    timeout(LIMIT, future).await.expect("took longer than 100 s")
}

struct Running {
    task: AbortOnDropHandle<Result<(), ClusterError>>,
    stop: oneshot::Sender<()>,
    handle: ServerHandle,
}

pub struct Cluster {
    transport: Transport,
    store: MemoryStore,
    pub registry: Registry,
    servers: BTreeMap<NodeId, Running>,
    coordinator: Option<AbortOnDropHandle<()>>,
    leads: CoordinatorConfig,
    /// Number of servers that were started: their addresses in memory.
    started: u64,
}

impl Cluster {
    /// Starts with an array that servers hold in chains of this many; the servers lead if there
    /// is no coordinator.
    pub async fn start(
        transport: Transport,
        servers: usize,
        replicas: usize,
        consistency: Consistency,
        coordinator: bool,
    ) -> Self {
        let _ = tracing_subscriber::fmt()
            .with_test_writer()
            .with_max_level(tracing::Level::WARN)
            .try_init();
        // Where time is virtual, a crash is found out as late by the registry as it is in etcd.
        let lease = match transport {
            Transport::Memory(_) => Duration::from_secs(2),
            _ => Duration::ZERO,
        };
        let store = MemoryStore::lingering(lease);
        let registry = Registry::open(Arc::new(store.clone())).await.unwrap();
        let mut leads = CoordinatorConfig::default();
        leads.placement.replicas = replicas;
        leads.min_servers = servers;
        leads.birth = Duration::from_millis(50);
        let mut cluster = Self {
            transport,
            store,
            registry: registry.clone(),
            servers: BTreeMap::new(),
            coordinator: None,
            leads,
            started: 0,
        };
        if coordinator {
            let leading = tokio::spawn(async move {
                coordinate(&registry, leads, std::future::pending()).await.unwrap();
            });
            cluster.coordinator = Some(AbortOnDropHandle::new(leading));
            cluster.until(|view| view.leader.is_some()).await;
        }
        for _ in 0..servers {
            cluster.join().await;
        }
        let (registry, spec) = (&cluster.registry, array(consistency));
        define(registry, ARRAY, KEYS, KEYS.cut(SHARDS).collect(), &spec).await.unwrap();
        await_array(registry, ARRAY, LIMIT).await.unwrap();
        cluster
    }

    /// Two servers that hold each range and a coordinator, for trainings.
    pub async fn for_training(transport: Transport) -> Self {
        Self::start(transport, 2, 2, Consistency::Bsp, true).await
    }

    /// Writes an entry of the registry by hand.
    pub async fn write(&self, key: &str, value: &str) {
        let change = Transaction::default().put(key, value.to_owned(), None);
        self.store.commit(change).await.unwrap();
    }

    /// A registry as of one more process.
    pub async fn open(&self) -> Registry {
        Registry::open(Arc::new(self.store.clone())).await.unwrap()
    }

    pub fn transport(&self) -> Transport {
        self.transport.clone()
    }

    /// One more server, with a registry of its own as in a process of its own.
    pub async fn join(&mut self) -> NodeId {
        let registry = self.open().await;
        let mut settings = ServerSettings::new(NodeConfig::new(CLUSTER, self.transport()));
        settings.leads = self.leads;
        // In memory, addresses are names; over TCP, any free port.
        if self.is_virtual() {
            settings.listen = format!("server {}", self.started);
        }
        self.started += 1;
        let server = ServerRole::join(&registry, settings).await.unwrap();
        let (id, handle) = (server.id(), server.handle());
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        let task = AbortOnDropHandle::new(task);
        self.servers.insert(id, Running { task, stop, handle });
        self.until(|view| view.servers.contains_key(&id)).await;
        id
    }

    /// Ends a server like a crash.
    pub fn kill(&mut self, server: NodeId) {
        self.servers.remove(&server).unwrap();
    }

    /// Has a server leave, and waits until it has.
    pub async fn leave(&mut self, server: NodeId) {
        let Running { task, stop, .. } = self.servers.remove(&server).unwrap();
        stop.send(()).unwrap();
        soon(task).await.unwrap().unwrap();
    }

    /// A worker that has nothing to do with the clocks up to this one.
    pub async fn worker(&self, consistency: Consistency, clock: u64) -> Worker {
        let new = self.registry.add_executors(1, Clock(clock)).await;
        let arrays = vec![(ARRAY, array(consistency).client())];
        self.start_worker(new.unwrap()[0], arrays, self.registry.view())
    }

    /// An executor of a training, which no process works for. It knows the servers as they are now.
    pub fn executor(&self, id: u64, job: &Job) -> Worker {
        let arrays = vec![(job.array(), job.spec().client())];
        let view = watch::Sender::new(self.view()).subscribe();
        self.start_worker(WorkerId(id), arrays, view)
    }

    fn start_worker(
        &self,
        id: WorkerId,
        arrays: Vec<(ArrayId, ClientArray)>,
        view: watch::Receiver<Arc<View>>,
    ) -> Worker {
        let config = NodeConfig::new(CLUSTER, self.transport());
        Worker::start(id, arrays, config, Membership::silent(view))
    }

    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.registry.view().borrow())
    }

    #[track_caller]
    pub fn until(&self, is_so: impl Fn(&View) -> bool) -> impl Future<Output = Arc<View>> {
        until(&self.registry, is_so)
    }

    /// Returns true if the network is in memory, and time passes by itself.
    fn is_virtual(&self) -> bool {
        matches!(self.transport, Transport::Memory(_))
    }

    /// Fails if it took longer; where time is real, the machine may have been busy with other
    /// things.
    pub fn assert_within(&self, limit: Duration, since: Instant, what: &str) {
        let took = since.elapsed();
        assert!(!self.is_virtual() || took <= limit, "{what} took {took:?}");
    }

    pub async fn counters(&self) -> Vec<Counters> {
        let mut all = Vec::new();
        for server in self.servers.values() {
            let counters = soon(server.handle.look(|_, counters| counters)).await;
            all.push(counters.unwrap());
        }
        all
    }
}

/// All rows of the array in this iteration.
pub fn spec(clock: u64) -> TaskSpec {
    TaskSpec::new(ARRAY, KEYS, Clock(clock))
}

pub fn ones() -> Values {
    Values::from(vec![1.0; NUMBERS])
}

/// Pushes ones for these clocks, each acknowledged before the next.
pub async fn push(worker: &Worker, clocks: std::ops::RangeInclusive<u64>) {
    for clock in clocks {
        let pushed = worker.push(spec(clock), ones()).await.unwrap();
        let pushed = soon(pushed).await;
        assert!(pushed.is_ok(), "clock {clock}: {pushed:?}");
    }
}

/// Every row must be the sum of so many pushes of ones.
pub async fn assert_sum(worker: &Worker, clock: u64, sum: f32) {
    let pulled = worker.pull(spec(clock)).await.unwrap();
    let pulled = soon(pulled).await.unwrap();
    assert_eq!(pulled.values[..], [sum; NUMBERS]);
}

/// The array that is pushed to and pulled from.
const fn array(consistency: Consistency) -> ArraySpec {
    ArraySpec {
        width: WIDTH,
        sparse: false,
        rule: RuleSpec::Add,
        consistency,
        filters: FilterSpec::NONE,
    }
}
