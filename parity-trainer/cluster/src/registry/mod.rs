//! State that a cluster of parameter servers must agree on: members, leader, and the servers
//! of each shard.
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
mod error;
mod etcd;
pub(crate) mod frames;
mod interface;
mod leader;
mod membership;
mod memory;
mod served;
mod store;
mod view;

pub use address::Address;
pub use error::{RegistryError, Result};
pub use etcd::EtcdStore;
pub use interface::{Joining, Registry};
pub use leader::lead;
pub use membership::{MAX_REPORTS, Membership};
pub use memory::MemoryStore;
pub use served::{ServedStore, serve_store};
pub use store::{Batch, Entry, Lease, LeaseId, Put, Revision, Store, Transaction};
pub use view::{ArrayInfo, Leader, Member, Report, ServerInfo, Table, Term, View, Workers};
