//! Leases, renewed in the background.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::Error;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::AbortOnDropHandle;

use super::{Connection, Unanswered};
use crate::registry::RegistryError;
use crate::registry::backoff::Backoff;
use crate::registry::store::{Lease, LeaseId};

/// A lease that is renewed until it is dropped. When etcd does not answer, only etcd knows whether
/// the lease is over, so it is asked until it says.
pub(super) struct EtcdLease {
    connection: Connection,
    id: LeaseId,
    lapsed: CancellationToken,
    _renewing: AbortOnDropHandle<()>,
}

impl fmt::Debug for EtcdLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lease {}", self.id.0)
    }
}

impl EtcdLease {
    pub(super) async fn grant(connection: Connection) -> Result<Self, RegistryError> {
        let seconds = i64::try_from(connection.config.lease.as_secs())
            .unwrap_or(i64::MAX)
            .max(1);
        // One that is granted and not told of ends by itself.
        let grant = |mut client: etcd_client::Client| async move {
            client.lease_grant(seconds, None).await
        };
        let granted = connection.ask(grant).await?;
        let every = Duration::from_secs(u64::try_from(granted.ttl()).unwrap_or(1)) / 4;
        let lapsed = CancellationToken::new();
        let over = lapsed.clone().drop_guard();
        let renewing = AbortOnDropHandle::new(tokio::spawn(renew(
            connection.clone(),
            granted.id(),
            every,
            over,
        )));
        Ok(Self {
            connection,
            id: LeaseId(granted.id()),
            lapsed,
            _renewing: renewing,
        })
    }
}

/// Renews until etcd says that the lease is over; then `_over` is dropped.
async fn renew(connection: Connection, id: i64, every: Duration, _over: DropGuard) {
    let mut backoff = Backoff::default();
    loop {
        match renew_on_one_stream(&connection, id, every, &mut backoff).await {
            Ok(()) => return,
            Err(Unanswered::Left) => {}
            Err(Unanswered::Failed(error)) => {
                tracing::debug!(%error, lease = id, "a lease could not be renewed");
                backoff.pause().await;
            }
        }
    }
}

/// Ends well if etcd says that the lease is over.
async fn renew_on_one_stream(
    connection: &Connection,
    id: i64,
    every: Duration,
    backoff: &mut Backoff,
) -> Result<(), Unanswered> {
    let member = connection.member().map_err(Unanswered::Failed)?;
    let ended =
        || Unanswered::Failed(connection.unreachable("the stream of renewals ended".to_owned()));
    let mut client = member.client.clone();
    let open = async {
        match client.lease_keep_alive(id).await {
            // So the client says that etcd does not know the lease.
            Err(Error::LeaseKeepAliveError(_)) => Ok(None),
            opened => opened.map(Some),
        }
    };
    let Some((mut keeper, mut answers)) = connection.answer(&member, open).await? else {
        return Ok(());
    };
    backoff.reset();
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = member.left() => return Err(Unanswered::Left),
            _ = ticks.tick() => {}
        }
        let renewal = async {
            keeper.keep_alive().await?;
            answers.message().await
        };
        match connection.answer(&member, renewal).await? {
            Some(answer) if answer.ttl() <= 0 => return Ok(()),
            Some(_) => {}
            None => return Err(ended()),
        }
    }
}

#[async_trait]
impl Lease for EtcdLease {
    fn id(&self) -> LeaseId {
        self.id
    }

    async fn lapsed(&self) {
        self.lapsed.cancelled().await;
    }

    async fn revoke(&self) -> Result<(), RegistryError> {
        let id = self.id.0;
        let revoke = |mut client: etcd_client::Client| async move { client.lease_revoke(id).await };
        self.connection.ask_once(revoke).await.map(|_| ())
    }
}
