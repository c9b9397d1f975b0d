//! Errors of roles.

use std::time::Duration;

use crate::array::ArrayError;
use crate::node::transport::TransportError;
use crate::registry::RegistryError;
use parapet_parameter_server::{ArrayId, KeyRange, NodeId};

/// Reason why a role could not be played.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// A place to listen at cannot be had.
    #[error("cannot listen at {address} ({source}): name another address, or stop what uses it")]
    Listen {
        address: String,
        source: std::io::Error,
    },
    /// A server's control plane.
    #[error("{node} does not answer questions ({cause}): see whether it runs")]
    Control { node: NodeId, cause: String },
    /// A server's control plane answers, but a refusal.
    #[error("{node} refuses: {cause}")]
    Refused { node: NodeId, cause: String },
    #[error(transparent)]
    Array(#[from] ArrayError),
    /// Another training runs.
    #[error(
        "another training runs on the cluster, led by process {driver}: wait for its end, or start another cluster"
    )]
    Busy {
        /// The member that leads it.
        driver: u64,
    },
    /// The training that this process took part in is over.
    #[error("the training is over: whoever led it has ended it or began another")]
    Ended,
    /// The description of the training cannot be read.
    #[error("the cluster's job cannot be read ({cause}): run one version on all nodes")]
    Job { cause: String },
    /// A push or pull failed for good.
    #[error("the parameter servers refuse {what} of step {step}: {cause}")]
    Task {
        /// Push or pull.
        what: &'static str,
        step: u64,
        cause: String,
    },
    #[error(
        "step {step} is not done after {waited:?}: see `top` for servers and workers that are \
            missing"
    )]
    Late { step: u64, waited: Duration },
    /// The servers hold another state than the training's.
    #[error(
        "the servers hold step {found} of keys {keys}, not step {step}: whoever leads the \
            training has been replaced"
    )]
    Torn {
        /// The step asked for.
        step: u64,
        found: u64,
        keys: KeyRange,
    },
    /// The parameters are those after different steps, and stay so.
    #[error(
        "some parameters are those after step {step}, others those after step {newest}, for \
            {waited:?}: a process died while it handed in a gradient; take part again, so that \
            others compute it"
    )]
    Apart {
        /// The step that all contain.
        step: u64,
        /// The step that some contain.
        newest: u64,
        /// For how long.
        waited: Duration,
    },
    /// Nothing can be started in this process.
    #[error("the process cannot be set up ({0}): raise its limits")]
    Runtime(std::io::Error),
    /// No server came to hold an array.
    #[error(
        "{array} has no servers after {waited:?}: start some, and a coordinator, with the same \
            --registry"
    )]
    NoServers { array: ArrayId, waited: Duration },
    /// A server that wanted to leave still holds shards.
    #[error(
        "{node} still holds shards after {waited:?} and was stopped: their other replicas go on"
    )]
    NotEmptied { node: NodeId, waited: Duration },
}
