//! Store that a registry is kept in.

use std::any::Any;
use std::convert::Infallible;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::registry::{RegistryError, Result};

/// Counts the changes of a store, from 1; 0 stands for a key that is not there.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Revision(pub u64);

pub type LeaseId = i64;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub key: String,
    pub value: String,
    pub modified: Revision,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Put {
    pub key: String,
    pub value: String,
    /// The key goes when this lease does.
    pub lease: Option<LeaseId>,
}

/// Changes that happen together, or not at all. At most [`Transaction::MAX_CHANGES`] of them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Transaction {
    /// Keys, each with the change that must have given it its value. All must hold.
    pub when: Vec<(String, Revision)>,
    pub puts: Vec<Put>,
    pub deletes: Vec<String>,
}

impl Transaction {
    /// Changes in one transaction; etcd's own limit is 128.
    pub const MAX_CHANGES: usize = 96;

    #[must_use]
    pub fn when(mut self, key: &str, modified: Revision) -> Self {
        self.when.push((key.to_owned(), modified));
        self
    }

    #[must_use]
    pub fn put(mut self, key: &str, value: String, lease: Option<LeaseId>) -> Self {
        let key = key.to_owned();
        self.puts.push(Put { key, value, lease });
        self
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Batch {
    /// All that there is: at first, and after a gap.
    All(Vec<Entry>),
    /// Later changes, in order: a new value, or a key that is gone. With none, a sign of life.
    Changes(Vec<Result<Entry, String>>),
    /// The store cannot be reached. Another batch means that it can be again.
    Away,
}

/// A lease, renewed until this is dropped. Its keys go with it.
#[derive(Debug)]
pub struct Lease {
    id: LeaseId,
    over: CancellationToken,
    _keeper: Box<dyn Any + Send + Sync>,
}

impl Lease {
    /// A lease of a store that cancels `over` when the lease is.
    pub fn new(id: LeaseId, over: CancellationToken, keeper: impl Any + Send + Sync) -> Self {
        let _keeper = Box::new(keeper);
        Self { id, over, _keeper }
    }

    pub const fn id(&self) -> LeaseId {
        self.id
    }

    pub async fn over(&self) {
        self.over.cancelled().await;
    }
}

/// A small ordered map that several processes share, with transactions and leases.
#[async_trait::async_trait]
pub trait Store: Send + Sync + fmt::Debug {
    async fn get(&self, key: &str) -> Result<Option<Entry>>;

    /// Returns the number of the change, or `None` if a condition did not hold. After an error the
    /// transaction may or may not have happened.
    async fn commit(&self, transaction: Transaction) -> Result<Option<Revision>>;

    async fn grant(&self) -> Result<Lease>;

    /// Ends a lease now, with its keys.
    async fn revoke(&self, lease: LeaseId) -> Result<()>;

    /// All keys and their changes, until the receiver is dropped.
    fn follow(&self) -> mpsc::Receiver<Batch>;
}

/// Pauses between attempts, which double from 50 ms to 1 s.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The next attempt starts without a pause.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    pub(crate) async fn pause(&mut self) {
        let pause = Duration::from_millis(50 << self.failures.min(5));
        self.failures = self.failures.saturating_add(1);
        tokio::time::sleep(pause.min(Duration::from_secs(1))).await;
    }
}

/// A connection to a store in another process, which may break.
pub(crate) trait Source: Send + 'static {
    /// Sends everything, or what came since it broke off, and then changes, until it breaks. It may
    /// be dropped at any time. Each sign of life resets `backoff`.
    fn follow(
        &mut self,
        batches: &mpsc::Sender<Batch>,
        backoff: &mut Backoff,
    ) -> impl Future<Output = Result<Infallible>> + Send;
}

pub(crate) async fn send(batches: &mpsc::Sender<Batch>, batch: Batch) -> Result<()> {
    let sent = batches.send(batch).await;
    sent.map_err(|_| RegistryError::Closed)
}

/// Follows again and again until the receiver is dropped; sends [`Batch::Away`] when it breaks.
pub(crate) fn keep_following(mut source: impl Source) -> mpsc::Receiver<Batch> {
    let (batches, receiver) = mpsc::channel(16);
    tokio::spawn(async move {
        let mut backoff = Backoff::default();
        loop {
            let Err(error) = tokio::select! {
                ended = source.follow(&batches, &mut backoff) => ended,
                () = batches.closed() => return,
            };
            tracing::debug!(%error, "following the registry broke off");
            if batches.send(Batch::Away).await.is_err() {
                return;
            }
            backoff.pause().await;
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, timeout};

    use super::*;

    /// Sends the number of each attempt and breaks, until the last, which stays.
    struct Script {
        attempts: u64,
        last: u64,
        /// Closed when the script is dropped.
        _alive: mpsc::Sender<()>,
    }

    impl Source for Script {
        async fn follow(
            &mut self,
            batches: &mpsc::Sender<Batch>,
            backoff: &mut Backoff,
        ) -> Result<Infallible> {
            self.attempts += 1;
            send(batches, attempt(self.attempts)).await?;
            if self.attempts == 4 {
                backoff.reset();
            }
            if self.attempts == self.last {
                std::future::pending::<()>().await;
            }
            Err(RegistryError::Refused { endpoints: "a:1".into(), cause: "it was cut".into() })
        }
    }

    fn attempt(number: u64) -> Batch {
        Batch::Changes(vec![Err(number.to_string())])
    }

    fn start(last: u64) -> (mpsc::Receiver<Batch>, mpsc::Receiver<()>) {
        let (_alive, ended) = mpsc::channel(1);
        let attempts = 0;
        let script = Script { attempts, last, _alive };
        (keep_following(script), ended)
    }

    #[tokio::test(start_paused = true)]
    async fn broken_source_is_away_and_is_tried_again_ever_later() {
        let (mut batches, _) = start(9);
        let mut pauses = Vec::new();
        for number in 1..=5 {
            let asked = Instant::now();
            assert_eq!(batches.recv().await, Some(attempt(number)));
            pauses.push(asked.elapsed().as_millis());
            assert_eq!(batches.recv().await, Some(Batch::Away));
        }
        // The fourth attempt showed a sign of life.
        assert_eq!(pauses, [0, 50, 100, 200, 50]);
    }

    #[tokio::test(start_paused = true)]
    async fn source_is_dropped_with_its_last_listener() {
        let minute = Duration::from_secs(60);
        let (mut batches, mut ended) = start(1);
        assert_eq!(batches.recv().await, Some(attempt(1)));
        let lasts = timeout(minute, ended.recv()).await;
        assert!(lasts.is_err(), "it goes on while it has a listener");
        drop(batches);
        assert_eq!(timeout(minute, ended.recv()).await, Ok(None));
    }
}
