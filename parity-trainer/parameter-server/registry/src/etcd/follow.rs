//! All keys, and a watch on them that is taken up again where it broke off.

use std::convert::Infallible;
use std::time::Duration;

use etcd_client::{EventType, GetOptions, WatchOptions, WatchResponse, WatchStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::Connection;
use crate::RegistryError;
use crate::backoff::Backoff;
use crate::following::{End, Source};
use crate::store::Batch;

/// How often etcd is asked for a sign of life on a watch that is silent; its keep-alive limits are for pings, not for
/// this.
const PROBE: Duration = Duration::from_millis(500);

/// All keys of a cluster.
pub(super) struct Watch {
    connection: Connection,
    /// The last change that was told of; 0 before the first.
    seen: i64,
}

impl Watch {
    pub(super) fn new(connection: Connection) -> Self {
        Self { connection, seen: 0 }
    }
}

impl Source for Watch {
    async fn follow(
        &mut self,
        batches: &mpsc::Sender<Batch>,
        backoff: &mut Backoff,
    ) -> Result<Infallible, End> {
        let Self { connection, seen } = self;
        if *seen == 0 {
            let (all, revision) = read_all(connection).await?;
            batches.send(all).await?;
            *seen = revision;
        }
        let mut stream = watch(connection, *seen + 1).await?;
        loop {
            let response = next(connection, &mut stream).await?;
            backoff.reset();
            if response.compact_revision() > 0 {
                *seen = 0;
                return Err(End::Compacted);
            }
            if response.canceled() {
                return Err(connection.unreachable(response.cancel_reason().to_owned()).into());
            }
            let changes = changes(connection, &response, seen);
            // An empty batch says that the store answers.
            batches.send(Batch::Changes(changes)).await?;
        }
    }
}

async fn read_all(connection: &Connection) -> Result<(Batch, i64), RegistryError> {
    let mut client = connection.client.clone();
    let options = GetOptions::new().with_prefix();
    let found = connection.bounded(client.get(connection.config.prefix(), Some(options))).await?;
    let entries = found.kvs().iter().map(|held| connection.entry(held)).collect();
    let revision = found.header().map_or(0, etcd_client::ResponseHeader::revision);
    Ok((Batch::All(entries), revision))
}

async fn watch(connection: &Connection, from: i64) -> Result<WatchStream, RegistryError> {
    let mut client = connection.client.clone();
    let options = WatchOptions::new().with_prefix().with_start_revision(from);
    connection.bounded(client.watch(connection.config.prefix(), Some(options))).await
}

/// The next response. A silent stream is asked for its progress, so that one that stands still is found out.
async fn next(connection: &Connection, stream: &mut WatchStream) -> Result<WatchResponse, RegistryError> {
    let away = |cause: &str| connection.unreachable(cause.to_owned());
    let deadline = Instant::now() + connection.config.timeout;
    loop {
        let wait = deadline.saturating_duration_since(Instant::now()).min(PROBE);
        if wait.is_zero() {
            return Err(away("the watch stands still"));
        }
        match timeout(wait, stream.message()).await {
            Ok(Ok(Some(response))) => return Ok(response),
            Ok(Ok(None)) => return Err(away("the watch ended")),
            Ok(Err(error)) => return Err(connection.explain(&error)),
            Err(_) => stream.request_progress().await.map_err(|error| connection.explain(&error))?,
        }
    }
}

/// What changed. The header's revision is not taken for seen: etcd before 3.4.25 may tell of progress before it tells of
/// the changes that belong to it.
fn changes(
    connection: &Connection,
    response: &WatchResponse,
    seen: &mut i64,
) -> Vec<Result<crate::Entry, String>> {
    let mut changes = Vec::with_capacity(response.events().len());
    for event in response.events() {
        let Some(held) = event.kv() else { continue };
        *seen = (*seen).max(held.mod_revision());
        changes.push(match event.event_type() {
            EventType::Put => Ok(connection.entry(held)),
            EventType::Delete => Err(connection.short(held.key())),
        });
    }
    changes
}
