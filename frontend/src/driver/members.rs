//! The instances of the pools: joining, leaving, and checked on a timer, or out of turn when the
//! engine suspects one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parapet_frontend_core::{InstanceId, PoolId};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::Driver;
use crate::discovery::{Place, View, difference, sleep_about};
use crate::upstream::{Transport, Unready};

/// While an instance is down, another reason is logged this long after the last at the earliest.
const LOG_AGAIN: Duration = Duration::from_secs(30);
/// So long an instance that joined may take to be ready before that is worth a warning.
const STARTS_WITHIN: Duration = Duration::from_secs(30);

#[derive(Debug, Clone)]
pub(super) struct Member {
    /// Its address, as configured or found.
    pub(super) name: String,
    pub(super) asked: Arc<Notify>,
    stop: CancellationToken,
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
        let mut members = self.members.lock();
        if !self.retired.is_cancelled() {
            members.insert(instance, member.clone());
            let stop = member.stop.clone();
            let checking = Arc::clone(self).check(instance, member);
            tokio::spawn(stop.run_until_cancelled_owned(checking));
        }
    }

    async fn check(self: Arc<Self>, instance: InstanceId, member: Member) {
        let (health, pool, name) = (self.health.clone(), instance.pool.0, &member.name);
        let mut failures = health.failures;
        let mut logged = LoggedState::default();
        let (model, started, mut was_up) = (&self.meters.model, Instant::now(), false);
        loop {
            let checked = timeout(health.timeout, self.transport.ready(instance)).await;
            let reason = checked.unwrap_or(Err(Unready::TooLate(health.timeout))).err();
            let ready = reason.is_none();
            failures = if ready { 0 } else { failures.saturating_add(1) };
            let up = failures < health.failures;
            was_up |= ready;
            let state = match up {
                true => Health::Up,
                false if !was_up && started.elapsed() < STARTS_WITHIN => Health::Starting,
                false => Health::Down,
            };
            if logged.is_new(state, reason.as_ref()) {
                match (&reason, state) {
                    (Some(reason), Health::Starting) => {
                        tracing::info!(model, instance = %name, pool, %reason,
                            "instance is not up yet");
                    }
                    (Some(reason), Health::Down) => {
                        tracing::warn!(model, instance = %name, pool, %reason,
                            "instance is down");
                    }
                    _ => tracing::info!(model, instance = %name, pool, "instance is up"),
                }
            }
            *member.unready.lock() = reason;
            // Suspected, it is down for the engine already; only a successful check brings it back.
            if ready || !up {
                self.found(instance, ready);
            }
            let interval = if ready { health.interval } else { health.recovery_interval };
            tokio::select! {
                () = member.asked.notified() => {}
                () = sleep_about(interval) => {}
            }
        }
    }

    pub(crate) fn instances(&self) -> Vec<(PoolId, String)> {
        let members = self.members.lock();
        members.iter().map(|(instance, member)| (instance.pool, member.name.clone())).collect()
    }

    /// Looks for and checks no instance any more, and takes those out of the metrics that are not
    /// `kept`, and the pools that are not `discovered` any more.
    pub(crate) fn retire(
        &self,
        kept: impl Fn(PoolId, &str) -> bool,
        discovered: impl Fn(PoolId) -> bool,
    ) {
        self.retired.cancel();
        for pool in &*self.discovering.lock() {
            if !discovered(*pool) {
                self.meters.discovery_up(*pool, None);
            }
        }
        for (instance, member) in self.members.lock().drain() {
            if !kept(instance.pool, &member.name) {
                self.meters.instance_up(instance.pool, &member.name, None);
            }
        }
    }

    fn found(self: &Arc<Self>, instance: InstanceId, ready: bool) {
        self.feed_locked(|locked, now| {
            locked.was_up |= ready && instance.pool == PoolId::DEPLOYED;
            locked.engine.instance_up(now, instance, ready, &mut locked.actions);
        });
        // Under the table's lock, so a check ending late brings no departed instance's series back.
        if let Some(member) = self.members.lock().get(&instance) {
            self.meters.instance_up(instance.pool, &member.name, Some(ready));
        }
    }

    /// A new instance. It gets requests once a check finds it ready. `None` for an unknown pool.
    fn join(self: &Arc<Self>, pool: PoolId, place: &Place) -> Option<InstanceId> {
        let instance = self.feed(|engine, _, _| engine.instance_joined(pool))?;
        let name = self.transport.join(instance, place);
        tracing::info!(instance = %name, pool = pool.0, "instance joined");
        self.watch(instance, name);
        Some(instance)
    }

    /// An instance gets no more requests; those that it has it finishes.
    fn leave(self: &Arc<Self>, instance: InstanceId) {
        self.feed(|engine, now, actions| engine.instance_left(now, instance, actions));
        let mut members = self.members.lock();
        if let Some(member) = members.remove(&instance) {
            member.stop.cancel();
            self.meters.instance_up(instance.pool, &member.name, None);
            tracing::info!(instance = %member.name, pool = instance.pool.0, "instance left");
        }
    }

    /// Has instances join and leave as `view` says, until the driver stops.
    pub(crate) async fn keep_up(self: Arc<Self>, pool: PoolId, mut view: watch::Receiver<View>) {
        let mut known: BTreeMap<Place, InstanceId> = BTreeMap::new();
        loop {
            let now = view.borrow_and_update().clone();
            {
                // Under the table's lock, so that a driver retired meanwhile brings no series back.
                let mut discovering = self.discovering.lock();
                if self.retired.is_cancelled() {
                    return;
                }
                discovering.insert(pool);
                self.meters.discovery_up(pool, Some(now.is_current));
            }
            let (joined, left) = difference(&known, &now.addresses);
            known.extend(joined.into_iter().filter_map(|place| {
                let instance = self.join(pool, &place)?;
                Some((place, instance))
            }));
            for (place, instance) in left {
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    Up,
    /// Not up, and new.
    Starting,
    Down,
}

#[derive(Debug, Default)]
struct LoggedState {
    state: Option<Health>,
    reason: Option<Unready>,
    at: Option<Instant>,
}

impl LoggedState {
    /// Returns true if the log is to have this, which it then has.
    fn is_new(&mut self, state: Health, reason: Option<&Unready>) -> bool {
        let another = state != Health::Up && self.reason.as_ref() != reason;
        let long_ago = self.at.is_none_or(|at| at.elapsed() >= LOG_AGAIN);
        let is_new = self.state != Some(state) || (another && long_ago);
        if is_new {
            *self = Self { state: Some(state), reason: reason.cloned(), at: Some(Instant::now()) };
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_state_is_logged_once_and_another_reason_after_a_while() {
        let refused = Unready::Unreachable("refused".to_owned());
        let (refused, late) = (Some(&refused), Some(&Unready::TooLate(LOG_AGAIN)));
        let mut logged = LoggedState::default();
        assert!(logged.is_new(Health::Starting, refused));
        assert!(!logged.is_new(Health::Starting, refused));
        assert!(logged.is_new(Health::Down, refused), "it did not start in time");
        assert!(!logged.is_new(Health::Down, refused) && !logged.is_new(Health::Down, late));
        tokio::time::advance(LOG_AGAIN).await;
        assert!(!logged.is_new(Health::Down, refused), "the same reason is never logged again");
        assert!(logged.is_new(Health::Down, late) && !logged.is_new(Health::Down, refused));
        assert!(logged.is_new(Health::Up, None) && !logged.is_new(Health::Up, None));
        assert!(!logged.is_new(Health::Up, late), "one failure of several does not take it down");
        assert!(logged.is_new(Health::Down, late));
    }
}
