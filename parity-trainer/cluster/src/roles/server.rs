//! A server: one life, from join to leave. A coordinator: a process that can lead and nothing else.

use std::sync::Arc;
use std::time::Duration;

use parapet_parameter_server::{CoordinatorConfig, NodeId};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::node::wire::VERSION;
use crate::node::{self, NodeConfig, ServerHandle, ServerNode};
use crate::registry::{
    Joining, Member, Membership, Registry, RegistryError, ServerInfo, View, lead,
};
use crate::roles::{ClusterError, Result, control, metrics};

/// Takes part in the election of a leader, and leads while elected, until `stop`.
pub async fn coordinate(
    registry: &Registry,
    config: CoordinatorConfig,
    stop: impl Future<Output = ()>,
) -> Result<()> {
    let membership = registry.join(Joining::Coordinator).await?;
    tracing::info!(member = %membership.id(), "joined");
    tokio::select! {
        ended = lead(&membership, config) => ended?,
        () = stop => {}
    }
    Ok(membership.leave().await?)
}

#[derive(Debug, Clone)]
pub struct ServerSettings {
    pub node: NodeConfig,
    /// `HOST:PORT` for connections; it answers questions at another port of this host.
    pub listen: String,
    /// The host under which others reach it, if that is not the one of `listen`.
    pub advertise: Option<String>,
    /// `HOST:PORT` for scrapes of its metrics, if there are any.
    pub metrics: Option<String>,
    pub leads: CoordinatorConfig,
    /// It holds nothing unless it is needed.
    pub standby: bool,
    /// For how long a server that is to leave may wait for others to take its shards.
    pub leave: Duration,
}

impl ServerSettings {
    pub fn new(node: NodeConfig) -> Self {
        Self {
            node,
            listen: "127.0.0.1:0".into(),
            advertise: None,
            metrics: None,
            leads: CoordinatorConfig::default(),
            standby: false,
            leave: Duration::from_secs(120),
        }
    }

    fn reached_at(&self, address: &str) -> String {
        match (&self.advertise, address.rsplit_once(':')) {
            (Some(host), Some((_, port))) => format!("{host}:{port}"),
            _ => address.to_owned(),
        }
    }
}

/// A server that has joined and listens. Dropped, it ends like a crash.
#[derive(Debug)]
pub struct ServerRole {
    id: NodeId,
    node: ServerNode,
    membership: Arc<Membership>,
    info: ServerInfo,
    leave: Duration,
    pub metrics_address: Option<String>,
    tasks: JoinSet<()>,
}

impl ServerRole {
    /// Joins under a new number, listens, and makes itself known.
    pub async fn join(registry: &Registry, settings: ServerSettings) -> Result<Self> {
        // Under weight 0 until it listens: its number goes into its handshakes, so it comes first.
        let unknown = Joining::Server(ServerInfo::default());
        let membership = Arc::new(registry.join(unknown).await?);
        let Member::Server(id) = membership.id() else {
            return Err(RegistryError::Closed.into());
        };
        let (config, own) = (settings.node.clone(), node::Membership::of(&membership));
        let node = ServerNode::bind(id, &settings.listen, Vec::new(), config, own).await?;
        let address = settings.reached_at(node.address());
        let host = settings.listen.rsplit_once(':');
        let host = host.map_or("127.0.0.1", |(host, _)| host);
        let (listener, asked_at) = listen(&format!("{host}:0")).await?;
        let mut tasks = JoinSet::new();
        tasks.spawn(control::serve(listener, node.handle()));
        let mut metrics_address = None;
        if let Some(metrics) = &settings.metrics {
            let (listener, address) = listen(metrics).await?;
            metrics_address = Some(address);
            tasks.spawn(metrics::serve(listener, node.handle(), registry.clone()));
        }
        let (control, standby) = (settings.reached_at(&asked_at), settings.standby);
        let info = ServerInfo { address, control, weight: 1, standby, protocol: VERSION };
        membership.update(&info)?;
        let own = Arc::clone(&membership);
        tasks.spawn(async move {
            if let Err(error) = lead(&own, settings.leads).await {
                tracing::debug!(%error, "takes no part in the election any longer");
            }
        });
        tracing::info!(server = %id, address = info.address, "joined");
        Ok(Self { id, node, membership, info, leave: settings.leave, metrics_address, tasks })
    }

    pub const fn id(&self) -> NodeId {
        self.id
    }

    pub fn address(&self) -> &str {
        &self.info.address
    }

    pub fn handle(&self) -> ServerHandle {
        self.node.handle()
    }

    /// Serves until `stop`, then goes on until others hold its shards, and leaves.
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> Result<()> {
        let mut emptied = Ok(());
        let (membership, info) = (&self.membership, &self.info);
        let stop = async {
            stop.await;
            emptied = empty(membership, self.id, info, self.leave).await;
        };
        self.node.run(stop).await;
        drop(self.tasks);
        let left = self.membership.leave().await;
        emptied.and(left.map_err(ClusterError::from))
    }
}

/// Listens at `HOST:PORT`, port 0 for any that is free; returns where.
pub(super) async fn listen(address: &str) -> Result<(TcpListener, String)> {
    let bound = async {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?.to_string();
        Ok((listener, address))
    };
    bound.await.map_err(|error: std::io::Error| {
        let fix = "name another address, or stop what uses it";
        ClusterError::Failed(format!("cannot listen at {address} ({error}): {fix}"))
    })
}

async fn empty(
    membership: &Membership,
    id: NodeId,
    info: &ServerInfo,
    leave: Duration,
) -> Result<()> {
    let mut emptied = info.clone();
    emptied.weight = 0;
    membership.update(&emptied)?;
    let holds = |view: &View| {
        let mut hand_overs = view.table.hand_overs.iter();
        view.table.holds(id) || hand_overs.any(|hand_over| hand_over.to == id)
    };
    let is_last = |view: &View| {
        let mut others = view.servers.iter().filter(|&(&other, _)| other != id);
        others.all(|(_, info)| info.weight == 0)
    };
    let registry = membership.registry();
    let emptied = registry.until(|view| !holds(view) || is_last(view));
    let late = format!(
        "{id} still holds shards after {leave:?} and was stopped: their other replicas go on"
    );
    let view = timeout(leave, emptied).await;
    if holds(&*view.map_err(|_| ClusterError::Failed(late))??) {
        tracing::warn!(server = %id, "the last server leaves; what it held is lost");
    }
    Ok(())
}
