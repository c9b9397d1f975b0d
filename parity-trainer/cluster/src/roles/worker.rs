//! A worker: one life.

use std::sync::Arc;
use std::time::Duration;

use crate::node::transport::Transport;
use crate::node::{self, ClientNode, ClientNodeConfig, Timing, Worker};
use crate::registry::{ArrayInfo, Joining, Member, Membership, Registry, RegistryError, View};
use parapet_parameter_server::{ArrayId, Clock, KeyRange, WorkerId};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::array::ArraySpec;
use crate::roles::ClusterError;

/// Settings of a worker.
#[derive(Debug, Clone)]
pub struct WorkerSettings {
    /// The cluster's name; those of other names are refused.
    pub cluster: String,
    /// The clock that it counts as having finished: that of the most advanced worker, or later.
    pub clock: Clock,
    /// The arrays that it uses.
    pub arrays: Vec<(ArrayId, ArraySpec)>,
    /// Intervals and timeouts, from the heartbeat.
    pub timing: Timing,
}

impl WorkerSettings {
    /// One that uses these arrays from the first clock on.
    pub fn new(cluster: impl Into<String>, arrays: Vec<(ArrayId, ArraySpec)>) -> Self {
        Self {
            cluster: cluster.into(),
            clock: Clock(0),
            arrays,
            timing: Timing::default(),
        }
    }
}

/// A worker that has joined. Dropped, it ends like a crash: the others wait until the
/// leader misses it.
#[derive(Debug)]
pub struct WorkerRole {
    id: WorkerId,
    worker: Worker,
    membership: Arc<Membership>,
    _reports: AbortOnDropHandle<()>,
}

impl WorkerRole {
    /// Joins under a new number, and connects to the servers.
    ///
    /// # Errors
    /// If the registry does not answer.
    pub async fn join<T: Transport>(
        registry: &Registry,
        settings: WorkerSettings,
        transport: T,
    ) -> Result<Self, ClusterError> {
        let membership = Arc::new(registry.join(Joining::Worker(settings.clock)).await?);
        let Member::Worker(id) = membership.id() else {
            return Err(RegistryError::Closed.into());
        };
        let (node_membership, reports) = node::Membership::of(Arc::clone(&membership));
        let arrays = settings
            .arrays
            .iter()
            .map(|(array, spec)| (*array, spec.client()))
            .collect();
        let config = ClientNodeConfig {
            cluster: settings.cluster,
            timing: settings.timing,
            ..ClientNodeConfig::new(id, arrays)
        };
        let worker = ClientNode::start(config, transport, node_membership);
        tracing::info!(worker = %id, "joined");
        Ok(Self {
            id,
            worker,
            membership,
            _reports: reports,
        })
    }

    pub const fn id(&self) -> WorkerId {
        self.id
    }

    pub const fn worker(&self) -> &Worker {
        &self.worker
    }

    /// Leaves: its clock is waited for no longer. Wait for its tasks before.
    ///
    /// # Errors
    /// If the registry does not answer.
    pub async fn leave(self) -> Result<(), ClusterError> {
        drop(self.worker);
        Ok(self.membership.leave().await?)
    }
}

/// Makes an array known to the cluster: `keys` rows in `shards` shards.
///
/// # Errors
/// If the registry does not answer, or has another array of this number.
pub async fn define(
    registry: &Registry,
    array: ArrayId,
    keys: KeyRange,
    shards: u64,
    spec: &ArraySpec,
) -> Result<(), ClusterError> {
    let info = ArrayInfo {
        keys,
        shards,
        description: spec.describe(array)?,
    };
    Ok(registry.define(array, &info).await?)
}

/// Waits until servers hold the whole array.
///
/// # Errors
/// [`ClusterError::NoServers`] after `patience`.
pub async fn await_array(
    registry: &Registry,
    array: ArrayId,
    patience: Duration,
) -> Result<(), ClusterError> {
    let is_held = |view: &Arc<View>| {
        let keys = view.arrays.get(&array).map(|info| info.keys);
        keys.is_some_and(|keys| {
            let held: u64 = view
                .table
                .routing
                .overlapping(array, keys)
                .map(|route| route.range.len())
                .sum();
            held == keys.len()
        })
    };
    let mut views = registry.view();
    match timeout(patience, views.wait_for(is_held)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(_)) => Err(RegistryError::Closed.into()),
        Err(_) => Err(ClusterError::NoServers {
            array,
            waited: patience,
        }),
    }
}
