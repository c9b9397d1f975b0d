//! A store in etcd (v3 protocol; 3.4 and later).
//!
//! All keys of a cluster begin with `/parapet/CLUSTER/`. A lease is granted for whole seconds, and
//! for at least one and a half of etcd's election timeouts: asked for one second, a single etcd of
//! Debian grants two and takes keys away after 2.0 to 2.5 s (measured). So leases say who has gone;
//! who has died is suspected on the data plane, within milliseconds.

mod members;

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{
    Client, Compare, CompareOp, EventType, GetOptions, KeyValue, PutOptions, ResponseHeader, Txn,
    TxnOp, WatchOptions, WatchResponse, WatchStream,
};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::AbortOnDropHandle;

use crate::registry::store::{
    Backoff, Batch, Entry, Lease, LeaseId, Put, Revision, Source, Store, Transaction,
    keep_following, send,
};
use crate::registry::{RegistryError, Result, documents};
use members::{Members, explain};

/// Seconds for which etcd is asked to keep a member that it does not hear from.
const LEASE: i64 = 1;

/// A store in etcd. Clones share its connections.
#[derive(Clone)]
pub struct EtcdStore {
    members: Arc<Members>,
    prefix: String,
}

impl fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EtcdStore at {}", self.members.endpoints)
    }
}

impl EtcdStore {
    /// Connects to the members at these endpoints (`HOST:PORT`), and makes sure that one answers.
    pub async fn connect(endpoints: &[String], cluster: &str) -> Result<Self> {
        let prefix = format!("/parapet/{cluster}/");
        let probed = format!("{prefix}{}", documents::NEXT);
        let members = Arc::new(Members::new(endpoints, probed).await?);
        let store = Self { members, prefix };
        store.get(documents::NEXT).await?;
        Ok(store)
    }

    fn key(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    fn short(&self, key: &[u8]) -> String {
        let key = String::from_utf8_lossy(key);
        key.strip_prefix(&self.prefix).unwrap_or(&key).to_owned()
    }

    fn entry(&self, held: &KeyValue) -> Entry {
        Entry {
            key: self.short(held.key()),
            value: String::from_utf8_lossy(held.value()).into_owned(),
            modified: revision(held.mod_revision()),
        }
    }

    async fn read_all(&self) -> Result<(Batch, i64)> {
        let ask = |mut client: Client| {
            let options = GetOptions::new().with_prefix();
            async move { client.get(self.prefix.as_str(), Some(options)).await }
        };
        let found = self.members.ask(ask).await?;
        let entries = found.kvs().iter().map(|held| self.entry(held)).collect();
        let revision = found.header().map_or(0, ResponseHeader::revision);
        Ok((Batch::All(entries), revision))
    }

    async fn watch(&self, from: i64) -> Result<WatchStream> {
        let ask = |mut client: Client| {
            let options = WatchOptions::new().with_prefix().with_start_revision(from);
            async move { client.watch(self.prefix.as_str(), Some(options)).await }
        };
        self.members.ask(ask).await
    }

    /// The next response of the member at `place`; `None` if another one is asked from now on.
    async fn next(&self, place: usize, stream: &mut WatchStream) -> Result<Option<WatchResponse>> {
        let error = tokio::select! {
            response = stream.message() => match response {
                Ok(Some(response)) => return Ok(Some(response)),
                Ok(None) => self.members.unreachable("the watch ended"),
                Err(error) => explain(&self.members.endpoints, &error),
            },
            () = self.members.left(place) => self.members.unreachable("no member answers"),
        };
        match self.members.moves_on(place).await {
            true => Ok(None),
            false => Err(error),
        }
    }

    /// Returns the changes of a response. The header's revision is not taken for seen: etcd before
    /// 3.4.25 may tell of progress before it tells of the changes that belong to it.
    fn changes(&self, response: &WatchResponse, seen: &mut i64) -> Batch {
        let mut changes = Vec::with_capacity(response.events().len());
        for event in response.events() {
            let Some(held) = event.kv() else { continue };
            *seen = (*seen).max(held.mod_revision());
            changes.push(match event.event_type() {
                EventType::Put => Ok(self.entry(held)),
                EventType::Delete => Err(self.short(held.key())),
            });
        }
        Batch::Changes(changes)
    }

    /// Renews a lease until etcd, which alone knows, says that it is over; then drops `_over`.
    async fn renew(self, lease: LeaseId, every: Duration, _over: DropGuard) {
        let mut backoff = Backoff::default();
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let ask = |mut client: Client| async move { client.lease_keep_alive(lease).await };
            match self.members.ask(ask).await {
                Ok(_) => backoff.reset(),
                Err(RegistryError::Refused { .. }) => return,
                Err(error) => {
                    tracing::debug!(%error, lease, "a lease could not be renewed");
                    backoff.pause().await;
                }
            }
        }
    }
}

fn revision(number: i64) -> Revision {
    Revision(u64::try_from(number).unwrap_or(0))
}

#[async_trait]
impl Store for EtcdStore {
    async fn get(&self, key: &str) -> Result<Option<Entry>> {
        let key = &self.key(key);
        let ask = |mut client: Client| async move { client.get(key.as_str(), None).await };
        let found = self.members.ask(ask).await?;
        Ok(found.kvs().first().map(|held| self.entry(held)))
    }

    async fn commit(&self, transaction: Transaction) -> Result<Option<Revision>> {
        let compare = |(key, modified): (String, Revision)| {
            let modified = i64::try_from(modified.0).unwrap_or(i64::MAX);
            Compare::mod_revision(self.key(&key), CompareOp::Equal, modified)
        };
        let put = |Put { key, value, lease }: Put| {
            let options = lease.map(|lease| PutOptions::new().with_lease(lease));
            TxnOp::put(self.key(&key), value, options)
        };
        let delete = |key: String| TxnOp::delete(self.key(&key), None);
        let mut changes: Vec<TxnOp> = transaction.puts.into_iter().map(put).collect();
        changes.extend(transaction.deletes.into_iter().map(delete));
        let when: Vec<Compare> = transaction.when.into_iter().map(compare).collect();
        let transaction = Txn::new().when(when).and_then(changes);
        let ask = |mut client: Client| async move { client.txn(transaction).await };
        let answer = self.members.ask_once(ask).await?;
        let done = answer.header().map_or(0, ResponseHeader::revision);
        Ok(answer.succeeded().then_some(revision(done)))
    }

    async fn grant(&self) -> Result<Lease> {
        // One that is granted and not told of ends by itself.
        let ask = |mut client: Client| async move { client.lease_grant(LEASE, None).await };
        let granted = self.members.ask(ask).await?;
        let every = Duration::from_secs(u64::try_from(granted.ttl()).unwrap_or(1)) / 4;
        let over = CancellationToken::new();
        let ended = over.clone().drop_guard();
        let renewing = tokio::spawn(self.clone().renew(granted.id(), every, ended));
        let renewing = AbortOnDropHandle::new(renewing);
        Ok(Lease::new(granted.id(), over, renewing))
    }

    async fn revoke(&self, lease: LeaseId) -> Result<()> {
        let ask = |mut client: Client| async move { client.lease_revoke(lease).await };
        self.members.ask_once(ask).await.map(|_| ())
    }

    fn follow(&self) -> mpsc::Receiver<Batch> {
        keep_following(Watch { store: self.clone(), seen: 0 })
    }
}

/// A watch on all keys of a cluster, taken up again where it broke off.
struct Watch {
    store: EtcdStore,
    /// The last change that was told of; 0 before the first.
    seen: i64,
}

impl Source for Watch {
    async fn follow(
        &mut self,
        batches: &mpsc::Sender<Batch>,
        backoff: &mut Backoff,
    ) -> Result<Infallible> {
        let Self { store, seen } = self;
        loop {
            store.members.answers().await;
            if *seen == 0 {
                let (all, revision) = store.read_all().await?;
                send(batches, all).await?;
                *seen = revision;
            }
            let place = store.members.place();
            let mut stream = store.watch(*seen + 1).await?;
            while let Some(response) = store.next(place, &mut stream).await? {
                backoff.reset();
                if response.compact_revision() > 0 {
                    *seen = 0;
                    break;
                }
                if response.canceled() {
                    return Err(store.members.unreachable(response.cancel_reason()));
                }
                send(batches, store.changes(&response, seen)).await?;
            }
        }
    }
}
