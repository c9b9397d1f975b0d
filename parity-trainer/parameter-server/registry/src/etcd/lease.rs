//! Leases, renewed in the background.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::AbortOnDropHandle;

use super::Connection;
use crate::RegistryError;
use crate::backoff::Backoff;
use crate::store::{Lease, LeaseId};

/// A lease that is renewed until it is dropped. When etcd does not answer, only etcd knows whether the lease is over, so
/// it is asked until it says.
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
        let seconds = i64::try_from(connection.config.lease.as_secs()).unwrap_or(i64::MAX).max(1);
        let mut client = connection.client.clone();
        let granted = connection.bounded(client.lease_grant(seconds, None)).await?;
        let every = Duration::from_secs(u64::try_from(granted.ttl()).unwrap_or(1)) / 4;
        let lapsed = CancellationToken::new();
        let over = lapsed.clone().drop_guard();
        let renewing =
            AbortOnDropHandle::new(tokio::spawn(renew(connection.clone(), granted.id(), every, over)));
        Ok(Self { connection, id: LeaseId(granted.id()), lapsed, _renewing: renewing })
    }
}

/// Renews until etcd says that the lease is over; then `_over` is dropped.
async fn renew(connection: Connection, id: i64, every: Duration, _over: DropGuard) {
    let mut backoff = Backoff::default();
    loop {
        match renew_on_one_stream(&connection, id, every, &mut backoff).await {
            Ok(()) => return,
            Err(error) => {
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
) -> Result<(), RegistryError> {
    let wait = connection.config.timeout;
    let away = || connection.unreachable("the stream of renewals stands still".to_owned());
    let mut client = connection.client.clone();
    let opened = timeout(wait, client.lease_keep_alive(id)).await.map_err(|_| away())?;
    let (mut keeper, mut answers) = match opened {
        Ok(opened) => opened,
        // So the client says that etcd does not know the lease.
        Err(etcd_client::Error::LeaseKeepAliveError(_)) => return Ok(()),
        Err(error) => return Err(connection.explain(&error)),
    };
    backoff.reset();
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        keeper.keep_alive().await.map_err(|error| connection.explain(&error))?;
        let answer = timeout(wait, answers.message()).await.map_err(|_| away())?;
        match answer.map_err(|error| connection.explain(&error))? {
            Some(answer) if answer.ttl() <= 0 => return Ok(()),
            Some(_) => {}
            None => return Err(away()),
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
        let mut client = self.connection.client.clone();
        self.connection.bounded(client.lease_revoke(self.id.0)).await.map(|_| ())
    }
}
