//! A store within this process: nothing to start, no timers, so that tests with paused time drive
//! it, too.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::registry::RegistryError;
use crate::registry::store::{
    Batch, CommitOutcome, Compare, Entry, Lease, LeaseId, Revision, Store, Transaction,
};

#[derive(Debug, Clone)]
struct Held {
    entry: Entry,
    lease: Option<LeaseId>,
}

#[derive(Debug, Default)]
struct Inner {
    revision: u64,
    entries: BTreeMap<String, Held>,
    /// The holder of one of them sees its end when its guard is dropped.
    leases: BTreeMap<LeaseId, DropGuard>,
    last_lease: i64,
    away: bool,
    /// For how long a lease outlives its holder.
    linger: Duration,
}

/// Notice to followers that there is something new.
type News = watch::Sender<u64>;

/// A store within this process. Clones share it.
#[derive(Clone, Default)]
pub struct MemoryStore {
    inner: Arc<Mutex<Inner>>,
    news: Arc<News>,
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryStore at revision {}", self.inner.lock().revision)
    }
}

impl MemoryStore {
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty one whose leases end only so long after their holders are dropped, as those of
    /// other processes do: for tests.
    pub fn lingering(linger: Duration) -> Self {
        let store = Self::default();
        store.inner.lock().linger = linger;
        store
    }

    /// Cuts the store off from all processes, or ends that: for tests.
    pub fn set_reachable(&self, reachable: bool) {
        self.inner.lock().away = !reachable;
        self.news.send_modify(|news| *news += 1);
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
        inner.entries.retain(|_, held| held.lease != Some(lease));
        inner.revision += 1;
        drop(inner);
        drop(over);
        self.news.send_modify(|news| *news += 1);
    }

    fn reach(inner: &Inner) -> Result<(), RegistryError> {
        let away = || RegistryError::Unreachable {
            endpoints: "memory".into(),
            cause: "it was cut off".into(),
        };
        if inner.away { Err(away()) } else { Ok(()) }
    }

    fn news(&self) -> Batch {
        let inner = self.inner.lock();
        if inner.away {
            return Batch::Away;
        }
        Batch::All(
            inner
                .entries
                .values()
                .map(|held| held.entry.clone())
                .collect(),
        )
    }
}

impl Inner {
    fn holds(&self, compare: &Compare) -> bool {
        let modified = self
            .entries
            .get(&compare.key)
            .map_or(Revision(0), |held| held.entry.modified);
        modified == compare.modified
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn get(&self, key: &str) -> Result<Option<Entry>, RegistryError> {
        let inner = self.inner.lock();
        Self::reach(&inner)?;
        Ok(inner.entries.get(key).map(|held| held.entry.clone()))
    }

    async fn commit(&self, transaction: Transaction) -> Result<CommitOutcome, RegistryError> {
        let mut inner = self.inner.lock();
        Self::reach(&inner)?;
        if !transaction.when.iter().all(|compare| inner.holds(compare)) {
            return Ok(CommitOutcome::Failed);
        }
        let mut leases = transaction.puts.iter().filter_map(|put| put.lease);
        if leases.any(|lease| !inner.leases.contains_key(&lease)) {
            let cause = "the lease is over".into();
            return Err(RegistryError::Refused {
                endpoints: "memory".into(),
                cause,
            });
        }
        inner.revision += 1;
        let modified = Revision(inner.revision);
        for put in transaction.puts {
            let entry = Entry {
                key: put.key.clone(),
                value: put.value,
                modified,
            };
            inner.entries.insert(
                put.key,
                Held {
                    entry,
                    lease: put.lease,
                },
            );
        }
        for key in transaction.deletes {
            inner.entries.remove(&key);
        }
        drop(inner);
        self.news.send_modify(|news| *news += 1);
        Ok(CommitOutcome::Done(modified))
    }

    async fn grant(&self) -> Result<Arc<dyn Lease>, RegistryError> {
        let mut inner = self.inner.lock();
        Self::reach(&inner)?;
        inner.last_lease += 1;
        let id = LeaseId(inner.last_lease);
        let lapsed = CancellationToken::new();
        inner.leases.insert(id, lapsed.clone().drop_guard());
        drop(inner);
        Ok(Arc::new(MemoryLease {
            store: self.clone(),
            id,
            lapsed,
        }))
    }

    fn follow(&self) -> mpsc::Receiver<Batch> {
        let (batches, receiver) = mpsc::channel(1);
        let store = self.clone();
        let mut news = self.news.subscribe();
        news.mark_changed();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    changed = news.changed() => if changed.is_err() { return },
                    () = batches.closed() => return,
                }
                let batch = store.news();
                if batches.send(batch).await.is_err() {
                    return;
                }
            }
        });
        receiver
    }
}

#[derive(Debug)]
struct MemoryLease {
    store: MemoryStore,
    id: LeaseId,
    lapsed: CancellationToken,
}

#[async_trait]
impl Lease for MemoryLease {
    fn id(&self) -> LeaseId {
        self.id
    }

    async fn lapsed(&self) {
        self.lapsed.cancelled().await;
    }

    async fn revoke(&self) -> Result<(), RegistryError> {
        MemoryStore::reach(&self.store.inner.lock())?;
        self.store.lapse(self.id);
        Ok(())
    }
}

impl Drop for MemoryLease {
    fn drop(&mut self) {
        let (store, id) = (self.store.clone(), self.id);
        let linger = store.inner.lock().linger;
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) if !linger.is_zero() => {
                runtime.spawn(async move {
                    tokio::time::sleep(linger).await;
                    store.lapse(id);
                });
            }
            _ => store.lapse(id),
        }
    }
}
