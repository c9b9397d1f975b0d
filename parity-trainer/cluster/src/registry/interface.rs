//! The registry.

use std::sync::Arc;

use parapet_parameter_server::{ArrayId, Clock, HandOver, NodeId, Routing, WorkerId};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::registry::documents;
use crate::registry::follow::{Feeds, follow};
use crate::registry::store::{CommitOutcome, Compare, Put, Revision, Store, Transaction};
use crate::registry::{
    ArrayInfo, Member, Membership, MemoryStore, RegistryError, ServerInfo, Term, View, Workers,
};

/// Attempts at a change that others may have got ahead of.
const ATTEMPTS: u32 = 64;

/// As what to take part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Joining {
    Server(ServerInfo),
    /// As a worker that counts as having finished this clock: that of the most advanced
    /// worker, or later.
    Worker(Clock),
    /// As a process that executors may be given to; it has no clock of its own.
    Host,
    /// To lead, and nothing else.
    Coordinator,
}

/// Shared state that a cluster agrees on. Clones share one connection and one view.
#[derive(Debug, Clone)]
pub struct Registry {
    store: Arc<dyn Store>,
    feeds: Feeds,
    _following: Arc<AbortOnDropHandle<()>>,
}

impl Registry {
    /// The registry kept in `store`, once all of it has been read.
    ///
    /// # Errors
    /// [`RegistryError::Closed`] if the store ends before.
    pub async fn open(store: Arc<dyn Store>) -> Result<Self, RegistryError> {
        let (feeds, task) = follow(store.follow()).await?;
        Ok(Self {
            store,
            feeds,
            _following: Arc::new(task),
        })
    }

    /// A new registry within this process.
    ///
    /// # Errors
    /// None but [`RegistryError::Closed`].
    pub async fn in_process() -> Result<Self, RegistryError> {
        Self::open(Arc::new(MemoryStore::new())).await
    }

    /// All that is known. The newest value only: a slow reader misses what was in between.
    pub fn view(&self) -> watch::Receiver<Arc<View>> {
        self.feeds.view.clone()
    }

    /// The routing table alone, for workers; changed by its version.
    pub fn routing(&self) -> watch::Receiver<Routing> {
        self.feeds.routing.clone()
    }

    /// Takes part under a new number, until the membership is dropped or left.
    ///
    /// # Errors
    /// If the store does not answer, or the list of workers is too long.
    pub async fn join(&self, joining: Joining) -> Result<Membership, RegistryError> {
        for _ in 0..ATTEMPTS {
            let next = self.store.get(documents::NEXT).await?;
            let number = next
                .as_ref()
                .map_or(Ok(1), |e| documents::read_number(documents::NEXT, &e.value))?;
            let lease = self.store.grant().await?;
            let (member, value) = match &joining {
                Joining::Server(info) => (
                    Member::Server(NodeId(number)),
                    documents::write_server(info)?,
                ),
                Joining::Worker(_) | Joining::Host => {
                    (Member::Worker(WorkerId(number)), b"{}".to_vec())
                }
                Joining::Coordinator => (Member::Coordinator(number), b"{}".to_vec()),
            };
            let entry = Put {
                key: documents::member_key(member),
                value: value.clone(),
                lease: Some(lease.id()),
            };
            let after = (number + 1).to_string().into_bytes();
            let mut transaction = Transaction {
                when: vec![Compare::new(
                    documents::NEXT,
                    next.map_or(Revision(0), |e| e.modified),
                )],
                puts: vec![
                    Put {
                        key: documents::NEXT.into(),
                        value: after,
                        lease: None,
                    },
                    entry,
                ],
                deletes: Vec::new(),
            };
            if let Joining::Worker(clock) = joining {
                let mut workers = self.workers().await?;
                workers.workers.push((WorkerId(number), clock));
                self.put_workers(workers, &mut transaction)?;
            }
            if let CommitOutcome::Done(_) = self.store.commit(transaction).await? {
                return Ok(Membership::start(self.clone(), member, value, lease));
            }
        }
        Err(RegistryError::Contended {
            what: "the number of the next member",
            attempts: ATTEMPTS,
        })
    }

    /// Makes an array known; its shards are born when the leader sees it. Nothing happens if it
    /// is there already.
    ///
    /// # Errors
    /// [`RegistryError::OtherArray`] if there is another one of this number.
    pub async fn define(&self, array: ArrayId, info: &ArrayInfo) -> Result<(), RegistryError> {
        let key = documents::array_key(array);
        let value = documents::write_array(info)?;
        let transaction = Transaction {
            when: vec![Compare::new(&key, Revision(0))],
            puts: vec![Put {
                key: key.clone(),
                value,
                lease: None,
            }],
            deletes: Vec::new(),
        };
        if let CommitOutcome::Done(_) = self.store.commit(transaction).await? {
            return Ok(());
        }
        let held = self.store.get(&key).await?;
        let held = held
            .map(|entry| documents::read_array(&key, &entry.value))
            .transpose()?;
        if held.as_ref() == Some(info) {
            Ok(())
        } else {
            Err(RegistryError::OtherArray { array })
        }
    }

    /// Gives an array up: the leader takes its shards out of the table, and what they held is
    /// forgotten. Its number can not be used again.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn give_up(&self, array: ArrayId) -> Result<(), RegistryError> {
        let key = documents::array_key(array);
        let Some(held) = self.store.get(&key).await? else {
            return Ok(());
        };
        let info = ArrayInfo {
            shards: 0,
            ..documents::read_array(&key, &held.value)?
        };
        let value = documents::write_array(&info)?;
        let puts = vec![Put {
            key,
            value,
            lease: None,
        }];
        self.store
            .commit(Transaction {
                puts,
                ..Transaction::default()
            })
            .await
            .map(|_| ())
    }

    /// Puts `count` executors under new numbers on the list of workers, as having finished `clock`.
    ///
    /// # Errors
    /// If the store does not answer, or the list of workers is too long.
    pub async fn add_executors(
        &self,
        count: u64,
        clock: Clock,
    ) -> Result<Vec<WorkerId>, RegistryError> {
        for _ in 0..ATTEMPTS {
            let next = self.store.get(documents::NEXT).await?;
            let number = next
                .as_ref()
                .map_or(Ok(1), |e| documents::read_number(documents::NEXT, &e.value))?;
            let new: Vec<WorkerId> = (number..number.saturating_add(count))
                .map(WorkerId)
                .collect();
            let after = number.saturating_add(count).to_string().into_bytes();
            let mut transaction = Transaction {
                when: vec![Compare::new(
                    documents::NEXT,
                    next.map_or(Revision(0), |e| e.modified),
                )],
                puts: vec![Put {
                    key: documents::NEXT.into(),
                    value: after,
                    lease: None,
                }],
                deletes: Vec::new(),
            };
            let mut workers = self.workers().await?;
            workers
                .workers
                .extend(new.iter().map(|&executor| (executor, clock)));
            workers.executors.extend(&new);
            self.put_workers(workers, &mut transaction)?;
            if let CommitOutcome::Done(_) = self.store.commit(transaction).await? {
                return Ok(new);
            }
        }
        Err(RegistryError::Contended {
            what: "the number of the next member",
            attempts: ATTEMPTS,
        })
    }

    /// Takes executors off the list: they are waited for no longer.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn remove_executors(&self, executors: &[WorkerId]) -> Result<(), RegistryError> {
        self.take_off(executors, &[]).await
    }

    /// Says what is to be worked on; `None`: nothing any longer.
    ///
    /// # Errors
    /// If the store does not answer, or it is too long.
    pub async fn set_job(&self, job: Option<&str>) -> Result<(), RegistryError> {
        let mut transaction = Transaction::default();
        match job {
            Some(job) => {
                let value = documents::write_job(job)?;
                transaction.puts.push(Put {
                    key: documents::JOB.into(),
                    value,
                    lease: None,
                });
            }
            None => transaction.deletes.push(documents::JOB.into()),
        }
        self.store.commit(transaction).await.map(|_| ())
    }

    /// Replaces the table that was written by the change `base`, if `term` still
    /// lasts: one transaction.
    ///
    /// # Errors
    /// [`RegistryError::Conflict`] if the table has changed, [`RegistryError::Deposed`] if
    /// another member leads.
    pub async fn change(
        &self,
        term: Term,
        base: Revision,
        routing: &Routing,
        hand_overs: &[HandOver],
    ) -> Result<Revision, RegistryError> {
        let value = documents::write_table(routing, hand_overs)?;
        let transaction = Transaction {
            when: vec![
                Compare::new(documents::LEADER, term.0),
                Compare::new(documents::TABLE, base),
            ],
            puts: vec![Put {
                key: documents::TABLE.into(),
                value,
                lease: None,
            }],
            deletes: Vec::new(),
        };
        match self.store.commit(transaction).await? {
            CommitOutcome::Done(revision) => Ok(revision),
            CommitOutcome::Failed => Err(self.why_failed(term).await?),
        }
    }

    /// Takes workers off the list, if `term` still lasts: they are waited for no longer.
    ///
    /// # Errors
    /// [`RegistryError::Deposed`] if another member leads.
    pub async fn drop_workers(&self, term: Term, gone: &[WorkerId]) -> Result<(), RegistryError> {
        let lasts = [Compare::new(documents::LEADER, term.0)];
        match self.take_off(gone, &lasts).await {
            Err(RegistryError::Conflict) => Err(self.why_failed(term).await?),
            other => other,
        }
    }

    /// Takes workers off the list under these conditions; `Conflict` if one does not hold.
    pub(crate) async fn take_off(
        &self,
        gone: &[WorkerId],
        lasts: &[Compare],
    ) -> Result<(), RegistryError> {
        for _ in 0..ATTEMPTS {
            let mut workers = self.workers().await?;
            let before = workers.workers.len();
            workers.workers.retain(|(worker, _)| !gone.contains(worker));
            workers.executors.retain(|worker| !gone.contains(worker));
            if workers.workers.len() == before {
                return Ok(());
            }
            let base = workers.revision;
            let mut transaction = Transaction {
                when: lasts.to_vec(),
                ..Transaction::default()
            };
            self.put_workers(workers, &mut transaction)?;
            if let CommitOutcome::Done(_) = self.store.commit(transaction).await? {
                return Ok(());
            }
            if self.workers().await?.revision == base {
                return Err(RegistryError::Conflict);
            }
        }
        Err(RegistryError::Contended {
            what: "the list of workers",
            attempts: ATTEMPTS,
        })
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    async fn why_failed(&self, term: Term) -> Result<RegistryError, RegistryError> {
        let leader = self.store.get(documents::LEADER).await?;
        let lasts = leader.is_some_and(|entry| entry.modified == term.0);
        Ok(if lasts {
            RegistryError::Conflict
        } else {
            RegistryError::Deposed
        })
    }

    pub(crate) async fn workers(&self) -> Result<Workers, RegistryError> {
        let Some(entry) = self.store.get(documents::WORKERS).await? else {
            return Ok(Workers::default());
        };
        Ok(Workers {
            revision: entry.modified,
            ..documents::read_workers(&entry.key, &entry.value)?
        })
    }

    /// Writes the next version of the list on the condition that it is as it was read.
    fn put_workers(
        &self,
        workers: Workers,
        transaction: &mut Transaction,
    ) -> Result<(), RegistryError> {
        transaction
            .when
            .push(Compare::new(documents::WORKERS, workers.revision));
        let next = Workers {
            version: workers.version + 1,
            ..workers
        };
        let value = documents::write_workers(&next)?;
        transaction.puts.push(Put {
            key: documents::WORKERS.into(),
            value,
            lease: None,
        });
        Ok(())
    }
}
