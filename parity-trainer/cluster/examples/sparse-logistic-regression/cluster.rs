//! Servers and the way to them, within this process.

use std::fmt;
use std::sync::Arc;

use parapet_cluster::node::transport::{Memory, Tcp, Transport, TransportError};
use parapet_cluster::node::{ClientNode, ClientNodeConfig, ServerNode, ServerNodeConfig, Worker};
use parapet_cluster::registry::View;
use parapet_parameter_server::{
    ArrayConfig, ArrayFilters, ArrayId, ClientArray, Clock, Consistency, Epoch, KeyRange, Layout,
    NodeId, Route, Routing, RoutingError, WorkerId,
};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::in_process::{self, InProcessRegistry};

/// The array of all weights.
pub(crate) const ARRAY: ArrayId = ArrayId(0);

/// The number of one that only reads; no worker has it.
const READER: WorkerId = WorkerId(u64::MAX);

/// A transport with places for servers of this process to listen at.
pub(crate) trait Place: Transport {
    /// Where this server listens.
    fn address(server: u64) -> String;
}

impl Place for Tcp {
    fn address(_: u64) -> String {
        "127.0.0.1:0".into()
    }
}

impl Place for Memory {
    fn address(server: u64) -> String {
        format!("server {server}")
    }
}

/// Settings of a cluster.
#[derive(Debug, Clone)]
pub(crate) struct ClusterSettings {
    /// Number of servers, at least 1: the keys are cut into as many ranges.
    pub(crate) servers: u64,
    /// Servers that hold each range; no more than there are.
    pub(crate) replicas: u64,
    /// Workers that count: they must all go on for the others to.
    pub(crate) workers: u64,
    pub(crate) keys: KeyRange,
    /// The array's rows, and what a push does.
    pub(crate) layout: Layout,
    pub(crate) consistency: Consistency,
    /// True if a list of keys is sent once, then its digest.
    pub(crate) key_lists: bool,
}

/// Servers that run until this is dropped.
pub(crate) struct Cluster<T: Place> {
    transport: T,
    settings: ClusterSettings,
    view: watch::Sender<Arc<View>>,
    registry: InProcessRegistry,
    servers: Vec<AbortOnDropHandle<()>>,
}

impl<T: Place> fmt::Debug for Cluster<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cluster of {:?}", self.settings)
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// A server cannot listen.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The keys cannot be dealt out.
    #[error(transparent)]
    Routing(#[from] RoutingError),
}

impl<T: Place> Cluster<T> {
    /// Starts the servers.
    ///
    /// # Errors
    /// If one cannot listen, or there are fewer keys than servers.
    pub(crate) async fn start(settings: ClusterSettings, transport: T) -> Result<Self, StartError> {
        let registry = InProcessRegistry::new(view(&settings)?);
        let view = registry.view();
        let mut cluster = Self {
            transport,
            settings,
            view,
            registry,
            servers: Vec::new(),
        };
        for server in 0..cluster.settings.servers {
            let Err(error) = cluster.start_server(server).await else {
                continue;
            };
            return Err(error.into());
        }
        Ok(cluster)
    }

    async fn start_server(&mut self, server: u64) -> Result<(), TransportError> {
        let policy = Arc::new(self.settings.consistency);
        let array = ArrayConfig {
            layout: self.settings.layout.clone(),
            policy,
        };
        let config = ServerNodeConfig {
            listen: T::address(server),
            filters: self.filters(),
            ..ServerNodeConfig::new(NodeId(server), vec![(ARRAY, array)])
        };
        let membership = self.registry.membership();
        let mut node = ServerNode::bind(config, self.transport.clone(), membership).await?;
        let address = node.address().to_owned();
        let running = tokio::spawn(async move { node.run(std::future::pending()).await });
        self.servers.push(AbortOnDropHandle::new(running));
        self.view.send_modify(|view| {
            Arc::make_mut(view)
                .servers
                .insert(NodeId(server), in_process::server(address));
        });
        Ok(())
    }

    fn filters(&self) -> Vec<(ArrayId, ArrayFilters)> {
        let filters = ArrayFilters {
            key_lists: true,
            ..ArrayFilters::default()
        };
        self.settings
            .key_lists
            .then_some((ARRAY, filters))
            .into_iter()
            .collect()
    }

    /// The way in for a worker, by its number from 0.
    pub(crate) fn worker(&self, worker: u64) -> Worker {
        self.client(WorkerId(worker))
    }

    /// The way in for one that only reads, at clock 0, whatever there is.
    pub(crate) fn reader(&self) -> Worker {
        self.client(READER)
    }

    fn client(&self, worker: WorkerId) -> Worker {
        let array = ClientArray {
            width: self.settings.layout.width,
            consistency: self.settings.consistency,
        };
        let config = ClientNodeConfig {
            filters: self.filters(),
            ..ClientNodeConfig::new(worker, vec![(ARRAY, array)])
        };
        ClientNode::start(config, self.transport.clone(), self.registry.membership())
    }
}

/// One range for each server; its chain goes on with the servers after it.
fn view(settings: &ClusterSettings) -> Result<View, RoutingError> {
    let servers = settings.servers.max(1);
    let replicas = settings.replicas.clamp(1, servers);
    let route = |(first, range): (u64, KeyRange)| Route {
        array: ARRAY,
        range,
        epoch: Epoch(1),
        chain: (0..replicas)
            .map(|place| NodeId((first + place) % servers))
            .collect(),
    };
    let routing = Routing::new(
        1,
        (0..).zip(settings.keys.cut(servers)).map(route).collect(),
    )?;
    let workers = (0..settings.workers).map(|worker| (WorkerId(worker), Clock(0)));
    Ok(in_process::view(routing, workers.collect()))
}
