//! All keys, and a watch on them that is taken up again where it broke off.

use std::convert::Infallible;
use std::pin::pin;

use etcd_client::{EventType, GetOptions, WatchOptions, WatchResponse, WatchStream};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::{Connection, Member, Unanswered};
use crate::registry::RegistryError;
use crate::registry::backoff::Backoff;
use crate::registry::following::{End, Source};
use crate::registry::store::Batch;

/// All keys of a cluster.
pub(super) struct Watch {
    connection: Connection,
    /// The last change that was told of; 0 before the first.
    seen: i64,
}

impl Watch {
    pub(super) fn new(connection: Connection) -> Self {
        Self {
            connection,
            seen: 0,
        }
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
        let member = connection.member()?;
        let mut stream = watch(connection, &member, *seen + 1).await?;
        loop {
            let response = next(connection, &member, &mut stream).await?;
            backoff.reset();
            if response.compact_revision() > 0 {
                *seen = 0;
                return Err(End::Compacted);
            }
            if response.canceled() {
                return Err(connection
                    .unreachable(response.cancel_reason().to_owned())
                    .into());
            }
            let changes = changes(connection, &response, seen);
            // An empty batch says that the store answers.
            batches.send(Batch::Changes(changes)).await?;
        }
    }
}

impl From<Unanswered> for End {
    fn from(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::Left => Self::Moved,
            Unanswered::Failed(error) => Self::Broken(error),
        }
    }
}

async fn read_all(connection: &Connection) -> Result<(Batch, i64), RegistryError> {
    let found = connection
        .ask(|mut client| {
            let prefix = connection.config.prefix();
            async move {
                client
                    .get(prefix, Some(GetOptions::new().with_prefix()))
                    .await
            }
        })
        .await?;
    let entries = found
        .kvs()
        .iter()
        .map(|held| connection.entry(held))
        .collect();
    let revision = found
        .header()
        .map_or(0, etcd_client::ResponseHeader::revision);
    Ok((Batch::All(entries), revision))
}

async fn watch(
    connection: &Connection,
    member: &Member,
    from: i64,
) -> Result<WatchStream, Unanswered> {
    let mut client = member.client.clone();
    let options = WatchOptions::new().with_prefix().with_start_revision(from);
    connection
        .answer(
            member,
            client.watch(connection.config.prefix(), Some(options)),
        )
        .await
}

/// The next response. A silent stream is asked for its progress, so that one that stands still is
/// found out; etcd's limits for signs of life are for pings, not for this.
async fn next(
    connection: &Connection,
    member: &Member,
    stream: &mut WatchStream,
) -> Result<WatchResponse, Unanswered> {
    let away = |cause: &str| Unanswered::Failed(connection.unreachable(cause.to_owned()));
    let members = &connection.members;
    let mut probe = pin!(sleep(members.patience()));
    let mut is_probed = false;
    let mut left = pin!(members.another_than(member, 2 * members.patience()));
    let mut limit = pin!(sleep(connection.config.timeout));
    loop {
        tokio::select! {
            biased;
            response = stream.message() => return match response {
                Ok(Some(response)) => Ok(response),
                Ok(None) if members.seek(member).await => Err(Unanswered::Left),
                Ok(None) => Err(away("the watch ended")),
                Err(error) => Err(connection.failed(member, &error).await),
            },
            () = &mut left => return Err(Unanswered::Left),
            () = &mut limit => return Err(away("the watch stands still")),
            () = &mut probe, if !is_probed => {
                is_probed = true;
                let asked = stream.request_progress().await;
                asked.map_err(|error| Unanswered::Failed(connection.explain(&error)))?;
            }
        }
    }
}

/// Returns the changes of a response. The header's revision is not taken for seen: etcd before
/// 3.4.25 may tell of progress before it tells of the changes that belong to it.
fn changes(
    connection: &Connection,
    response: &WatchResponse,
    seen: &mut i64,
) -> Vec<Result<crate::registry::Entry, String>> {
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
