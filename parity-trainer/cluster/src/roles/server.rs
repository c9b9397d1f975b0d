//! A server: one life, from its join to its leave.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::node::transport::Transport;
use crate::node::{self, ServerHandle, ServerNode, ServerNodeConfig, Timing};
use crate::registry::{
    Joining, Member, Membership, Registry, RegistryError, ServerInfo, View, lead,
};
use parapet_parameter_server::{CoordinatorConfig, HandOver, NodeId};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::roles::ClusterError;
use crate::roles::control::ControlServer;
use crate::roles::metrics::MetricsServer;

/// Settings of a server.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// The cluster's name; those of other names are refused.
    pub cluster: String,
    /// Where it takes connections, `HOST:PORT`; port 0 for any that is free.
    pub listen: String,
    /// The host under which others reach it, if that is not the one of `listen`.
    pub advertise: Option<String>,
    /// Where it answers questions about itself, `HOST:PORT`; `None`: nowhere.
    pub control: Option<String>,
    /// Where it answers scrapes of its metrics (`/metrics`, Prometheus),
    /// `HOST:PORT`; `None`: nowhere.
    pub metrics: Option<String>,
    /// Its part of the load, relative to the others'.
    pub weight: u32,
    /// Intervals and timeouts, from the heartbeat.
    pub timing: Timing,
    /// Settings for its time as a leader; `None` keeps it out of the election.
    pub leads: Option<CoordinatorConfig>,
    /// For how long a server that is to leave may wait for others to take its shards.
    pub leave: Duration,
}

impl ServerSettings {
    /// At any free port of this machine, of weight 1.
    pub fn new(cluster: impl Into<String>) -> Self {
        Self {
            cluster: cluster.into(),
            listen: "127.0.0.1:0".into(),
            advertise: None,
            control: None,
            metrics: None,
            weight: 1,
            timing: Timing::default(),
            leads: Some(CoordinatorConfig::default()),
            leave: Duration::from_secs(120),
        }
    }
}

/// A server that has joined and listens, and is to be run. Dropped before that or meanwhile, it
/// ends like a crash.
pub struct ServerRole<T: Transport> {
    id: NodeId,
    node: ServerNode<T>,
    membership: Arc<Membership>,
    info: ServerInfo,
    leave: Duration,
    _reports: AbortOnDropHandle<()>,
    leading: Option<AbortOnDropHandle<()>>,
    answering: Option<AbortOnDropHandle<()>>,
    measured_at: Option<String>,
    measuring: Option<AbortOnDropHandle<()>>,
}

impl<T: Transport> fmt::Debug for ServerRole<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.id, self.info.address)
    }
}

impl<T: Transport> ServerRole<T> {
    /// Joins under a new number, listens, and makes itself known.
    ///
    /// # Errors
    /// If the registry does not answer, or the address cannot be listened at.
    pub async fn join(
        registry: &Registry,
        settings: ServerSettings,
        transport: T,
    ) -> Result<Self, ClusterError> {
        // Under weight 0 until it listens: its number goes into its handshakes, so the number comes
        // first.
        let unknown = ServerInfo {
            address: String::new(),
            control: String::new(),
            weight: 0,
        };
        let membership = Arc::new(registry.join(Joining::Server(unknown)).await?);
        let Member::Server(id) = membership.id() else {
            return Err(RegistryError::Closed.into());
        };
        let (node_membership, reports) = node::Membership::of(Arc::clone(&membership));
        let config = ServerNodeConfig {
            cluster: settings.cluster,
            listen: settings.listen,
            timing: settings.timing,
            ..ServerNodeConfig::new(id, Vec::new())
        };
        let node = ServerNode::bind(config, transport, node_membership).await?;
        let address = reached_at(node.address(), settings.advertise.as_deref());
        let control = match &settings.control {
            Some(listen) => Some(ControlServer::bind(listen).await?),
            None => None,
        };
        let measuring = match &settings.metrics {
            Some(listen) => Some(MetricsServer::bind(listen).await?),
            None => None,
        };
        let measured_at = measuring
            .as_ref()
            .map(|measuring| measuring.address().to_owned());
        let asked_at = control.as_ref().map_or_else(String::new, |control| {
            reached_at(control.address(), settings.advertise.as_deref())
        });
        let info = ServerInfo {
            address,
            control: asked_at,
            weight: settings.weight,
        };
        let answering = control.map(|control| control.start(node.handle()));
        let measuring = measuring.map(|measuring| measuring.start(node.handle(), registry.clone()));
        membership.update(&info)?;
        let leading = settings.leads.map(|config| {
            let membership = Arc::clone(&membership);
            AbortOnDropHandle::new(tokio::spawn(async move {
                if let Err(error) = lead(&membership, config).await {
                    tracing::debug!(%error, "takes no part in the election any longer");
                }
            }))
        });
        tracing::info!(server = %id, address = info.address, "joined");
        let leave = settings.leave;
        Ok(Self {
            id,
            node,
            membership,
            info,
            leave,
            _reports: reports,
            leading,
            answering,
            measured_at,
            measuring,
        })
    }

    pub const fn id(&self) -> NodeId {
        self.id
    }

    /// Where others reach it.
    pub fn address(&self) -> &str {
        &self.info.address
    }

    /// Where its metrics are, if anywhere.
    pub fn metrics_address(&self) -> Option<&str> {
        self.measured_at.as_deref()
    }

    /// To look into it while it runs.
    pub fn handle(&self) -> ServerHandle {
        self.node.handle()
    }

    /// Serves until `stop`, then goes on until others hold its shards, and leaves.
    ///
    /// # Errors
    /// [`ClusterError::NotEmptied`] if its shards were not taken over in time. It has left then,
    /// like a crash.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), ClusterError> {
        let Self {
            id,
            mut node,
            membership,
            info,
            leave,
            _reports: reports,
            leading,
            answering,
            measuring,
            ..
        } = self;
        let mut emptied = Ok(());
        node.run(async {
            stop.await;
            emptied = empty(&membership, id, &info, leave).await;
        })
        .await;
        drop((leading, answering, measuring, reports));
        let left = membership.leave().await;
        drop(node);
        emptied.and(left.map_err(ClusterError::from))
    }
}

/// Where others reach whatever listens at `address`.
fn reached_at(address: &str, host: Option<&str>) -> String {
    match (host, address.rsplit_once(':')) {
        (Some(host), Some((_, port))) => format!("{host}:{port}"),
        _ => address.to_owned(),
    }
}

/// Has a server's shards taken over by others.
async fn empty(
    membership: &Membership,
    id: NodeId,
    info: &ServerInfo,
    leave: Duration,
) -> Result<(), ClusterError> {
    membership.update(&ServerInfo {
        weight: 0,
        ..info.clone()
    })?;
    let mut views = membership.registry().view();
    let is_over = |view: &Arc<View>| !holds(view, id) || is_last(view, id);
    match timeout(leave, views.wait_for(is_over)).await {
        Ok(Ok(view)) => {
            if holds(&view, id) {
                tracing::warn!(server = %id, "the last server leaves; what it held is lost");
            }
            Ok(())
        }
        Ok(Err(_)) => Err(RegistryError::Closed.into()),
        Err(_) => Err(ClusterError::NotEmptied {
            node: id,
            waited: leave,
        }),
    }
}

/// Returns true if the table names the server.
fn holds(view: &View, id: NodeId) -> bool {
    let table = &view.table;
    table
        .routing
        .routes()
        .iter()
        .any(|route| route.chain.contains(&id))
        || table.hand_overs.iter().any(|&HandOver { to, .. }| to == id)
}

/// Returns true if no other server can take its shards.
fn is_last(view: &View, id: NodeId) -> bool {
    !view
        .servers
        .iter()
        .any(|(&other, info)| other != id && info.weight > 0)
}
