//! A worker: one life.

use std::sync::Arc;
use std::time::Duration;

use parapet_parameter_server::{ArrayId, Clock, KeyRange};
use tokio::time::timeout;

use crate::array::ArraySpec;
use crate::node::{self, NodeConfig, Transport, Worker};
use crate::registry::{ArrayInfo, Joining, Member, Membership, Registry, RegistryError, View};
use crate::roles::{ClusterError, Result};

/// A worker that has joined. Dropped, it ends like a crash, which the leader misses.
#[derive(Debug)]
pub struct WorkerRole {
    pub worker: Worker,
    membership: Arc<Membership>,
}

impl WorkerRole {
    /// Joins under a new number, and connects to the servers of the cluster of this name. It counts
    /// as having finished `clock`: that of the most advanced worker, or later.
    pub async fn join(
        registry: &Registry,
        cluster: &str,
        transport: Transport,
        clock: Clock,
        arrays: &[(ArrayId, ArraySpec)],
    ) -> Result<Self> {
        let membership = Arc::new(registry.join(Joining::Worker(clock)).await?);
        let Member::Worker(id) = membership.id() else {
            return Err(RegistryError::Closed.into());
        };
        let arrays = arrays.iter().map(|(array, spec)| (*array, spec.client()));
        let config = NodeConfig::new(cluster, transport);
        let own = node::Membership::of(&membership);
        let worker = Worker::start(id, arrays.collect(), config, own);
        tracing::info!(worker = %id, "joined");
        Ok(Self { worker, membership })
    }

    /// Leaves: its clock is waited for no longer. Wait for its tasks before.
    pub async fn leave(self) -> Result<()> {
        drop(self.worker);
        Ok(self.membership.leave().await?)
    }
}

/// Makes an array known to the cluster: `keys` rows in `shards` shards.
pub async fn define(
    registry: &Registry,
    array: ArrayId,
    keys: KeyRange,
    shards: u64,
    spec: &ArraySpec,
) -> Result<()> {
    let info = ArrayInfo {
        keys,
        shards,
        description: spec.describe(array).map_err(ClusterError::Failed)?,
    };
    Ok(registry.define(array, &info).await?)
}

/// Waits until servers hold the whole array.
pub async fn await_array(registry: &Registry, array: ArrayId, patience: Duration) -> Result<()> {
    let is_held = |view: &View| {
        view.arrays.get(&array).is_some_and(|info| {
            let routes = view.table.routing.overlapping(array, info.keys);
            routes.map(|route| route.range.len()).sum::<u64>() == info.keys.len()
        })
    };
    let late = format!(
        "{array} has no servers after {patience:?}: start some, and a coordinator, with the same \
            --registry"
    );
    let held = timeout(patience, registry.until(is_held)).await;
    held.map_err(|_| ClusterError::Failed(late))??;
    Ok(())
}
