//! The registry.

use std::sync::Arc;

use parapet_parameter_server::{ArrayId, Clock, HandOver, LoadPlan, NodeId, Routing, WorkerId};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::registry::documents::{self, JOB, LEADER, NEXT, TABLE, WORKERS};
use crate::registry::store::{Batch, Revision, Store, Transaction};
use crate::registry::view::ViewBuilder;
use crate::registry::{
    ArrayInfo, Member, Membership, RegistryError, Result, ServerInfo, Table, Term, View, Workers,
};

/// Attempts at a change that others may have got ahead of.
const ATTEMPTS: u32 = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Joining {
    Server(ServerInfo),
    /// As a process that executors may be given to; it has no clock of its own.
    Host,
    /// To lead, and nothing else.
    Coordinator,
}

/// Shared state that a cluster agrees on. Clones share one connection and one view.
#[derive(Debug, Clone)]
pub struct Registry {
    store: Arc<dyn Store>,
    view: watch::Receiver<Arc<View>>,
    _following: Arc<AbortOnDropHandle<()>>,
}

impl Registry {
    /// The registry kept in `store`, once all of it has been read.
    pub async fn open(store: Arc<dyn Store>) -> Result<Self> {
        let mut batches = store.follow();
        let mut builder = ViewBuilder::default();
        let mut is_all = false;
        while !is_all {
            let batch = batches.recv().await.ok_or(RegistryError::Closed)?;
            is_all = matches!(batch, Batch::All(_));
            builder.apply(batch);
        }
        let (sender, view) = watch::channel(Arc::new(builder.view.clone()));
        let following = tokio::spawn(async move {
            while let Some(batch) = batches.recv().await {
                builder.apply(batch);
                sender.send_if_modified(|view| {
                    let is_new = **view != builder.view;
                    if is_new {
                        *view = Arc::new(builder.view.clone());
                    }
                    is_new
                });
            }
        });
        Ok(Self { store, view, _following: Arc::new(AbortOnDropHandle::new(following)) })
    }

    /// All that is known. The newest value only: a slow reader misses what was in between.
    pub fn view(&self) -> watch::Receiver<Arc<View>> {
        self.view.clone()
    }

    pub async fn until(&self, is_so: impl Fn(&View) -> bool) -> Result<Arc<View>> {
        let mut views = self.view.clone();
        let view = views.wait_for(|view| is_so(view)).await;
        Ok(Arc::clone(&*view.map_err(|_| RegistryError::Closed)?))
    }

    /// Takes part under a new number, until the membership is dropped or left.
    pub async fn join(&self, joining: Joining) -> Result<Membership> {
        let lease = Arc::new(self.store.grant().await?);
        for _ in 0..ATTEMPTS {
            let (number, transaction) = self.take_numbers(1).await?;
            let member = match &joining {
                Joining::Server(_) => Member::Server(NodeId(number)),
                Joining::Host => Member::Worker(WorkerId(number)),
                Joining::Coordinator => Member::Coordinator(number),
            };
            let value = match &joining {
                Joining::Server(info) => documents::write("a server's entry", info)?,
                _ => "{}".to_owned(),
            };
            let key = documents::member_key(member);
            let transaction = transaction.put(&key, value.clone(), Some(lease.id()));
            if self.store.commit(transaction).await?.is_some() {
                return Ok(Membership::start(self.clone(), member, value, lease));
            }
        }
        Err(RegistryError::Contended("the number of the next member"))
    }

    /// The first of `count` numbers that no member has, with the change that takes them.
    async fn take_numbers(&self, count: u64) -> Result<(u64, Transaction)> {
        let next = self.store.get(NEXT).await?;
        let number: u64 = next.as_ref().map_or(Ok(1), documents::read)?;
        let modified = next.map_or(Revision(0), |entry| entry.modified);
        let after = number.saturating_add(count).to_string();
        let transaction = Transaction::default().when(NEXT, modified);
        Ok((number, transaction.put(NEXT, after, None)))
    }

    /// Makes an array known; its shards are born when the leader sees it. The same one again is
    /// fine, another one of this number is [`RegistryError::OtherArray`].
    pub async fn define(&self, array: ArrayId, info: &ArrayInfo) -> Result<()> {
        let key = documents::array_key(array);
        let value = documents::write("an array's entry", info)?;
        let transaction = Transaction::default().when(&key, Revision(0));
        let transaction = transaction.put(&key, value, None);
        if self.store.commit(transaction).await?.is_some() {
            return Ok(());
        }
        let held = self.store.get(&key).await?;
        let held: Option<ArrayInfo> = held.as_ref().map(documents::read).transpose()?;
        match held.as_ref() == Some(info) {
            true => Ok(()),
            false => Err(RegistryError::OtherArray(array)),
        }
    }

    /// Gives an array up, with what its shards held. Its number can not be used again.
    pub async fn give_up(&self, array: ArrayId) -> Result<()> {
        let key = documents::array_key(array);
        let Some(held) = self.store.get(&key).await? else {
            return Ok(());
        };
        let mut info: ArrayInfo = documents::read(&held)?;
        info.shards.clear();
        let value = documents::write("an array's entry", &info)?;
        let transaction = Transaction::default().put(&key, value, None);
        self.store.commit(transaction).await.map(|_| ())
    }

    /// Lists `count` executors under new numbers, as having finished `clock`.
    pub async fn add_executors(&self, count: u64, clock: Clock) -> Result<Vec<WorkerId>> {
        for _ in 0..ATTEMPTS {
            let (first, transaction) = self.take_numbers(count).await?;
            let new: Vec<_> = (first..first.saturating_add(count)).map(WorkerId).collect();
            let mut workers = self.workers().await?;
            let listed = new.iter().map(|&executor| (executor, clock));
            workers.workers.extend(listed);
            let transaction = put_workers(transaction, workers)?;
            if self.store.commit(transaction).await?.is_some() {
                return Ok(new);
            }
        }
        Err(RegistryError::Contended("the number of the next member"))
    }

    /// Sets what is to be worked on; `None`: nothing any longer.
    pub async fn set_job(&self, job: Option<&str>) -> Result<()> {
        let mut transaction = Transaction::default();
        match job {
            Some(job) => {
                transaction = transaction.put(JOB, documents::write("the job", &job)?, None);
            }
            None => transaction.deletes.push(JOB.into()),
        }
        self.store.commit(transaction).await.map(|_| ())
    }

    /// Replaces the table that the change `base` wrote while `term` lasts;
    /// [`RegistryError::Conflict`] if it has changed, [`RegistryError::Deposed`] if another leads.
    pub async fn change(
        &self,
        term: Term,
        base: Revision,
        routing: &Routing,
        hand_overs: &[HandOver],
        plan: &LoadPlan,
    ) -> Result<Revision> {
        let (routing, hand_overs) = (routing.clone(), hand_overs.to_vec());
        let table = Table { routing, hand_overs, plan: plan.clone(), revision: base };
        let value = documents::write("the routing table", &table)?;
        let transaction = Transaction::default().when(LEADER, term.0);
        let transaction = transaction.when(TABLE, base).put(TABLE, value, None);
        if let Some(revision) = self.store.commit(transaction).await? {
            return Ok(revision);
        }
        let leader = self.store.get(LEADER).await?;
        match leader.is_some_and(|entry| entry.modified == term.0) {
            true => Err(RegistryError::Conflict),
            false => Err(RegistryError::Deposed),
        }
    }

    /// Takes executors off the list, so that they are waited for no longer.
    pub async fn drop_executors(&self, gone: &[WorkerId]) -> Result<()> {
        for _ in 0..ATTEMPTS {
            let mut workers = self.workers().await?;
            let before = workers.workers.len();
            workers.workers.retain(|(worker, _)| !gone.contains(worker));
            if workers.workers.len() == before {
                return Ok(());
            }
            let transaction = put_workers(Transaction::default(), workers)?;
            if self.store.commit(transaction).await?.is_some() {
                return Ok(());
            }
        }
        Err(RegistryError::Contended("the list of executors"))
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    async fn workers(&self) -> Result<Workers> {
        let entry = self.store.get(WORKERS).await?;
        let workers = entry.as_ref().map(Workers::read).transpose()?;
        Ok(workers.unwrap_or_default())
    }
}

/// Writes the next version of the list on the condition that it is as it was read.
fn put_workers(transaction: Transaction, mut workers: Workers) -> Result<Transaction> {
    workers.version += 1;
    let value = documents::write("the list of workers", &workers)?;
    let transaction = transaction.when(WORKERS, workers.revision);
    Ok(transaction.put(WORKERS, value, None))
}
