//! The process that has the store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use super::{MAX_MESSAGE, proto};
use crate::registry::RegistryError;
use crate::registry::store::{
    Batch, CommitOutcome, Compare, Lease, LeaseId, Put, Revision, Store, Transaction,
};

/// Leases at once: one for each member.
const MAX_LEASES: usize = 65_536;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServeConfig {
    /// For how long a member is kept that is not heard from.
    pub lease: Duration,
    /// Interval of heartbeats to followers.
    pub heartbeat: Duration,
}

impl Default for ServeConfig {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(2),
            heartbeat: Duration::from_millis(500),
        }
    }
}

/// Serves `store` at `listener` until `stop`.
///
/// # Errors
/// If the listener fails.
pub async fn serve_store(
    store: Arc<dyn Store>,
    listener: TcpListener,
    config: ServeConfig,
    stop: impl Future<Output = ()>,
) -> Result<(), RegistryError> {
    let endpoints = listener
        .local_addr()
        .map_or_else(|_| "?".to_owned(), |address| address.to_string());
    let leases = Arc::new(Mutex::new(BTreeMap::new()));
    let (ending, ended) = watch::channel(());
    let service = Service {
        store,
        config,
        leases: Arc::clone(&leases),
        instance: instance(),
        ended,
    };
    let _expiring = AbortOnDropHandle::new(tokio::spawn(expire(leases, config.lease)));
    let served = proto::store_server::StoreServer::new(service)
        .max_decoding_message_size(MAX_MESSAGE)
        .max_encoding_message_size(MAX_MESSAGE);
    let server = tonic::transport::Server::builder().add_service(served);
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let stop = async move {
        stop.await;
        // Followers never leave by themselves.
        drop(ending);
    };
    let served = server.serve_with_incoming_shutdown(incoming, stop).await;
    served.map_err(|error| RegistryError::Unreachable {
        endpoints,
        cause: error.to_string(),
    })
}

/// A number that no other life of a serving process has.
fn instance() -> u64 {
    let since = std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .unwrap_or_default();
    let nanoseconds = u64::try_from(since.as_nanos() & u128::from(u64::MAX)).unwrap_or(0);
    nanoseconds ^ u64::from(std::process::id()).rotate_left(48)
}

type Leases = Arc<Mutex<BTreeMap<i64, (Arc<dyn Lease>, Instant)>>>;

/// Ends leases that were not renewed in time: by dropping them.
async fn expire(leases: Leases, lasts: Duration) {
    let mut ticks = interval((lasts / 8).max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let now = Instant::now();
        let expired: Vec<_> = leases
            .lock()
            .extract_if(.., |_, (_, until)| *until <= now)
            .collect();
        drop(expired);
    }
}

#[derive(Debug)]
struct Service {
    store: Arc<dyn Store>,
    config: ServeConfig,
    leases: Leases,
    instance: u64,
    /// Ends followers when its sender is gone.
    ended: watch::Receiver<()>,
}

impl Service {
    #[allow(clippy::result_large_err, reason = "tonic's own")]
    fn check(&self, instance: u64) -> Result<(), Status> {
        if instance == self.instance {
            return Ok(());
        }
        Err(Status::failed_precondition(
            "it was started anew and has lost what it held: start the cluster anew",
        ))
    }
}

fn status(error: RegistryError) -> Status {
    match error {
        RegistryError::Refused { cause, .. } => Status::aborted(cause),
        RegistryError::Unreachable { cause, .. } => Status::unavailable(cause),
        other => Status::unavailable(other.to_string()),
    }
}

#[tonic::async_trait]
impl proto::store_server::Store for Service {
    async fn open(
        &self,
        _: Request<proto::OpenRequest>,
    ) -> Result<Response<proto::OpenReply>, Status> {
        Ok(Response::new(proto::OpenReply {
            instance: self.instance,
        }))
    }

    async fn get(
        &self,
        request: Request<proto::GetRequest>,
    ) -> Result<Response<proto::GetReply>, Status> {
        let proto::GetRequest { instance, key } = request.into_inner();
        self.check(instance)?;
        let entry = self.store.get(&key).await.map_err(status)?;
        Ok(Response::new(proto::GetReply {
            entry: entry.map(Into::into),
        }))
    }

    async fn commit(
        &self,
        request: Request<proto::CommitRequest>,
    ) -> Result<Response<proto::CommitReply>, Status> {
        let proto::CommitRequest {
            instance,
            when,
            puts,
            deletes,
        } = request.into_inner();
        self.check(instance)?;
        let when = when
            .into_iter()
            .map(|c| Compare {
                key: c.key,
                modified: Revision(c.modified),
            })
            .collect();
        let put = |put: proto::Put| {
            let lease = (put.lease != 0).then_some(LeaseId(put.lease));
            Put {
                key: put.key,
                value: put.value,
                lease,
            }
        };
        let transaction = Transaction {
            when,
            puts: puts.into_iter().map(put).collect(),
            deletes,
        };
        let outcome = self.store.commit(transaction).await.map_err(status)?;
        let revision = match outcome {
            CommitOutcome::Done(revision) => revision.0,
            CommitOutcome::Failed => 0,
        };
        Ok(Response::new(proto::CommitReply { revision }))
    }

    async fn grant(
        &self,
        request: Request<proto::GrantRequest>,
    ) -> Result<Response<proto::GrantReply>, Status> {
        self.check(request.into_inner().instance)?;
        if self.leases.lock().len() >= MAX_LEASES {
            return Err(Status::unavailable("too many members"));
        }
        let lease = self.store.grant().await.map_err(status)?;
        let id = lease.id().0;
        self.leases
            .lock()
            .insert(id, (lease, Instant::now() + self.config.lease));
        let milliseconds = u64::try_from(self.config.lease.as_millis()).unwrap_or(u64::MAX);
        Ok(Response::new(proto::GrantReply {
            lease: id,
            milliseconds,
        }))
    }

    async fn keep_alive(
        &self,
        request: Request<proto::KeepAliveRequest>,
    ) -> Result<Response<proto::KeepAliveReply>, Status> {
        let proto::KeepAliveRequest {
            instance,
            lease: id,
        } = request.into_inner();
        self.check(instance)?;
        let held = self
            .leases
            .lock()
            .get(&id)
            .map(|(lease, _)| Arc::clone(lease));
        let Some(lease) = held else {
            return Ok(Response::new(proto::KeepAliveReply { lasts: false }));
        };
        let lasts = timeout(Duration::ZERO, lease.lapsed()).await.is_err();
        let mut leases = self.leases.lock();
        if !lasts {
            leases.remove(&id);
        } else if let Some((_, until)) = leases.get_mut(&id) {
            *until = Instant::now() + self.config.lease;
        }
        Ok(Response::new(proto::KeepAliveReply { lasts }))
    }

    async fn revoke(
        &self,
        request: Request<proto::RevokeRequest>,
    ) -> Result<Response<proto::RevokeReply>, Status> {
        let proto::RevokeRequest { instance, lease } = request.into_inner();
        self.check(instance)?;
        let held = self.leases.lock().remove(&lease);
        if let Some((lease, _)) = held {
            lease.revoke().await.map_err(status)?;
        }
        Ok(Response::new(proto::RevokeReply {}))
    }

    type FollowStream = ReceiverStream<Result<proto::News, Status>>;

    async fn follow(
        &self,
        request: Request<proto::FollowRequest>,
    ) -> Result<Response<Self::FollowStream>, Status> {
        self.check(request.into_inner().instance)?;
        let (news, stream) = mpsc::channel(4);
        let batches = self.store.follow();
        tokio::spawn(tell(
            batches,
            news,
            self.config.heartbeat,
            self.ended.clone(),
        ));
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}

/// Tells one follower of everything, then of changes.
async fn tell(
    mut batches: mpsc::Receiver<Batch>,
    news: mpsc::Sender<Result<proto::News, Status>>,
    heartbeat: Duration,
    mut ended: watch::Receiver<()>,
) {
    let mut told: Option<BTreeMap<String, u64>> = None;
    loop {
        let batch = tokio::select! {
            batch = timeout(heartbeat, batches.recv()) => batch,
            () = news.closed() => return,
            _ = ended.changed() => return,
        };
        let next = match batch {
            Err(_) if told.is_some() => proto::News::default(),
            Err(_) => continue,
            Ok(Some(Batch::All(entries))) => {
                difference(&mut told, entries.into_iter().map(Into::into))
            }
            Ok(Some(Batch::Changes(changes))) => changes_of(&mut told, changes),
            Ok(Some(Batch::Away) | None) => {
                let _ = news
                    .send(Err(Status::unavailable("what it is kept in is away")))
                    .await;
                return;
            }
        };
        if news.send(Ok(next)).await.is_err() {
            return;
        }
    }
}

/// Returns the news among all keys.
fn difference(
    told: &mut Option<BTreeMap<String, u64>>,
    entries: impl Iterator<Item = proto::Entry>,
) -> proto::News {
    let all = told.is_none();
    let before = told.take().unwrap_or_default();
    let (mut now, mut new) = (BTreeMap::new(), Vec::new());
    for entry in entries {
        now.insert(entry.key.clone(), entry.modified);
        if before.get(&entry.key) != Some(&entry.modified) {
            new.push(entry);
        }
    }
    let gone = before
        .into_keys()
        .filter(|key| !now.contains_key(key))
        .collect();
    *told = Some(now);
    proto::News {
        all,
        entries: new,
        gone,
    }
}

fn changes_of(
    told: &mut Option<BTreeMap<String, u64>>,
    changes: Vec<Result<crate::registry::Entry, String>>,
) -> proto::News {
    let told = told.get_or_insert_default();
    let mut news = proto::News::default();
    for change in changes {
        match change {
            Ok(entry) => {
                told.insert(entry.key.clone(), entry.modified.0);
                news.gone.retain(|key| *key != entry.key);
                news.entries.push(entry.into());
            }
            Err(key) => {
                told.remove(&key);
                news.entries.retain(|entry| entry.key != key);
                news.gone.push(key);
            }
        }
    }
    news
}
