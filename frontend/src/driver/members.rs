//! The instances of the pools: watched, joining and leaving.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::discovery::{Place, View, difference};
use parapet_frontend_core::{InstanceId, PoolId};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::{Driver, health};
use crate::upstream::{Transport, Unready};

/// An instance that is watched.
#[derive(Debug, Clone)]
pub(super) struct Member {
    /// Its address, as configured or found.
    pub(super) name: String,
    /// Asks for a health check out of turn.
    pub(super) asked: Arc<Notify>,
    /// Ends its health checks.
    pub(super) stop: CancellationToken,
    /// Reason why the last health check failed, if it did.
    pub(super) unready: Arc<Mutex<Option<Unready>>>,
}

impl<T: Transport> Driver<T> {
    /// Checks an instance from now on; not one that comes as the driver is retired.
    pub(super) fn watch(self: &Arc<Self>, instance: InstanceId, name: String) {
        let member = Member {
            name,
            asked: Arc::default(),
            stop: self.retired.child_token(),
            unready: Arc::default(),
        };
        {
            let mut members = self.members.lock();
            if self.retired.is_cancelled() {
                return;
            }
            members.insert(instance, member.clone());
        }
        tokio::spawn(health::watch(
            Arc::clone(self),
            instance,
            member,
            self.health.clone(),
        ));
    }

    pub(crate) fn instances(&self) -> Vec<(PoolId, String)> {
        let members = self.members.lock();
        members
            .iter()
            .map(|(instance, member)| (instance.pool, member.name.clone()))
            .collect()
    }

    /// Looks for and checks no instance any more, and takes those out of the metrics that are not
    /// `kept`, and the pools that are not `discovered` any more.
    pub(crate) fn retire(
        &self,
        kept: impl Fn(PoolId, &str) -> bool,
        discovered: impl Fn(PoolId) -> bool,
    ) {
        self.retired.cancel();
        for pool in self
            .discovering
            .lock()
            .iter()
            .filter(|pool| !discovered(**pool))
        {
            self.meters.not_discovered(*pool);
        }
        for (instance, member) in self.members.lock().drain() {
            member.stop.cancel();
            if !kept(instance.pool, &member.name) {
                self.meters.instance_left(instance.pool, &member.name);
            }
        }
    }

    /// A health check's result.
    pub(super) fn found(self: &Arc<Self>, instance: InstanceId, ready: bool) {
        self.feed(|locked, now| {
            locked
                .engine
                .instance_up(now, instance, ready, &mut locked.actions)
        });
        // Under the table's lock, so that a check that ends late brings no series of an instance
        // that left back.
        if let Some(member) = self.members.lock().get(&instance) {
            self.meters.instance_up(instance.pool, &member.name, ready);
        }
    }

    /// A new instance. It gets requests once a check has found it ready. `None` for a pool that
    /// is not there.
    fn join(self: &Arc<Self>, pool: PoolId, place: &Place) -> Option<InstanceId> {
        let instance = self.feed(|locked, _| locked.engine.instance_joined(pool))?;
        let name = self.transport.join(instance, place);
        tracing::info!(instance = %name, pool = pool.0, "instance joined");
        self.watch(instance, name);
        Some(instance)
    }

    /// An instance gets no more requests; those that it has it finishes.
    fn leave(self: &Arc<Self>, instance: InstanceId) {
        self.feed(|locked, now| {
            locked
                .engine
                .instance_left(now, instance, &mut locked.actions)
        });
        let mut members = self.members.lock();
        if let Some(member) = members.remove(&instance) {
            member.stop.cancel();
            self.meters.instance_left(instance.pool, &member.name);
            tracing::info!(instance = %member.name, pool = instance.pool.0, "instance left");
        }
    }

    /// Has instances join and leave as `view` says, until the driver stops.
    pub(crate) async fn keep_up(self: Arc<Self>, pool: PoolId, mut view: watch::Receiver<View>) {
        let mut known: BTreeMap<Place, InstanceId> = BTreeMap::new();
        loop {
            let now = view.borrow_and_update().clone();
            {
                // Under the table's lock, so that a driver that is retired meanwhile brings no
                // series back.
                let mut discovering = self.discovering.lock();
                if self.retired.is_cancelled() {
                    return;
                }
                discovering.insert(pool);
                self.meters.discovery_up(pool, now.is_current);
            }
            let change = difference(&known, &now.addresses);
            let joined = change.joined.into_iter();
            known.extend(joined.filter_map(|place| {
                let instance = self.join(pool, &place)?;
                Some((place, instance))
            }));
            for (place, instance) in change.left {
                known.remove(&place);
                self.leave(instance);
            }
            tokio::select! {
                () = self.retired.cancelled() => return,
                changed = view.changed() => if changed.is_err() { return },
            }
        }
    }
}
