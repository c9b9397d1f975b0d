//! A store in this process: nothing to start, no timers, so tests with paused time drive it, too.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::registry::store::{Batch, Entry, Lease, LeaseId, Revision, Store, Transaction};
use crate::registry::{RegistryError, Result};

#[derive(Debug, Default)]
struct Inner {
    revision: u64,
    entries: BTreeMap<String, (Entry, Option<LeaseId>)>,
    /// Cancelled when they are over.
    leases: BTreeMap<LeaseId, CancellationToken>,
    last_lease: LeaseId,
    away: bool,
    /// For how long a lease outlives its holder.
    linger: Duration,
}

/// A store within this process. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore {
    inner: Arc<Mutex<Inner>>,
    changed: watch::Sender<()>,
}

impl MemoryStore {
    /// An empty one whose leases outlive their holders for so long, as in etcd: for tests.
    pub fn lingering(linger: Duration) -> Self {
        let store = Self::default();
        store.inner.lock().linger = linger;
        store
    }

    /// Cuts the store off from all processes, or ends that: for tests.
    pub fn set_reachable(&self, reachable: bool) {
        self.inner.lock().away = !reachable;
        self.changed.send_replace(());
    }

    /// Ends all leases, as if their holders had not been heard of for long: for tests.
    pub fn lapse_all(&self) {
        let leases: Vec<LeaseId> = self.inner.lock().leases.keys().copied().collect();
        leases.into_iter().for_each(|lease| self.lapse(lease));
    }

    fn lapse(&self, lease: LeaseId) {
        let mut inner = self.inner.lock();
        let Some(over) = inner.leases.remove(&lease) else {
            return;
        };
        inner.entries.retain(|_, (_, of)| *of != Some(lease));
        inner.revision += 1;
        drop(inner);
        over.cancel();
        self.changed.send_replace(());
    }

    /// News for a follower that has been told of these entries; of everything at first.
    fn news(&self, told: &mut Option<BTreeMap<String, Revision>>) -> Batch {
        let inner = self.inner.lock();
        if inner.away {
            return Batch::Away;
        }
        let held = || inner.entries.values().map(|(entry, _)| entry);
        let now = held().map(|entry| (entry.key.clone(), entry.modified));
        let entries = held().cloned();
        let Some(before) = told.replace(now.collect()) else {
            return Batch::All(entries.collect());
        };
        let is_gone = |key: &&String| !inner.entries.contains_key(*key);
        let gone = before.keys().filter(is_gone).cloned().map(Err);
        let new = entries.filter(|entry| before.get(&entry.key) != Some(&entry.modified));
        Batch::Changes(gone.chain(new.map(Ok)).collect())
    }
}

impl Inner {
    fn reach(&self) -> Result<()> {
        let endpoints = "memory".to_owned();
        let cause = "it was cut off".to_owned();
        match self.away {
            true => Err(RegistryError::Unreachable { endpoints, cause }),
            false => Ok(()),
        }
    }

    fn holds(&self, key: &str, modified: Revision) -> bool {
        let held = self.entries.get(key).map(|(entry, _)| entry.modified);
        held.unwrap_or_default() == modified
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn get(&self, key: &str) -> Result<Option<Entry>> {
        let inner = self.inner.lock();
        inner.reach()?;
        Ok(inner.entries.get(key).map(|(entry, _)| entry.clone()))
    }

    async fn commit(&self, transaction: Transaction) -> Result<Option<Revision>> {
        let mut inner = self.inner.lock();
        inner.reach()?;
        let mut when = transaction.when.iter();
        if !when.all(|(key, modified)| inner.holds(key, *modified)) {
            return Ok(None);
        }
        let mut leases = transaction.puts.iter().filter_map(|put| put.lease);
        if leases.any(|lease| !inner.leases.contains_key(&lease)) {
            let (endpoints, cause) = ("memory".into(), "the lease is over".into());
            return Err(RegistryError::Refused { endpoints, cause });
        }
        inner.revision += 1;
        let modified = Revision(inner.revision);
        for put in transaction.puts {
            let entry = Entry { key: put.key.clone(), value: put.value, modified };
            inner.entries.insert(put.key, (entry, put.lease));
        }
        for key in transaction.deletes {
            inner.entries.remove(&key);
        }
        drop(inner);
        self.changed.send_replace(());
        Ok(Some(modified))
    }

    async fn grant(&self) -> Result<Lease> {
        let mut inner = self.inner.lock();
        inner.reach()?;
        inner.last_lease += 1;
        let id = inner.last_lease;
        let over = CancellationToken::new();
        inner.leases.insert(id, over.clone());
        let held = Held(self.clone(), id);
        Ok(Lease::new(id, over, held))
    }

    async fn revoke(&self, lease: LeaseId) -> Result<()> {
        self.inner.lock().reach()?;
        self.lapse(lease);
        Ok(())
    }

    fn follow(&self) -> mpsc::Receiver<Batch> {
        let (batches, receiver) = mpsc::channel(1);
        let store = self.clone();
        let mut changes = self.changed.subscribe();
        tokio::spawn(async move {
            let mut told = None;
            while batches.send(store.news(&mut told)).await.is_ok() {
                tokio::select! {
                    changed = changes.changed() => if changed.is_err() { return },
                    () = batches.closed() => return,
                }
            }
        });
        receiver
    }
}

struct Held(MemoryStore, LeaseId);

impl Drop for Held {
    fn drop(&mut self) {
        let (store, lease) = (self.0.clone(), self.1);
        let linger = store.inner.lock().linger;
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) if !linger.is_zero() => {
                runtime.spawn(async move {
                    tokio::time::sleep(linger).await;
                    store.lapse(lease);
                });
            }
            _ => store.lapse(lease),
        }
    }
}
