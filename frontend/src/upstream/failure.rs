//! Failures of requests to instances. Clients see a [`Failure`]: the address of the instance goes
//! to the log instead.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parapet_frontend_core::{Failure, FailureKind};
use parapet_open_inference::Excerpt;
use tokio::time::Instant;

/// Least time between two warnings; the other failures are in the log at level debug.
const WARN_EVERY: Duration = Duration::from_secs(1);

static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);
/// Milliseconds from the start until the next warning is due.
static WARN_AT: AtomicU64 = AtomicU64::new(0);

/// Failure of a request to the instance at `address`, which is logged.
pub(super) fn failure(address: &str, kind: FailureKind, reason: &str) -> Failure {
    let reason = Excerpt::from(reason);
    if kind.counts_as_instance_failure() && is_due(STARTED.elapsed()) {
        tracing::warn!(instance = address, %kind, %reason, "a request to an instance failed");
    } else {
        tracing::debug!(instance = address, %kind, %reason, "a request to an instance failed");
    }
    Failure::new(kind, reason.to_string())
}

fn is_due(now: Duration) -> bool {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let (now, next) = (millis(now), millis(now + WARN_EVERY));
    let later = |at| (now >= at).then_some(next);
    WARN_AT
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, later)
        .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_no_address_and_is_short() {
        let address = "10.0.0.7:9001";
        let long = "\u{200b}".repeat(1 << 20);
        for kind in [
            FailureKind::Unreachable,
            FailureKind::ConnectionLost,
            FailureKind::InstanceBusy,
            FailureKind::InstanceError,
            FailureKind::Refused,
            FailureKind::InvalidOutput,
            FailureKind::DeadlineExceeded,
        ] {
            let failure = failure(address, kind, &long);
            assert_eq!(failure.kind, kind);
            let text = failure.to_string();
            assert!(!text.contains(address) && text.len() < 2100, "{text}");
        }
        let reason = "400 Bad Request 4 rows; send 1 to 2";
        let refused = failure(address, FailureKind::Refused, reason).to_string();
        assert!(refused.ends_with(&format!(": {reason}")), "{refused}");
    }

    #[test]
    fn one_warning_a_second_is_due() {
        let due = |millis: u64| is_due(Duration::from_millis(1_000_000 + millis));
        assert_eq!(
            [0_u64, 1, 999, 1000, 1001, 2500].map(due),
            [true, false, false, true, false, true]
        );
    }
}
