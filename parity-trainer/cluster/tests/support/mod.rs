//! A cluster within the test's process: real roles over a registry in memory.

#![allow(
    unreachable_pub,
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

pub mod learning;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parapet_cluster::array::{ArraySpec, FilterSpec};
use parapet_cluster::node::transport::Transport;
use parapet_cluster::node::{
    ClientNode, ClientNodeConfig, Counters, ServerHandle, TaskSpec, Worker,
};
use parapet_cluster::registry::{MemoryStore, Registry, View};
use parapet_cluster::roles::training::Job;
use parapet_cluster::roles::{
    ClusterError, ServerRole, ServerSettings, WorkerRole, WorkerSettings, await_array, coordinate,
    define,
};
use parapet_parameter_server::{
    ArrayId, Clock, CoordinatorConfig, KeyRange, NodeId, Placement, Values, WorkerId,
};
use parapet_parameter_server::{Consistency, RuleSpec};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

pub const ARRAY: ArrayId = ArrayId(1);
pub const KEYS: u64 = 64;
pub const WIDTH: usize = 3;
const SHARDS: u64 = 8;
pub const CLUSTER: &str = "test";

/// Whatever should come within a generous limit.
pub async fn soon<R>(future: impl Future<Output = R>) -> R {
    tokio::time::timeout(Duration::from_secs(100), future)
        .await
        .expect("took longer than 100 s")
}

/// Time as the test has it: virtual, if it is paused.
struct Since(Instant);

impl FormatTime for Since {
    fn format_time(&self, writer: &mut Writer<'_>) -> std::fmt::Result {
        write!(writer, "{:?}", self.0.elapsed())
    }
}

struct Running {
    task: JoinHandle<Result<(), ClusterError>>,
    stop: oneshot::Sender<()>,
    handle: ServerHandle,
}

pub struct Cluster<T: Transport> {
    transport: T,
    store: MemoryStore,
    pub registry: Registry,
    servers: BTreeMap<NodeId, Running>,
    coordinator: Option<JoinHandle<()>>,
    leads: CoordinatorConfig,
    /// Number of servers that were started: their addresses in memory.
    started: u64,
}

impl<T: Transport> Drop for Cluster<T> {
    fn drop(&mut self) {
        self.servers.values().for_each(|server| server.task.abort());
        self.coordinator.iter().for_each(JoinHandle::abort);
    }
}

impl<T: Transport> Cluster<T> {
    /// Starts with an array that servers hold in chains of this many; the servers lead if there
    /// is no coordinator.
    pub async fn start(
        transport: T,
        servers: usize,
        replicas: usize,
        consistency: Consistency,
        coordinator: bool,
    ) -> Self {
        let cluster = Self::empty(transport, servers, replicas, coordinator).await;
        let spec = array(consistency);
        define(
            &cluster.registry,
            ARRAY,
            KeyRange::new(0, KEYS),
            SHARDS,
            &spec,
        )
        .await
        .unwrap();
        await_array(&cluster.registry, ARRAY, Duration::from_secs(100))
            .await
            .unwrap();
        cluster
    }

    /// Without any array.
    async fn empty(transport: T, servers: usize, replicas: usize, coordinator: bool) -> Self {
        // Silent unless RUST_LOG says otherwise.
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        let shown = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_test_writer();
        let _ = shown.with_timer(Since(Instant::now())).try_init();
        // Where time is virtual, a crash is found out as late by the registry as it is in etcd.
        let lease = if is_virtual::<T>() {
            Duration::from_secs(2)
        } else {
            Duration::ZERO
        };
        let store = MemoryStore::lingering(lease);
        let registry = Registry::open(Arc::new(store.clone())).await.unwrap();
        let placement = Placement {
            replicas,
            ..Placement::default()
        };
        let birth = Duration::from_millis(50);
        let leads = CoordinatorConfig {
            placement,
            min_servers: servers,
            birth,
            ..CoordinatorConfig::default()
        };
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
            let registry = registry.clone();
            cluster.coordinator = Some(tokio::spawn(async move {
                coordinate(&registry, leads, std::future::pending())
                    .await
                    .unwrap();
            }));
            cluster
                .until("somebody leads", |view| view.leader.is_some())
                .await;
        }
        for _ in 0..servers {
            cluster.join().await;
        }
        cluster
    }

    /// A registry as of one more process.
    pub async fn open(&self) -> Registry {
        Registry::open(Arc::new(self.store.clone())).await.unwrap()
    }

    pub fn transport(&self) -> T {
        self.transport.clone()
    }

    /// One more server, with a registry of its own as in a process of its own.
    pub async fn join(&mut self) -> NodeId {
        let registry = self.open().await;
        let control = Some("127.0.0.1:0".to_owned());
        let mut settings = ServerSettings {
            leads: Some(self.leads),
            control,
            ..ServerSettings::new(CLUSTER)
        };
        // In memory, addresses are names; over TCP, any free port.
        if is_virtual::<T>() {
            settings.listen = format!("server {}", self.started);
        }
        self.started += 1;
        let server = ServerRole::join(&registry, settings, self.transport.clone())
            .await
            .unwrap();
        let (id, handle) = (server.id(), server.handle());
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        self.servers.insert(id, Running { task, stop, handle });
        self.until("the server is seen", |view| view.servers.contains_key(&id))
            .await;
        id
    }

    /// Ends a server like a crash.
    pub fn kill(&mut self, server: NodeId) {
        self.servers.remove(&server).unwrap().task.abort();
    }

    /// Has a server leave, and waits until it has.
    pub async fn leave(&mut self, server: NodeId) {
        let Running { task, stop, .. } = self.servers.remove(&server).unwrap();
        stop.send(()).unwrap();
        soon(task).await.unwrap().unwrap();
    }

    pub async fn worker(&self, consistency: Consistency) -> WorkerRole {
        self.worker_from(consistency, 0).await
    }

    /// A worker that has nothing to do with the clocks up to this one.
    pub async fn worker_from(&self, consistency: Consistency, clock: u64) -> WorkerRole {
        let spec = array(consistency);
        let new = WorkerSettings::new(CLUSTER, vec![(ARRAY, spec)]);
        let settings = WorkerSettings {
            clock: Clock(clock),
            ..new
        };
        WorkerRole::join(&self.registry, settings, self.transport.clone())
            .await
            .unwrap()
    }

    /// An executor of a training, which no process works for. It knows the servers as they are now.
    pub fn executor(&self, id: WorkerId, job: &Job) -> Worker {
        let arrays = vec![(job.array(), job.spec().client())];
        let config = ClientNodeConfig {
            cluster: CLUSTER.into(),
            ..ClientNodeConfig::new(id, arrays)
        };
        let (reports, _) = tokio::sync::mpsc::channel(1);
        let view = tokio::sync::watch::Sender::new(self.view()).subscribe();
        let membership = parapet_cluster::node::Membership { view, reports };
        ClientNode::start(config, self.transport(), membership)
    }

    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.registry.view().borrow())
    }

    pub async fn until(&self, what: &str, is_so: impl Fn(&View) -> bool) -> Arc<View> {
        let mut views = self.registry.view();
        let so = views.wait_for(|view| is_so(view));
        match tokio::time::timeout(Duration::from_secs(100), so).await {
            Ok(view) => Arc::clone(&view.unwrap()),
            Err(_) => panic!("never: {what}: {:#?}", self.view()),
        }
    }

    pub async fn counters(&self) -> Vec<Counters> {
        let mut all = Vec::new();
        for server in self.servers.values() {
            all.push(
                soon(server.handle.look(|_, counters| counters))
                    .await
                    .unwrap(),
            );
        }
        all
    }

    /// Returns the number of shards a server heads.
    pub fn heads(&self, server: NodeId) -> usize {
        let view = self.view();
        view.table
            .routing
            .routes()
            .iter()
            .filter(|route| route.head() == Some(server))
            .count()
    }
}

/// Returns true if the network is in memory, and time passes by itself.
pub fn is_virtual<T: Transport>() -> bool {
    std::any::type_name::<T>().ends_with("Memory")
}

/// Fails if it took longer; where time is real, the machine may have been busy with other things.
pub fn assert_within<T: Transport>(limit: Duration, since: Instant, what: &str) {
    let took = since.elapsed();
    assert!(!is_virtual::<T>() || took <= limit, "{what} took {took:?}");
}

pub fn holds(view: &View, server: NodeId) -> bool {
    view.table
        .routing
        .routes()
        .iter()
        .any(|route| route.chain.contains(&server))
}

/// All rows of the array in this iteration.
pub fn spec(clock: u64) -> TaskSpec {
    TaskSpec::new(ARRAY, KeyRange::new(0, KEYS), Clock(clock))
}

pub fn ones() -> Values {
    Values::from(vec![1.0; KEYS as usize * WIDTH])
}

/// Pushes ones for these clocks, each acknowledged before the next.
pub async fn push(worker: &WorkerRole, clocks: std::ops::RangeInclusive<u64>) {
    for clock in clocks {
        let pushed = worker.worker().push(spec(clock), ones()).await.unwrap();
        soon(pushed)
            .await
            .unwrap_or_else(|error| panic!("clock {clock}: {error}"));
    }
}

/// Every row must be the sum of so many pushes of ones.
pub async fn assert_sum(worker: &WorkerRole, clock: u64, sum: f32) {
    let pulled = worker.worker().pull(spec(clock)).await.unwrap();
    let pulled = soon(pulled).await.unwrap();
    assert_eq!(pulled.values.len(), KEYS as usize * WIDTH);
    assert!(
        pulled.values.iter().all(|&value| value == sum),
        "{sum} expected: {:?}",
        pulled.values
    );
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
