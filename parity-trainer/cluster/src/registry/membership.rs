//! One life of a member: what it has written is kept written.

use std::collections::BTreeMap;
use std::sync::Arc;

use parapet_parameter_server::{ShardRef, WorkerId};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::registry::backoff::Backoff;
use crate::registry::documents;
use crate::registry::store::{CommitOutcome, Compare, Lease, Put, Revision, Store, Transaction};
use crate::registry::{Member, Registry, RegistryError, Report, ServerInfo, Term, View};

/// Reports of a member that can stand at once.
pub const MAX_REPORTS: usize = 4096;

/// Entries that should be in the store, under the member's lease.
type Kept = BTreeMap<String, Vec<u8>>;
type CurrentLease = watch::Sender<Option<Arc<dyn Lease>>>;

/// One life of a member. It ends when this is dropped: at once in process, after
/// etcd's lease beyond.
///
/// If the registry was away for so long that the lease has ended, the membership comes back by
/// itself, under the same number and with the same reports; a leadership does not.
#[derive(Debug)]
pub struct Membership {
    registry: Registry,
    member: Member,
    kept: Arc<watch::Sender<Kept>>,
    reports: Arc<watch::Sender<BTreeMap<String, Report>>>,
    lease: Arc<CurrentLease>,
    keeping: Mutex<Option<AbortOnDropHandle<()>>>,
}

impl Membership {
    pub(crate) fn start(
        registry: Registry,
        member: Member,
        value: Vec<u8>,
        lease: Arc<dyn Lease>,
    ) -> Self {
        let first = Kept::from([(documents::member_key(member), value)]);
        let kept = Arc::new(watch::Sender::new(first.clone()));
        let reports = Arc::new(watch::Sender::new(BTreeMap::new()));
        let current = Arc::new(watch::Sender::new(Some(lease)));
        let keeper = Keeper {
            store: Arc::clone(registry.store()),
            view: registry.view(),
            kept: Arc::clone(&kept),
            reports: Arc::clone(&reports),
            lease: Arc::clone(&current),
            written: first,
        };
        let task = AbortOnDropHandle::new(tokio::spawn(keeper.run()));
        Self {
            registry,
            member,
            kept,
            reports,
            lease: current,
            keeping: Mutex::new(Some(task)),
        }
    }

    pub const fn id(&self) -> Member {
        self.member
    }

    pub const fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Tells the leader, now or as soon as the store can be reached. Proposals and losses go by
    /// themselves once the shard's epoch is raised, suspicions once the server is gone.
    ///
    /// # Errors
    /// [`RegistryError::TooManyReports`] if [`MAX_REPORTS`] stand.
    pub fn report(&self, report: Report) -> Result<(), RegistryError> {
        let key = documents::report_key(self.member, &report);
        let value = documents::write_report(&report)?;
        let mut full = false;
        self.reports.send_modify(|reports| {
            full = reports.len() >= MAX_REPORTS && !reports.contains_key(&key);
            if !full {
                reports.insert(key.clone(), report);
            }
        });
        if full {
            return Err(RegistryError::TooManyReports { limit: MAX_REPORTS });
        }
        self.kept
            .send_if_modified(|kept| kept.insert(key, value.clone()).as_ref() != Some(&value));
        Ok(())
    }

    /// It is no longer so.
    pub fn retract(&self, report: Report) {
        let key = documents::report_key(self.member, &report);
        self.reports.send_modify(|reports| {
            reports.remove(&key);
        });
        self.kept
            .send_if_modified(|kept| kept.remove(&key).is_some());
    }

    /// Changes what is known of this server, such as its weight.
    ///
    /// # Errors
    /// None that a later call would not meet again: the entry is too large.
    pub fn update(&self, server: &ServerInfo) -> Result<(), RegistryError> {
        let key = documents::member_key(self.member);
        let value = documents::write_server(server)?;
        self.kept
            .send_if_modified(|kept| kept.insert(key, value.clone()).as_ref() != Some(&value));
        Ok(())
    }

    /// Tries to lead: if there is no leader, or instead of a leader of this term, which
    /// is over then.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn campaign(&self, instead: Option<Term>) -> Result<Option<Term>, RegistryError> {
        let Some(lease) = self.lease.borrow().as_ref().map(|lease| lease.id()) else {
            return Ok(None);
        };
        let before = instead.map_or(Revision(0), |term| term.0);
        let leader = Put {
            key: documents::LEADER.into(),
            value: documents::write_leader(self.member),
            lease: Some(lease),
        };
        let transaction = Transaction {
            when: vec![Compare::new(documents::LEADER, before)],
            puts: vec![leader],
            deletes: Vec::new(),
        };
        Ok(match self.registry.store().commit(transaction).await? {
            CommitOutcome::Done(revision) => Some(Term(revision)),
            CommitOutcome::Failed => None,
        })
    }

    /// Ends this life at once. Empty a server first ([`Membership::update`] to weight 0, then wait
    /// until the routing table names it no longer), or its shards lose a replica.
    ///
    /// # Errors
    /// If the store does not answer; the life ends with its lease then.
    pub async fn leave(&self) -> Result<(), RegistryError> {
        drop(self.keeping.lock().take());
        if let Member::Worker(worker) = self.member {
            take_off(&self.registry, worker).await?;
        }
        let last = self.lease.send_replace(None);
        match last {
            Some(last) => last.revoke().await,
            None => Ok(()),
        }
    }
}

async fn take_off(registry: &Registry, worker: WorkerId) -> Result<(), RegistryError> {
    registry.take_off(&[worker], &[]).await
}

/// Writes what should be there.
struct Keeper {
    store: Arc<dyn Store>,
    view: watch::Receiver<Arc<View>>,
    kept: Arc<watch::Sender<Kept>>,
    reports: Arc<watch::Sender<BTreeMap<String, Report>>>,
    lease: Arc<CurrentLease>,
    written: Kept,
}

impl Keeper {
    async fn run(mut self) {
        let mut kept = self.kept.subscribe();
        let mut backoff = Backoff::default();
        loop {
            let current = self.lease.borrow().clone();
            let lease = match current {
                Some(lease) => lease,
                None => match self.store.grant().await {
                    Ok(lease) => {
                        self.written.clear();
                        self.lease.send_replace(Some(Arc::clone(&lease)));
                        lease
                    }
                    Err(error) => {
                        tracing::debug!(%error, "no lease yet");
                        backoff.pause().await;
                        continue;
                    }
                },
            };
            let wanted = kept.borrow_and_update().clone();
            match self.write(&wanted, lease.as_ref()).await {
                Ok(()) => backoff.reset(),
                Err(error) => {
                    tracing::debug!(%error, "the membership could not be written");
                    if !error.is_retryable() {
                        // The lease is over, and the store has said so before the lease itself.
                        self.lease.send_replace(None);
                    }
                    backoff.pause().await;
                    continue;
                }
            }
            tokio::select! {
                changed = kept.changed() => if changed.is_err() { return },
                changed = self.view.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.forget_outdated();
                }
                () = lease.lapsed() => {
                    self.lease.send_replace(None);
                }
            }
        }
    }

    /// Brings the store from what was written to what is wanted.
    async fn write(&mut self, wanted: &Kept, lease: &dyn Lease) -> Result<(), RegistryError> {
        loop {
            let mut room = Transaction::MAX_CHANGES;
            let mut transaction = Transaction::default();
            for (key, value) in wanted
                .iter()
                .filter(|(key, value)| self.written.get(*key) != Some(*value))
            {
                if room > 0 {
                    room -= 1;
                    let (key, value) = (key.clone(), value.clone());
                    transaction.puts.push(Put {
                        key,
                        value,
                        lease: Some(lease.id()),
                    });
                }
            }
            let gone = self.written.keys().filter(|key| !wanted.contains_key(*key));
            transaction.deletes.extend(gone.take(room).cloned());
            if transaction.puts.is_empty() && transaction.deletes.is_empty() {
                return Ok(());
            }
            self.store.commit(transaction.clone()).await?;
            for put in transaction.puts {
                self.written.insert(put.key, put.value);
            }
            for key in transaction.deletes {
                self.written.remove(&key);
            }
        }
    }

    /// Takes back reports that are about what is no more.
    fn forget_outdated(&mut self) {
        let view = Arc::clone(&self.view.borrow_and_update());
        let routing = &view.table.routing;
        let is_there = |at: ShardRef| {
            let route = routing.route(at.array, at.range.start);
            // A table that is older than the report may still come.
            route.is_none_or(|route| route.epoch <= at.epoch)
        };
        let still = |report: &Report| match *report {
            Report::Suspect(node) => {
                view.servers.contains_key(&node)
                    || routing
                        .routes()
                        .iter()
                        .any(|route| route.chain.contains(&node))
            }
            Report::Propose(hand_over) => is_there(hand_over.at),
            Report::Lost(at) => is_there(at),
        };
        let outdated: Vec<String> = {
            let reports = self.reports.borrow();
            reports
                .iter()
                .filter(|(_, report)| !still(report))
                .map(|(key, _)| key.clone())
                .collect()
        };
        if outdated.is_empty() {
            return;
        }
        self.reports
            .send_modify(|reports| reports.retain(|key, _| !outdated.contains(key)));
        self.kept
            .send_modify(|kept| kept.retain(|key, _| !outdated.contains(key)));
    }
}
