//! Errors of roles.

use std::time::Duration;

use crate::array::ArrayError;
use crate::node::transport::TransportError;
use crate::registry::RegistryError;
use parapet_parameter_server::{ArrayId, KeyRange, NodeId};

/// Reason why a role could not be played.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what they are")]
pub enum ClusterError {
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error("cannot listen at {address} ({source}): name another address, or stop what uses it")]
    Listen {
        address: String,
        source: std::io::Error,
    },
    #[error("{node} does not answer questions ({cause}): see whether it runs")]
    Control { node: NodeId, cause: String },
    #[error("{node} refuses: {cause}")]
    Refused { node: NodeId, cause: String },
    #[error(transparent)]
    Array(#[from] ArrayError),
    #[error(
        "another training runs on the cluster, led by process {driver}: wait for its end, or start another cluster"
    )]
    Busy { driver: u64 },
    #[error("the training is over: whoever led it has ended it or began another")]
    Ended,
    #[error("the cluster's job cannot be read ({cause}): run one version on all nodes")]
    Job { cause: String },
    #[error("the parameter servers refuse {what} of step {step}: {cause}")]
    Task {
        what: &'static str,
        step: u64,
        cause: String,
    },
    #[error(
        "step {step} is not done after {waited:?}: see `top` for servers and workers that are \
            missing"
    )]
    Late { step: u64, waited: Duration },
    #[error(
        "the servers hold step {found} of keys {keys}, not step {step}: whoever leads the \
            training has been replaced"
    )]
    Torn {
        step: u64,
        found: u64,
        keys: KeyRange,
    },
    #[error(
        "some parameters are those after step {step}, others those after step {newest}, for \
            {waited:?}: a process died while it handed in a gradient; take part again, so that \
            others compute it"
    )]
    Apart {
        step: u64,
        newest: u64,
        waited: Duration,
    },
    #[error("the process cannot be set up ({0}): raise its limits")]
    Runtime(std::io::Error),
    #[error(
        "{array} has no servers after {waited:?}: start some, and a coordinator, with the same \
            --registry"
    )]
    NoServers { array: ArrayId, waited: Duration },
    #[error(
        "{node} still holds shards after {waited:?} and was stopped: their other replicas go on"
    )]
    NotEmptied { node: NodeId, waited: Duration },
}
