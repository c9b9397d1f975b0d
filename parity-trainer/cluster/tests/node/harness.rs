//! A cluster within the test's process.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use parapet_cluster::node::transport::Transport;
use parapet_cluster::node::{
    ClientNode, ClientNodeConfig, Counters, ServerHandle, ServerNode, ServerNodeConfig, TaskSpec,
    Worker,
};
use parapet_cluster::registry::{ReportChange, View};
use parapet_parameter_server::{
    Add, ArrayConfig, ArrayFilters, ArrayId, ClientArray, Clock, Consistency, Epoch, HandOver,
    KeyRange, Layout, NodeId, Route, Routing, ShardRef, WorkerId,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;

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

/// Whatever should come within a generous limit.
pub(crate) async fn soon<R>(future: impl Future<Output = R>) -> R {
    tokio::time::timeout(Duration::from_secs(30), future)
        .await
        .expect("took longer than 30 s")
}

struct Running {
    task: JoinHandle<()>,
    handle: ServerHandle,
    frozen: Arc<AtomicBool>,
    address: String,
}

pub(crate) struct Cluster<T: Transport> {
    transport: T,
    consistency: Consistency,
    embedded: watch::Sender<Arc<View>>,
    reports: tokio::sync::mpsc::Sender<ReportChange>,
    servers: BTreeMap<u64, Running>,
    filters: Vec<(ArrayId, ArrayFilters)>,
    queue: usize,
    inbox: usize,
    registry: JoinHandle<()>,
}

/// Chains of the shards of both arrays.
fn routes(servers: u64, replicas: u64) -> Vec<Route> {
    let cuts: Vec<KeyRange> = KeyRange::new(0, KEYS).cut(4).collect();
    let chain = |shard: u64| {
        // With two replicas, server 0 is the head of all: the one to kill.
        let first = if replicas == servers {
            0
        } else {
            shard % servers
        };
        (0..replicas)
            .map(|i| NodeId((first + i) % servers))
            .collect()
    };
    let mut routes: Vec<Route> = (0..)
        .zip(cuts)
        .map(|(shard, range)| Route {
            array: ARRAY,
            range,
            epoch: Epoch(1),
            chain: chain(shard),
        })
        .collect();
    routes.push(Route {
        array: BIG_ARRAY,
        range: KeyRange::new(0, 1),
        epoch: Epoch(1),
        chain: chain(0),
    });
    routes
}

fn arrays(consistency: Consistency) -> Vec<(ArrayId, ArrayConfig)> {
    let array = |layout| ArrayConfig {
        layout,
        policy: Arc::new(consistency),
    };
    vec![
        (ARRAY, array(Layout::dense(WIDTH, Add))),
        (BIG_ARRAY, array(Layout::dense(BIG, Add))),
    ]
}

/// Runs a server, which stands still while the flag is set.
fn run<T: Transport>(mut server: ServerNode<T>) -> (Arc<AtomicBool>, JoinHandle<()>) {
    let frozen = Arc::new(AtomicBool::new(false));
    let ice = Arc::clone(&frozen);
    let task = tokio::spawn(async move {
        let mut running = pin!(server.run(std::future::pending()));
        std::future::poll_fn(|context| {
            if ice.load(Ordering::Relaxed) {
                Poll::Pending
            } else {
                running.as_mut().poll(context)
            }
        })
        .await;
    });
    (frozen, task)
}

impl<T: Transport> Drop for Cluster<T> {
    fn drop(&mut self) {
        self.registry.abort();
        self.servers.values().for_each(|server| server.task.abort());
    }
}

impl<T: Transport> Cluster<T> {
    /// Workers 0.. that are members, servers 0.., and one more server that holds nothing yet. Four
    /// shards, the chain of each the servers from 0 or 1 on.
    pub(crate) async fn start(
        transport: T,
        workers: u64,
        servers: u64,
        replicas: u64,
        consistency: Consistency,
    ) -> Self {
        Self::start_with(transport, workers, servers, replicas, consistency, |_| {}).await
    }

    pub(crate) async fn start_filtered(
        transport: T,
        workers: u64,
        servers: u64,
        replicas: u64,
        consistency: Consistency,
        filters: ArrayFilters,
    ) -> Self {
        let set = move |config: &mut ServerNodeConfig| config.filters = vec![(ARRAY, filters)];
        Self::start_with(transport, workers, servers, replicas, consistency, set).await
    }

    pub(crate) async fn start_with(
        transport: T,
        workers: u64,
        servers: u64,
        replicas: u64,
        consistency: Consistency,
        set: impl Fn(&mut ServerNodeConfig),
    ) -> Self {
        let routes = routes(servers, replicas);
        let members = (0..workers).map(|worker| (WorkerId(worker), Clock(0)));
        let view = in_process::view(Routing::new(1, routes).unwrap(), members.collect());
        let embedded = InProcessRegistry::new(view);
        let (view, reports) = (embedded.view(), embedded.membership().reports);
        let memberships: Vec<_> = (0..=servers).map(|_| embedded.membership()).collect();
        let registry = tokio::spawn(embedded.run());
        let mut cluster = Self {
            transport,
            consistency,
            embedded: view,
            reports,
            servers: BTreeMap::new(),
            filters: Vec::new(),
            queue: 16 << 20,
            inbox: 64 << 20,
            registry,
        };
        for (node, membership) in (0..).zip(memberships) {
            let mut config = ServerNodeConfig::new(NodeId(node), arrays(consistency));
            // In memory, addresses are names; over TCP, any free port.
            if std::any::type_name::<T>().ends_with("Memory") {
                config.listen = format!("server {node}");
            }
            set(&mut config);
            (cluster.queue, cluster.inbox) = (config.queue, config.inbox);
            cluster.filters.clone_from(&config.filters);
            let server = ServerNode::bind(config, cluster.transport.clone(), membership)
                .await
                .unwrap();
            let address = server.address().to_owned();
            let handle = server.handle();
            let (frozen, task) = run(server);
            let running = Running {
                task,
                handle,
                frozen,
                address: address.clone(),
            };
            cluster.servers.insert(node, running);
            cluster.change(|view| {
                view.servers
                    .insert(NodeId(node), in_process::server(address));
            });
        }
        cluster
    }

    fn change(&self, change: impl FnOnce(&mut View)) {
        self.embedded
            .send_modify(|view| change(Arc::make_mut(view)));
    }

    pub(crate) fn view(&self) -> Arc<View> {
        Arc::clone(&self.embedded.borrow())
    }

    pub(crate) fn worker(&mut self, worker: u64) -> Worker {
        let array = |width| ClientArray {
            width,
            consistency: self.consistency,
        };
        let arrays = vec![(ARRAY, array(WIDTH)), (BIG_ARRAY, array(BIG))];
        let mut config = ClientNodeConfig::new(WorkerId(worker), arrays);
        config.filters.clone_from(&self.filters);
        (config.queue, config.inbox) = (self.queue, self.inbox);
        let membership = parapet_cluster::node::Membership {
            view: self.embedded.subscribe(),
            reports: self.reports.clone(),
        };
        ClientNode::start(config, self.transport.clone(), membership)
    }

    /// All of a large row.
    pub(crate) fn big(&self) -> TaskSpec {
        TaskSpec::new(BIG_ARRAY, KeyRange::new(0, 1), Clock(0))
    }

    pub(crate) fn join(&self, worker: u64) {
        self.change(|view| {
            view.workers.version += 1;
            view.workers.workers.push((WorkerId(worker), Clock(0)));
        });
    }

    pub(crate) fn address(&self, server: u64) -> String {
        self.servers[&server].address.clone()
    }

    /// Waits until this many pushes of worker 0 to the first key have been
    /// acknowledged, by pulling.
    pub(crate) async fn acknowledged(&mut self, pushes: u64) {
        let watcher = self.worker(1000);
        soon(async {
            loop {
                let pulled = watcher.pull(spec(0)).await.unwrap().await.unwrap();
                if pulled.values[0] >= pushes as f32 {
                    return;
                }
            }
        })
        .await;
    }

    /// Ends a server like a crash: its connections are reset.
    pub(crate) fn kill(&mut self, server: u64) {
        self.servers[&server].task.abort();
    }

    /// Stops a server without closing its connections.
    pub(crate) fn freeze(&mut self, server: u64) {
        self.servers[&server].frozen.store(true, Ordering::Relaxed);
    }

    /// Has every shard copied to `to`, and waits until it is in every chain.
    pub(crate) async fn hand_over_all(&mut self, to: NodeId) {
        self.change(|view| {
            let at = |route: &Route| ShardRef {
                array: route.array,
                range: route.range,
                epoch: route.epoch,
            };
            view.table.hand_overs = view
                .table
                .routing
                .routes()
                .iter()
                .map(|route| HandOver { at: at(route), to })
                .collect();
        });
        let mut view = self.embedded.subscribe();
        let everywhere = |view: &Arc<View>| {
            view.table
                .routing
                .routes()
                .iter()
                .all(|route| route.chain.contains(&to))
        };
        soon(view.wait_for(everywhere)).await.unwrap();
    }

    /// Returns the counts of a server's messages.
    pub(crate) async fn counters(&self, server: u64) -> Counters {
        soon(self.servers[&server].handle.look(|_, counters| counters))
            .await
            .unwrap()
    }
}
