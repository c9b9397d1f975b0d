//! The processes that do not have the store.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::AbortOnDropHandle;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::{MAX_MESSAGE, proto};
use crate::registry::RegistryError;
use crate::registry::backoff::Backoff;
use crate::registry::following::{End, Source, keep_following};
use crate::registry::store::{
    Batch, CommitOutcome, Entry, Lease, LeaseId, Revision, Store, Transaction,
};

/// Where a store is served, and how long it may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedConfig {
    /// `HOST:PORT`.
    pub endpoint: String,
    /// Time that a request may take, and how long followers may hear nothing.
    pub timeout: Duration,
}

impl ServedConfig {
    /// At this place.
    pub fn new(endpoint: impl Into<String>) -> Self {
        Self {
            endpoint: endpoint.into(),
            timeout: Duration::from_secs(2),
        }
    }
}

type Client = proto::store_client::StoreClient<Channel>;

#[derive(Clone)]
struct Connection {
    client: Client,
    instance: u64,
    config: Arc<ServedConfig>,
}

/// A store that another process serves. Clones share a connection, which is made again
/// when it breaks.
#[derive(Clone)]
pub struct ServedStore(Connection);

impl fmt::Debug for ServedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServedStore at {}", self.0.config.endpoint)
    }
}

impl ServedStore {
    /// Connects.
    ///
    /// # Errors
    /// [`RegistryError::Unreachable`] if no answer comes in time.
    pub async fn connect(config: ServedConfig) -> Result<Self, RegistryError> {
        let config = Arc::new(config);
        let refused = |error: tonic::transport::Error| RegistryError::Refused {
            endpoints: config.endpoint.clone(),
            cause: error.to_string(),
        };
        let endpoint =
            Endpoint::from_shared(format!("http://{}", config.endpoint)).map_err(refused)?;
        let channel = endpoint
            .connect_timeout(config.timeout)
            .tcp_nodelay(true)
            .tcp_keepalive(Some(Duration::from_secs(5)))
            .connect_lazy();
        let client = Client::new(channel)
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE);
        let mut connection = Connection {
            client,
            instance: 0,
            config,
        };
        let mut client = connection.client.clone();
        let opened = connection
            .bounded(client.open(proto::OpenRequest {}))
            .await?;
        connection.instance = opened.instance;
        Ok(Self(connection))
    }
}

impl Connection {
    /// Waits for an answer no longer than is allowed.
    async fn bounded<T>(
        &self,
        call: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Result<T, RegistryError> {
        match timeout(self.config.timeout, call).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(self.explain(&status)),
            Err(_) => {
                Err(self.unreachable(format!("nothing came within {:?}", self.config.timeout)))
            }
        }
    }

    fn unreachable(&self, cause: String) -> RegistryError {
        RegistryError::Unreachable {
            endpoints: self.config.endpoint.clone(),
            cause,
        }
    }

    fn explain(&self, status: &Status) -> RegistryError {
        let cause = status.message().to_owned();
        match status.code() {
            Code::Unavailable
            | Code::DeadlineExceeded
            | Code::Cancelled
            | Code::Unknown
            | Code::Internal => self.unreachable(cause),
            _ => RegistryError::Refused {
                endpoints: self.config.endpoint.clone(),
                cause,
            },
        }
    }
}

#[async_trait]
impl Store for ServedStore {
    async fn get(&self, key: &str) -> Result<Option<Entry>, RegistryError> {
        let connection = &self.0;
        let request = proto::GetRequest {
            instance: connection.instance,
            key: key.to_owned(),
        };
        let reply = connection
            .bounded(connection.client.clone().get(request))
            .await?;
        Ok(reply.entry.map(Into::into))
    }

    async fn commit(&self, transaction: Transaction) -> Result<CommitOutcome, RegistryError> {
        let connection = &self.0;
        let Transaction {
            when,
            puts,
            deletes,
        } = transaction;
        let compare = |compare: crate::registry::Compare| proto::Compare {
            key: compare.key,
            modified: compare.modified.0,
        };
        let put = |put: crate::registry::Put| proto::Put {
            key: put.key,
            value: put.value,
            lease: put.lease.map_or(0, |lease| lease.0),
        };
        let request = proto::CommitRequest {
            instance: connection.instance,
            when: when.into_iter().map(compare).collect(),
            puts: puts.into_iter().map(put).collect(),
            deletes,
        };
        let reply = connection
            .bounded(connection.client.clone().commit(request))
            .await?;
        Ok(match reply.revision {
            0 => CommitOutcome::Failed,
            revision => CommitOutcome::Done(Revision(revision)),
        })
    }

    async fn grant(&self) -> Result<Arc<dyn Lease>, RegistryError> {
        let connection = &self.0;
        let request = proto::GrantRequest {
            instance: connection.instance,
        };
        let granted = connection
            .bounded(connection.client.clone().grant(request))
            .await?;
        let every = (Duration::from_millis(granted.milliseconds) / 4).max(Duration::from_millis(1));
        let lapsed = CancellationToken::new();
        let over = lapsed.clone().drop_guard();
        let renewing = AbortOnDropHandle::new(tokio::spawn(renew(
            connection.clone(),
            granted.lease,
            every,
            over,
        )));
        let id = LeaseId(granted.lease);
        Ok(Arc::new(ServedLease {
            connection: connection.clone(),
            id,
            lapsed,
            _renewing: renewing,
        }))
    }

    fn follow(&self) -> mpsc::Receiver<Batch> {
        keep_following(News(self.0.clone()))
    }
}

struct News(Connection);

impl Source for News {
    async fn follow(
        &mut self,
        batches: &mpsc::Sender<Batch>,
        backoff: &mut Backoff,
    ) -> Result<Infallible, End> {
        let told = self.tell(batches, backoff).await;
        if let Err(End::Broken(error @ RegistryError::Refused { .. })) = &told {
            tracing::error!(%error, "the registry is lost");
        }
        told
    }
}

impl News {
    async fn tell(
        &self,
        batches: &mpsc::Sender<Batch>,
        backoff: &mut Backoff,
    ) -> Result<Infallible, End> {
        let Self(connection) = self;
        let request = proto::FollowRequest {
            instance: connection.instance,
        };
        let mut news = connection
            .bounded(connection.client.clone().follow(request))
            .await?;
        loop {
            let next = timeout(connection.config.timeout, news.message()).await;
            let next = next
                .map_err(|_| connection.unreachable("the stream of changes stands still".into()))?;
            let next = next.map_err(|status| connection.explain(&status))?;
            let next =
                next.ok_or_else(|| connection.unreachable("the stream of changes ended".into()))?;
            backoff.reset();
            let proto::News { all, entries, gone } = next;
            let entries = entries.into_iter().map(Entry::from);
            let batch = if all {
                Batch::All(entries.collect())
            } else {
                // An empty batch says that the store answers.
                Batch::Changes(gone.into_iter().map(Err).chain(entries.map(Ok)).collect())
            };
            batches.send(batch).await?;
        }
    }
}

struct ServedLease {
    connection: Connection,
    id: LeaseId,
    lapsed: CancellationToken,
    _renewing: AbortOnDropHandle<()>,
}

impl fmt::Debug for ServedLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lease {}", self.id.0)
    }
}

/// Renews until the store says that the lease is over, and then drops `_over`; while it does not
/// answer, only the store knows.
async fn renew(connection: Connection, lease: i64, every: Duration, _over: DropGuard) {
    let mut backoff = Backoff::default();
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let request = proto::KeepAliveRequest {
            instance: connection.instance,
            lease,
        };
        match connection
            .bounded(connection.client.clone().keep_alive(request))
            .await
        {
            Ok(proto::KeepAliveReply { lasts: true }) => backoff.reset(),
            Ok(proto::KeepAliveReply { lasts: false }) => return,
            Err(error) => {
                tracing::debug!(%error, lease, "a lease could not be renewed");
                backoff.pause().await;
            }
        }
    }
}

#[async_trait]
impl Lease for ServedLease {
    fn id(&self) -> LeaseId {
        self.id
    }

    async fn lapsed(&self) {
        self.lapsed.cancelled().await;
    }

    async fn revoke(&self) -> Result<(), RegistryError> {
        let request = proto::RevokeRequest {
            instance: self.connection.instance,
            lease: self.id.0,
        };
        self.connection
            .bounded(self.connection.client.clone().revoke(request))
            .await
            .map(|_| ())
    }
}
