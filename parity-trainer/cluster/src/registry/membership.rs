//! One life of a member: what it has written is kept written.

use std::collections::BTreeMap;
use std::sync::Arc;

use parapet_parameter_server::ShardRef;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::registry::documents::{self, LEADER};
use crate::registry::store::{Backoff, Lease, Revision, Store, Transaction};
use crate::registry::{Member, Registry, RegistryError, Report, Result, ServerInfo, Term, View};

pub const MAX_REPORTS: usize = 4096;

/// Entries that should be in the store, under the member's lease: its own, and its reports.
type Kept = BTreeMap<String, (String, Option<Report>)>;
type CurrentLease = watch::Sender<Option<Arc<Lease>>>;

/// One life of a member. It ends when this is dropped: at once in process and in a served registry,
/// after etcd's lease beyond.
///
/// If the registry was away for so long that the lease has ended, the membership comes back by
/// itself, under the same number and with the same reports; a leadership does not.
#[derive(Debug)]
pub struct Membership {
    registry: Registry,
    member: Member,
    kept: watch::Sender<Kept>,
    lease: CurrentLease,
    keeping: AbortOnDropHandle<()>,
}

impl Membership {
    pub(crate) fn start(
        registry: Registry,
        member: Member,
        value: String,
        lease: Arc<Lease>,
    ) -> Self {
        let key = documents::member_key(member);
        let written = BTreeMap::from([(key.clone(), value.clone())]);
        let kept = watch::Sender::new(Kept::from([(key, (value, None))]));
        let lease = watch::Sender::new(Some(lease));
        let keeper = Keeper {
            store: Arc::clone(registry.store()),
            view: registry.view(),
            kept: kept.clone(),
            lease: lease.clone(),
            written,
        };
        Self {
            registry,
            member,
            kept,
            lease,
            keeping: AbortOnDropHandle::new(tokio::spawn(keeper.run())),
        }
    }

    pub const fn id(&self) -> Member {
        self.member
    }

    pub const fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Tells the leader, now or once the store can be reached; [`MAX_REPORTS`] can stand. Proposals
    /// and losses go once the shard's epoch is raised, suspicions once the server is gone.
    pub fn report(&self, report: Report) -> Result<()> {
        let key = documents::report_key(self.member, &report);
        let value = documents::write("a report", &report)?;
        self.keep(key, (value, Some(report)))
    }

    pub fn retract(&self, report: Report) {
        let key = documents::report_key(self.member, &report);
        let kept = &self.kept;
        kept.send_if_modified(|kept| kept.remove(&key).is_some());
    }

    /// Changes what is known of this server, such as its weight.
    pub fn update(&self, server: &ServerInfo) -> Result<()> {
        let value = documents::write("a server's entry", server)?;
        self.keep(documents::member_key(self.member), (value, None))
    }

    fn keep(&self, key: String, value: (String, Option<Report>)) -> Result<()> {
        let mut is_full = false;
        self.kept.send_if_modified(|kept| {
            // One of them is the member's own.
            is_full = kept.len() > MAX_REPORTS && !kept.contains_key(&key);
            let is_new = !is_full && kept.get(&key) != Some(&value);
            if is_new {
                kept.insert(key, value);
            }
            is_new
        });
        let limit = MAX_REPORTS;
        match is_full {
            true => Err(RegistryError::TooManyReports { limit }),
            false => Ok(()),
        }
    }

    /// Tries to lead: if there is no leader, or instead of a leader of this term.
    pub async fn campaign(&self, instead: Option<Term>) -> Result<Option<Term>> {
        let Some(lease) = self.lease.borrow().as_ref().map(|lease| lease.id()) else {
            return Ok(None);
        };
        let before = instead.map_or(Revision(0), |term| term.0);
        let name = documents::member_name(self.member);
        let transaction = Transaction::default().when(LEADER, before);
        let transaction = transaction.put(LEADER, name, Some(lease));
        let done = self.registry.store().commit(transaction).await?;
        Ok(done.map(Term))
    }

    /// Ends this life at once. Empty a server first ([`Membership::update`] to weight 0, then wait
    /// until the routing table names it no longer), or its shards lose a replica.
    pub async fn leave(&self) -> Result<()> {
        self.keeping.abort();
        if let Some(last) = self.lease.send_replace(None) {
            self.registry.store().revoke(last.id()).await?;
        }
        Ok(())
    }
}

struct Keeper {
    store: Arc<dyn Store>,
    view: watch::Receiver<Arc<View>>,
    kept: watch::Sender<Kept>,
    lease: CurrentLease,
    written: BTreeMap<String, String>,
}

impl Keeper {
    async fn run(mut self) {
        let mut kept = self.kept.subscribe();
        let mut backoff = Backoff::default();
        loop {
            let wanted = kept.borrow_and_update().clone();
            let lease = match self.write(&wanted).await {
                Ok(lease) => lease,
                Err(error) => {
                    tracing::debug!(%error, "the membership could not be written");
                    if !error.is_retryable() {
                        // The lease is over, and the store has said so before the lease itself.
                        self.lease.send_replace(None);
                    }
                    backoff.pause().await;
                    continue;
                }
            };
            backoff.reset();
            tokio::select! {
                changed = kept.changed() => if changed.is_err() { return },
                changed = self.view.changed() => match changed {
                    Ok(()) => self.forget_outdated(),
                    Err(_) => return,
                },
                () = lease.over() => {
                    self.lease.send_replace(None);
                }
            }
        }
    }

    /// Brings the store to what is wanted, under a new lease if the last one is over.
    async fn write(&mut self, wanted: &Kept) -> Result<Arc<Lease>> {
        let current = self.lease.borrow().clone();
        let lease = match current {
            Some(lease) => lease,
            None => {
                let lease = Arc::new(self.store.grant().await?);
                self.written.clear();
                self.lease.send_replace(Some(Arc::clone(&lease)));
                lease
            }
        };
        loop {
            let mut transaction = Transaction::default();
            let entries = wanted.iter();
            let new = entries.filter(|(key, (value, _))| self.written.get(*key) != Some(value));
            for (key, (value, _)) in new.take(Transaction::MAX_CHANGES) {
                transaction = transaction.put(key, value.clone(), Some(lease.id()));
            }
            let room = Transaction::MAX_CHANGES - transaction.puts.len();
            let gone = self.written.keys().filter(|key| !wanted.contains_key(*key));
            transaction.deletes.extend(gone.take(room).cloned());
            if transaction.puts.is_empty() && transaction.deletes.is_empty() {
                return Ok(lease);
            }
            self.store.commit(transaction.clone()).await?;
            let puts = transaction.puts.into_iter();
            self.written.extend(puts.map(|put| (put.key, put.value)));
            for key in &transaction.deletes {
                self.written.remove(key);
            }
        }
    }

    /// Takes back reports that are about what is no more.
    fn forget_outdated(&mut self) {
        let view = Arc::clone(&self.view.borrow_and_update());
        let is_there = |at: ShardRef| {
            let route = view.table.routing.route(at.array, at.range.start);
            // A table that is older than the report may still come.
            route.is_none_or(|route| route.epoch <= at.epoch)
        };
        let stands = |report: &Option<Report>| match *report {
            Some(Report::Suspect(node)) => {
                view.servers.contains_key(&node) || view.table.holds(node)
            }
            Some(Report::Propose(hand_over)) => is_there(hand_over.at),
            Some(Report::Lost(at)) => is_there(at),
            Some(Report::Service(node, _)) => view.servers.contains_key(&node),
            Some(Report::Pace(_) | Report::Steps(..)) | None => true,
        };
        self.kept.send_if_modified(|kept| {
            let before = kept.len();
            kept.retain(|_, (_, report)| stands(report));
            kept.len() < before
        });
    }
}
