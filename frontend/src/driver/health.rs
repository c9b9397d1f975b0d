//! Watches one instance: checks it on a timer, and out of turn when the engine suspects it.

use std::sync::Arc;
use std::time::Duration;

use parapet_frontend_core::InstanceId;
use rand::Rng;

use super::{Driver, Member};
use crate::config::HealthSettings;
use crate::upstream::{Transport, ready_within};

pub(super) async fn watch<T: Transport>(
    driver: Arc<Driver<T>>,
    instance: InstanceId,
    member: Member,
    settings: HealthSettings,
) {
    let Member { name, asked, stop } = member;
    let mut failures = settings.failures;
    let mut known_up = false;
    loop {
        let ready = tokio::select! {
            () = stop.cancelled() => return,
            ready = ready_within(&driver.transport, instance, &settings) => ready,
        };
        failures = if ready { 0 } else { failures.saturating_add(1) };
        let up = failures < settings.failures;
        if up != known_up {
            tracing::info!(instance = %name, pool = instance.pool.0, up, "instance changed state");
            known_up = up;
        }
        // A suspected instance is down for the engine already; only a check that succeeds brings it back.
        if ready || !up {
            driver.found(instance, ready);
        }
        let interval = if ready { settings.interval } else { settings.recovery_interval };
        tokio::select! {
            () = stop.cancelled() => return,
            () = asked.notified() => {}
            () = tokio::time::sleep(jittered(interval)) => {}
        }
    }
}

/// Up to a tenth more or less, so that many frontends do not check in step.
fn jittered(interval: Duration) -> Duration {
    interval.mul_f64(rand::rng().random_range(0.9..1.1))
}
