//! The parameter server as processes: the data plane ([`node`](crate::node)) and membership
//! ([`registry`](crate::registry)) of each role.
//!
//! - [`ServerRole`]: joins, serves, takes part in electing a leader, and leaves without loss.
//! - [`coordinate`]: takes part in the election only.
//! - [`training`]: a training whose executors move between the worker processes that are there.

pub mod command;
pub mod control;
mod metrics;
mod server;
pub mod training;

use std::time::Duration;

use parapet_parameter_server::{ArrayId, KeyRange};
use tokio::time::timeout;

use crate::array::ArraySpec;
use crate::node::transport::TransportError;
use crate::registry::{ArrayInfo, Registry, RegistryError, View};

pub use server::{ServerRole, ServerSettings, coordinate};

pub type Result<T, E = ClusterError> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error(
        "another training runs on the cluster, led by process {driver}: wait for its end, or \
            start another cluster"
    )]
    Busy { driver: u64 },
    #[error("the training is over: its leader has ended it or began another")]
    Ended,
    #[error("the parameter servers refuse {what} of step {step}: {cause}")]
    Task { what: &'static str, step: u64, cause: String },
    #[error(
        "some parameters are those after step {step}, others those after step {newest}, for \
            {waited:?}: a process died while it handed in a gradient; take part again, so that \
            others compute it"
    )]
    Apart { step: u64, newest: u64, waited: Duration },
    #[error(
        "keys {keys} have had no server for {waited:?}: those that held them are gone; go on from \
            the training's checkpoint (--resume), with more --replicas to outlive one"
    )]
    Orphaned { keys: KeyRange, waited: Duration },
    #[error("the process cannot be set up ({0}): raise its limits")]
    Runtime(std::io::Error),
    /// Anything that no caller tells apart.
    #[error("{0}")]
    Failed(String),
}

/// Makes an array known to the cluster: `keys` in `shards`, which lie one after another.
pub async fn define(
    registry: &Registry,
    array: ArrayId,
    keys: KeyRange,
    shards: Vec<KeyRange>,
    spec: &ArraySpec,
) -> Result<()> {
    let info = ArrayInfo {
        keys,
        shards,
        description: spec.describe(array).map_err(ClusterError::Failed)?,
    };
    Ok(registry.define(array, &info).await?)
}

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
