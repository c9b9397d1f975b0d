//! Store that a registry is kept in.

use std::fmt;
use std::sync::Arc;

use tokio::sync::mpsc;

use crate::registry::RegistryError;

/// Counts the changes of a store, from 1; 0 stands for what is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(pub u64);

/// Names a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub i64);

/// A key with what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub key: String,
    pub value: Vec<u8>,
    /// The change that gave it this value.
    pub modified: Revision,
}

/// A condition of a transaction: the key got its value by this change; [`Revision`] 0: it
/// is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compare {
    pub key: String,
    pub modified: Revision,
}

impl Compare {
    /// The condition that `key` is as it was by this change.
    pub fn new(key: impl Into<String>, modified: Revision) -> Self {
        Self {
            key: key.into(),
            modified,
        }
    }
}

/// A value to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put {
    pub key: String,
    pub value: Vec<u8>,
    /// The key goes when this lease does.
    pub lease: Option<LeaseId>,
}

/// Changes that happen together, or not at all. At most [`Transaction::MAX_CHANGES`] of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Transaction {
    /// All must hold.
    pub when: Vec<Compare>,
    pub puts: Vec<Put>,
    pub deletes: Vec<String>,
}

impl Transaction {
    /// Changes in one transaction; etcd's own limit is 128.
    pub const MAX_CHANGES: usize = 96;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitOutcome {
    /// As the change of this number.
    Done(Revision),
    /// A condition did not hold, so nothing changed.
    Failed,
}

/// News for the followers of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Batch {
    /// All that there is: at first, and after a gap.
    All(Vec<Entry>),
    /// Later changes, in order: a new value, or a key that is gone.
    Changes(Vec<Result<Entry, String>>),
    /// The store cannot be reached. Another batch means that it can be again.
    Away,
}

/// A lease that is renewed until it is dropped; then, or when it could not be renewed in time,
/// its keys go.
#[async_trait::async_trait]
pub trait Lease: Send + Sync + fmt::Debug {
    /// Its name in transactions.
    fn id(&self) -> LeaseId;

    /// Ends when the lease has.
    async fn lapsed(&self);

    /// Ends it now, with its keys.
    async fn revoke(&self) -> Result<(), RegistryError>;
}

/// A small ordered map that several processes share: transactions with conditions, leases, changes
/// told to followers.
#[async_trait::async_trait]
pub trait Store: Send + Sync + fmt::Debug {
    async fn get(&self, key: &str) -> Result<Option<Entry>, RegistryError>;

    /// Carries out a transaction. After an error it may or may not have happened.
    async fn commit(&self, transaction: Transaction) -> Result<CommitOutcome, RegistryError>;

    async fn grant(&self) -> Result<Arc<dyn Lease>, RegistryError>;

    /// All keys and their changes, until the receiver is dropped. A slow receiver
    /// slows only itself.
    fn follow(&self) -> mpsc::Receiver<Batch>;
}
