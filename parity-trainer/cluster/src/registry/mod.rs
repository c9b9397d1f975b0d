//! State that a parameter-server cluster must agree on: members, leader, and each shard's servers.
//!
//! Only that: parameters and updates never pass through here. A [`Registry`] is the same over every
//! [`Store`], a small ordered map with compare-and-swap transactions and leases: [`MemoryStore`]
//! within a process; beyond, [`ServedStore`], which one of the processes serves, or [`EtcdStore`].
//! An [`Address`] names one.
//!
//! - [`Registry::view`] is all that is known, as a watch channel. It keeps its last value while the
//!   store is away, so that servers and workers go on with the routing table they have.
//! - [`Membership`] is one life of a server, worker or coordinator. It tells the others what it
//!   sees ([`Membership::report`]) without waiting for the store: what could not be written is
//!   written when it is back.
//! - [`lead`] campaigns, and changes the table as [`parapet_parameter_server::Coordinator`] decides
//!   while it leads. Every change is one transaction under the condition that the leader still
//!   leads and the table has not changed, so two who believe that they lead cannot do harm.
//!
//! Documents, reports of a member, waits for a store and watch channels are bounded.

mod address;
mod documents;
mod etcd;
pub(crate) mod frames;
mod interface;
mod leader;
mod membership;
mod memory;
mod served;
mod store;
mod view;

use parapet_parameter_server::ArrayId;

pub use address::Address;
pub use etcd::EtcdStore;
pub use interface::{Joining, Registry};
pub use leader::lead;
pub use membership::{MAX_REPORTS, Membership};
pub use memory::MemoryStore;
pub use served::{ServedStore, serve_store};
pub use store::{Batch, Entry, Lease, LeaseId, Put, Revision, Store, Transaction};
pub use view::{ArrayInfo, Leader, Member, Report, ServerInfo, Table, Term, View, Workers};

pub type Result<T, E = RegistryError> = std::result::Result<T, E>;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    #[error(
        "the registry at {endpoints} does not answer ({cause}): start it, or give its address in \
            --registry (of `train`: --cluster)"
    )]
    Unreachable { endpoints: String, cause: String },
    #[error("the registry at {endpoints} refuses: {cause}")]
    Refused { endpoints: String, cause: String },
    #[error(
        "`{0}` names no registry: write `parapet://HOST:PORT` (a coordinator that serves one) \
            or `etcd://HOST:PORT[,HOST:PORT..][/CLUSTER]`, such as `etcd://10.0.0.5:2379/mnist`"
    )]
    Address(String),
    #[error("{what} has {bytes} bytes, {limit} are allowed: cut the arrays into fewer shards")]
    TooLarge { what: &'static str, bytes: usize, limit: usize },
    #[error("{0} was changed by others again and again meanwhile: try again")]
    Contended(&'static str),
    #[error(
        "{0} is there with other keys or shards: take another number for \
            the new array"
    )]
    OtherArray(ArrayId),
    #[error("{limit} reports of this member stand already: retract some")]
    TooManyReports { limit: usize },
    #[error("another member leads: campaign again when the view has no leader")]
    Deposed,
    #[error("the routing table has changed meanwhile: decide anew on what it is now")]
    Conflict,
    #[error(
        "the registry's {key} cannot be read ({cause}): it was written by another version, or by \
            something else"
    )]
    Malformed { key: String, cause: String },
    #[error("the registry is closed in this process")]
    Closed,
}

impl RegistryError {
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Contended(_) | Self::Conflict)
    }

    pub(crate) fn malformed(key: &str, cause: impl ToString) -> Self {
        let (key, cause) = (key.to_owned(), cause.to_string());
        Self::Malformed { key, cause }
    }
}
