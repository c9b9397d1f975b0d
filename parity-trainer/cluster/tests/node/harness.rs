//! A cluster within the process of a test or an example.

#![allow(
    dead_code,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "tests and examples use parts of it"
)]

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use parapet_cluster::node::{
    Bounds, NodeConfig, ServerHandle, ServerNode, TaskSpec, Transport, Worker,
};
use parapet_cluster::registry::View;
use parapet_parameter_server::{
    Add, ArrayConfig, ArrayFilters, ArrayId, ClientArray, Clock, Consistency, Epoch, HandOver,
    KeyRange, Layout, NodeId, Route, Routing, ShardRef, WorkerId,
};
use tokio_util::task::AbortOnDropHandle;

use crate::in_process::{self, InProcessRegistry};

pub(crate) const ARRAY: ArrayId = ArrayId(0);
pub(crate) const KEYS: u64 = 12;
pub(crate) const WIDTH: usize = 3;
const BIG_ARRAY: ArrayId = ArrayId(1);
pub(crate) const BIG: usize = 300_000;

/// All rows of the array in this iteration.
pub(crate) fn spec(clock: u64) -> TaskSpec {
    TaskSpec::new(ARRAY, KeyRange::new(0, KEYS), Clock(clock))
}

/// All of a large row.
pub(crate) fn big(clock: u64) -> TaskSpec {
    TaskSpec::new(BIG_ARRAY, KeyRange::new(0, 1), Clock(clock))
}

/// The output of what should be done within a generous limit.
pub(crate) async fn soon<R>(future: impl Future<Output = R>) -> R {
    let done = tokio::time::timeout(Duration::from_secs(30), future);
    done.await.expect("took longer than 30 s")
}

/// An array of one row for each key.
#[derive(Clone)]
pub(crate) struct Array {
    pub(crate) keys: KeyRange,
    /// Parts that the keys are cut into.
    pub(crate) shards: u64,
    pub(crate) layout: Layout,
}

/// Settings of a cluster: workers 0.. that are members, and servers 0..
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) workers: u64,
    pub(crate) servers: u64,
    /// Servers that hold each shard, from 0 or the shard's number on.
    pub(crate) replicas: u64,
    /// Further servers, which hold nothing yet.
    pub(crate) spares: u64,
    pub(crate) consistency: Consistency,
    /// Arrays 0..
    pub(crate) arrays: Vec<Array>,
    /// Filters of the first array.
    pub(crate) filters: ArrayFilters,
    pub(crate) bounds: Bounds,
}

impl Setup {
    /// One array of four shards, and one of a large row.
    pub(crate) fn new(workers: u64, servers: u64, replicas: u64, consistency: Consistency) -> Self {
        let array = |keys, shards, width| Array {
            keys: KeyRange::new(0, keys),
            shards,
            layout: Layout::dense(width, Add),
        };
        Self {
            workers,
            servers,
            replicas,
            spares: 1,
            consistency,
            arrays: vec![array(KEYS, 4, WIDTH), array(1, 1, BIG)],
            filters: ArrayFilters::default(),
            bounds: Bounds::default(),
        }
    }

    fn routing(&self) -> Routing {
        let shards = (0..).map(ArrayId).zip(&self.arrays);
        let shards = shards.flat_map(|(id, array)| {
            let cut = array.keys.cut(array.shards);
            cut.map(move |range| (id, range))
        });
        let route = |(shard, (array, range)): (u64, (ArrayId, KeyRange))| {
            // With as many replicas as servers, server 0 is the head of all: the one to kill.
            let first = if self.replicas == self.servers { 0 } else { shard };
            let chain = (first..first + self.replicas).map(|i| NodeId(i % self.servers));
            Route { array, range, epoch: Epoch(1), chain: chain.collect() }
        };
        Routing::new(1, (0..).zip(shards).map(route).collect()).unwrap()
    }
}

/// A server that stands still while `frozen` is set.
struct Running {
    task: AbortOnDropHandle<()>,
    handle: ServerHandle,
    frozen: Arc<AtomicBool>,
    address: String,
}

impl Running {
    fn start(mut server: ServerNode) -> Self {
        let frozen = Arc::new(AtomicBool::new(false));
        let ice = Arc::clone(&frozen);
        let (handle, address) = (server.handle(), server.address().to_owned());
        let task = tokio::spawn(async move {
            let mut running = pin!(server.run(std::future::pending()));
            let unless_frozen = std::future::poll_fn(|context| {
                if ice.load(Ordering::Relaxed) {
                    Poll::Pending
                } else {
                    running.as_mut().poll(context)
                }
            });
            unless_frozen.await;
        });
        Self { task: AbortOnDropHandle::new(task), handle, frozen, address }
    }
}

pub(crate) struct Cluster {
    transport: Transport,
    setup: Setup,
    registry: Arc<InProcessRegistry>,
    servers: Vec<Running>,
}

impl Cluster {
    pub(crate) async fn start(transport: Transport, setup: Setup) -> Self {
        let members = (0..setup.workers).map(|worker| (WorkerId(worker), Clock(0)));
        let view = in_process::view(setup.routing(), members.collect());
        let mut cluster =
            Self { transport, setup, registry: InProcessRegistry::new(view), servers: Vec::new() };
        for node in 0..cluster.setup.servers + cluster.setup.spares {
            cluster.start_server(NodeId(node)).await;
        }
        cluster
    }

    async fn start_server(&mut self, node: NodeId) {
        let array = |array: &Array| ArrayConfig {
            layout: array.layout.clone(),
            consistency: self.setup.consistency,
        };
        let arrays = (0..).map(ArrayId).zip(self.setup.arrays.iter().map(array));
        // In memory, addresses are names; over TCP, any free port.
        let listen = match self.transport {
            Transport::Memory(_) => node.to_string(),
            _ => "127.0.0.1:0".to_owned(),
        };
        let (config, membership) = (self.config(), self.registry.membership());
        let binding = ServerNode::bind(node, &listen, arrays.collect(), config, membership);
        let running = Running::start(binding.await.unwrap());
        let info = in_process::server(&running.address);
        self.servers.push(running);
        self.change(|view| {
            view.servers.insert(node, info);
        });
    }

    fn config(&self) -> NodeConfig {
        NodeConfig {
            filters: vec![(ARRAY, self.setup.filters)],
            bounds: self.setup.bounds,
            ..NodeConfig::new("test", self.transport.clone())
        }
    }

    fn change(&self, change: impl FnOnce(&mut View)) {
        let view = &self.registry.view;
        view.send_modify(|view| change(Arc::make_mut(view)));
    }

    /// Returns true if every chain is of these servers.
    pub(crate) fn chains_are(&self, chain: &[NodeId]) -> bool {
        let view = self.registry.view.borrow();
        let mut routes = view.table.routing.routes().iter();
        routes.all(|route| route.chain == chain)
    }

    /// The way in for a worker, by its number.
    pub(crate) fn worker(&self, worker: u64) -> Worker {
        let array = |array: &Array| ClientArray {
            width: array.layout.width,
            consistency: self.setup.consistency,
        };
        let arrays = (0..).map(ArrayId).zip(self.setup.arrays.iter().map(array));
        let (config, membership) = (self.config(), self.registry.membership());
        Worker::start(WorkerId(worker), arrays.collect(), config, membership)
    }

    /// Makes a worker a member.
    pub(crate) fn join(&self, worker: u64) {
        self.change(|view| {
            view.workers.version += 1;
            view.workers.workers.push((WorkerId(worker), Clock(0)));
        });
    }

    pub(crate) fn address(&self, server: usize) -> &str {
        &self.servers[server].address
    }

    /// Waits until this many pushes of worker 0 to the first key have been acknowledged.
    pub(crate) async fn acknowledged(&self, pushes: u64) {
        let watcher = self.worker(1000);
        let pulling = async {
            while watcher.pull(spec(0)).await.unwrap().await.unwrap().values[0] < pushes as f32 {}
        };
        soon(pulling).await;
    }

    /// Ends a server like a crash: its connections are reset.
    pub(crate) fn kill(&self, server: usize) {
        self.servers[server].task.abort();
    }

    /// Stops a server without closing its connections.
    pub(crate) fn freeze(&self, server: usize) {
        self.servers[server].frozen.store(true, Ordering::Relaxed);
    }

    /// Has every shard copied to `to`, and waits until it is in every chain.
    pub(crate) async fn hand_over_all(&self, to: NodeId) {
        self.change(|view| {
            let hand_over = |route: &Route| {
                let (array, range, epoch) = (route.array, route.range, route.epoch);
                let at = ShardRef { array, range, epoch };
                HandOver { at, to }
            };
            let routes = view.table.routing.routes().iter();
            view.table.hand_overs = routes.map(hand_over).collect();
        });
        let everywhere = |view: &Arc<View>| {
            let mut routes = view.table.routing.routes().iter();
            routes.all(|route| route.chain.contains(&to))
        };
        let mut view = self.registry.view.subscribe();
        soon(view.wait_for(everywhere)).await.unwrap();
    }

    /// Messages that a server dropped.
    pub(crate) async fn dropped(&self, server: usize) -> u64 {
        let handle = &self.servers[server].handle;
        soon(handle.look(|_, counters| counters.dropped)).await.unwrap()
    }
}
