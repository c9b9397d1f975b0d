//! A store in one process that serves it to the others: for clusters with nothing else to start.
//!
//! It holds its entries in the process's memory, and they are lost with it: then servers and
//! workers go on with the routing table they have, but none joins and none is replaced. Each life
//! of the process has a number of its own, which every request names, so that a new, empty store is
//! not taken for the one before. Where that is too little, use etcd. Each request has a connection
//! of its own. A lease lasts as long as signs of life come on the connection that it was granted
//! on.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::{interval, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::frames::{self, Frames};
use crate::registry::store::{
    Backoff, Batch, Entry, Lease, LeaseId, Revision, Source, Store, Transaction, keep_following,
    send,
};
use crate::registry::{RegistryError, Result};

/// Limit of a request, of silence to followers, and of silence from a lease's holder.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Interval of signs of life, to followers and from holders of leases.
const HEARTBEAT: Duration = Duration::from_millis(500);

/// A request, sent with the number of the serving process's life.
#[derive(Debug, Serialize, Deserialize)]
enum Request {
    /// Asks for the number of this life; its own is ignored.
    Open,
    Get(String),
    Commit(Transaction),
    Grant,
    Revoke(LeaseId),
    Follow,
}

#[derive(Debug, Serialize, Deserialize)]
enum Failure {
    Refused(String),
    Away(String),
}

impl From<RegistryError> for Failure {
    fn from(error: RegistryError) -> Self {
        match error {
            RegistryError::Refused { cause, .. } => Self::Refused(cause),
            RegistryError::Unreachable { cause, .. } => Self::Away(cause),
            other => Self::Away(other.to_string()),
        }
    }
}

#[derive(Debug, Clone)]
pub struct ServedStore {
    endpoint: Arc<str>,
    instance: u64,
}

impl ServedStore {
    pub async fn connect(endpoint: &str) -> Result<Self> {
        let (endpoint, instance) = (endpoint.into(), 0);
        let mut store = Self { endpoint, instance };
        store.instance = store.ask(Request::Open).await?;
        Ok(store)
    }

    async fn ask<T: DeserializeOwned>(&self, request: Request) -> Result<T> {
        Ok(self.call(request).await?.0)
    }

    async fn call<T: DeserializeOwned>(&self, request: Request) -> Result<(T, Frames)> {
        let asked = frames::ask(&self.endpoint, (self.instance, request), TIMEOUT).await;
        let (answer, frames) = asked.map_err(|cause| self.unreachable(cause))?;
        Ok((self.unwrap(answer)?, frames))
    }

    fn unwrap<T>(&self, answer: Result<T, Failure>) -> Result<T> {
        answer.map_err(|failure| match failure {
            Failure::Refused(cause) => {
                RegistryError::Refused { endpoints: self.endpoint.to_string(), cause }
            }
            Failure::Away(cause) => self.unreachable(cause),
        })
    }

    fn unreachable(&self, cause: String) -> RegistryError {
        let endpoints = self.endpoint.to_string();
        RegistryError::Unreachable { endpoints, cause }
    }
}

#[async_trait]
impl Store for ServedStore {
    async fn get(&self, key: &str) -> Result<Option<Entry>> {
        self.ask(Request::Get(key.to_owned())).await
    }

    async fn commit(&self, transaction: Transaction) -> Result<Option<Revision>> {
        self.ask(Request::Commit(transaction)).await
    }

    async fn grant(&self) -> Result<Lease> {
        let (id, mut frames) = self.call(Request::Grant).await?;
        let over = CancellationToken::new();
        let ended = over.clone().drop_guard();
        let renewing = tokio::spawn(async move {
            let _ended = ended;
            let mut ticks = interval(HEARTBEAT);
            loop {
                // While the process does not answer, only it knows whether the lease is over.
                tokio::select! {
                    _ = ticks.tick() => if frames.send(&()).await.is_err() { return },
                    _ = frames.receive_bytes() => return,
                }
            }
        });
        Ok(Lease::new(id, over, AbortOnDropHandle::new(renewing)))
    }

    async fn revoke(&self, lease: LeaseId) -> Result<()> {
        self.ask(Request::Revoke(lease)).await
    }

    fn follow(&self) -> mpsc::Receiver<Batch> {
        keep_following(self.clone())
    }
}

impl Source for ServedStore {
    async fn follow(
        &mut self,
        batches: &mpsc::Sender<Batch>,
        backoff: &mut Backoff,
    ) -> Result<Infallible> {
        let called = self.call(Request::Follow).await;
        if let Err(error @ RegistryError::Refused { .. }) = &called {
            tracing::error!(%error, "the registry is lost");
        }
        let (mut batch, mut frames) = called?;
        loop {
            backoff.reset();
            send(batches, batch).await?;
            let next = frames::within(TIMEOUT, frames.receive()).await;
            let next = next.map_err(|cause| self.unreachable(cause))?;
            batch = self.unwrap(next)?;
        }
    }
}

pub async fn serve_store(
    store: Arc<dyn Store>,
    listener: TcpListener,
    stop: impl Future<Output = ()>,
) {
    // No other life of a serving process has this number.
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let instance = since.as_nanos() as u64 ^ u64::from(std::process::id()).rotate_left(48);
    let answer = |frames| answer(Arc::clone(&store), instance, frames);
    frames::serve(listener, answer, stop).await;
}

async fn answer(store: Arc<dyn Store>, instance: u64, mut frames: Frames) -> io::Result<()> {
    let (named, request): (u64, Request) = timeout(TIMEOUT, frames.receive()).await??;
    match request {
        Request::Open => reply(&mut frames, Ok(instance)).await,
        _ if named != instance => {
            let lost = "it was started anew and has lost what it held: start the cluster anew";
            let refused = Failure::Refused(lost.to_owned());
            frames.send(&Err::<(), _>(refused)).await
        }
        Request::Get(key) => reply(&mut frames, store.get(&key).await).await,
        Request::Commit(transaction) => reply(&mut frames, store.commit(transaction).await).await,
        Request::Revoke(lease) => reply(&mut frames, store.revoke(lease).await).await,
        Request::Grant => match store.grant().await {
            Ok(lease) => {
                reply(&mut frames, Ok(lease.id())).await?;
                while let Some(renewed) = renewal(&lease, &mut frames).await {
                    renewed?;
                }
                Ok(())
            }
            Err(error) => reply::<LeaseId>(&mut frames, Err(error)).await,
        },
        Request::Follow => tell(store.follow(), frames).await,
    }
}

async fn reply<T: Serialize>(frames: &mut Frames, answer: Result<T>) -> io::Result<()> {
    frames.send(&answer.map_err(Failure::from)).await
}

/// Waits for a lease's sign of life; `None` once it is over.
async fn renewal(lease: &Lease, frames: &mut Frames) -> Option<io::Result<()>> {
    tokio::select! {
        renewed = timeout(TIMEOUT, frames.receive()) => renewed.ok(),
        () = lease.over() => None,
    }
}

/// Tells one follower of everything, then of changes.
async fn tell(mut batches: mpsc::Receiver<Batch>, mut frames: Frames) -> io::Result<()> {
    loop {
        let batch = match timeout(HEARTBEAT, batches.recv()).await {
            Err(_) => Batch::Changes(Vec::new()),
            Ok(Some(Batch::Away) | None) => {
                let away = Failure::Away("what it is kept in is away".into());
                return frames.send(&Err::<Batch, _>(away)).await;
            }
            Ok(Some(batch)) => batch,
        };
        timeout(TIMEOUT, frames.send(&Ok::<_, Failure>(batch))).await??;
    }
}
