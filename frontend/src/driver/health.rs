//! Watches one instance: checks it on a timer, and out of turn when the engine suspects it.

use std::sync::Arc;
use std::time::Duration;

use parapet_frontend_core::InstanceId;
use rand::Rng;
use tokio::time::Instant;

use super::{Driver, Member};
use crate::config::HealthSettings;
use crate::upstream::{Transport, Unready, ready_within};

/// While an instance is down, another reason is told this long after the last one at the earliest.
const RETOLD: Duration = Duration::from_secs(30);

pub(super) async fn watch<T: Transport>(
    driver: Arc<Driver<T>>,
    instance: InstanceId,
    member: Member,
    settings: HealthSettings,
) {
    let Member {
        name,
        asked,
        stop,
        unready,
    } = member;
    let mut failures = settings.failures;
    let mut logged = LoggedState::default();
    loop {
        let result = tokio::select! {
            () = stop.cancelled() => return,
            result = ready_within(&driver.transport, instance, &settings) => result,
        };
        let (ready, reason) = (result.is_ok(), result.err());
        failures = if ready { 0 } else { failures.saturating_add(1) };
        let up = failures < settings.failures;
        if logged.is_new(up, reason.as_ref()) {
            let pool = instance.pool.0;
            match &reason {
                Some(reason) if !up => {
                    tracing::warn!(instance = %name, pool, %reason, "instance is down")
                }
                _ => tracing::info!(instance = %name, pool, "instance is up"),
            }
        }
        *unready.lock() = reason;
        // A suspected instance is down for the engine already; only a check that succeeds brings it
        // back.
        if ready || !up {
            driver.found(instance, ready);
        }
        let interval = if ready {
            settings.interval
        } else {
            settings.recovery_interval
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = asked.notified() => {}
            () = tokio::time::sleep(jittered(interval)) => {}
        }
    }
}

/// State of an instance that has been logged.
#[derive(Debug, Default)]
struct LoggedState {
    up: Option<bool>,
    reason: Option<Unready>,
    at: Option<Instant>,
}

impl LoggedState {
    /// Returns true if the log is to have this, which it then has.
    fn is_new(&mut self, up: bool, reason: Option<&Unready>) -> bool {
        let changed = self.up != Some(up);
        let another = !up && self.reason.as_ref() != reason;
        let long_ago = self.at.is_none_or(|at| at.elapsed() >= RETOLD);
        let is_new = changed || (another && long_ago);
        if is_new {
            *self = Self {
                up: Some(up),
                reason: reason.cloned(),
                at: Some(Instant::now()),
            };
        }
        is_new
    }
}

/// Up to a tenth more or less, so that many frontends do not check in step.
fn jittered(interval: Duration) -> Duration {
    interval.mul_f64(rand::rng().random_range(0.9..1.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_state_is_told_once_and_another_reason_after_a_while() {
        let (refused, late) = (
            Unready::Unreachable("refused".to_owned()),
            Unready::TooLate(RETOLD),
        );
        let mut logged = LoggedState::default();
        assert!(
            logged.is_new(false, Some(&refused)),
            "the first check counts as news"
        );
        assert!(!logged.is_new(false, Some(&refused)) && !logged.is_new(false, Some(&late)));
        tokio::time::advance(RETOLD).await;
        assert!(
            !logged.is_new(false, Some(&refused)),
            "the same reason is never logged again"
        );
        assert!(logged.is_new(false, Some(&late)) && !logged.is_new(false, Some(&refused)));
        assert!(logged.is_new(true, None) && !logged.is_new(true, None));
        assert!(
            !logged.is_new(true, Some(&late)),
            "one failure of several does not take it down"
        );
        assert!(logged.is_new(false, Some(&late)));
    }
}
