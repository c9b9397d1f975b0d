//! Every interval and timeout, from one setting.

use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior, interval};

/// Intervals and timeouts in multiples of the heartbeat. A cluster has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Interval of heartbeats on each connection.
    pub heartbeat: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(100),
        }
    }
}

impl Timing {
    /// Heartbeats in a row that may be missed before a peer is suspected.
    pub const MISSED: u32 = 5;

    /// Time that a peer may be silent before it is suspected, and that a connection and its
    /// handshake may take.
    pub const fn silence(self) -> Duration {
        self.heartbeat.saturating_mul(Self::MISSED)
    }

    /// Wait before the second attempt to connect; it doubles with each further one.
    pub(super) fn first_backoff(self) -> Duration {
        self.heartbeat / 10
    }

    pub(super) const fn longest_backoff(self) -> Duration {
        self.heartbeat.saturating_mul(5)
    }

    pub(super) fn heartbeats(self) -> Interval {
        delayed(self.heartbeat)
    }

    /// Ticks at which a state machine is asked for messages to send again.
    pub(super) fn ticks(self) -> Interval {
        delayed(self.heartbeat / 5)
    }

    /// Wait after which a worker sends again what was not answered. Late: what a lost connection
    /// swallowed is sent again as soon as there is another, and a push that waits for a slow worker
    /// should not be sent over and over.
    pub(super) const fn client_resend(self) -> Duration {
        self.heartbeat.saturating_mul(20)
    }

    /// Wait after which a worker asks again after a refusal.
    pub(super) fn client_retry(self) -> Duration {
        self.heartbeat / 5
    }

    /// Wait after which a server sends a log entry again that the chain has not acknowledged.
    pub(super) const fn server_resend(self) -> Duration {
        self.heartbeat.saturating_mul(2)
    }

    /// Wait after which a server drops a copy that is not complete and gets no further: late, as a
    /// piece may take long over a slow network.
    pub(super) const fn forget(self) -> Duration {
        self.heartbeat.saturating_mul(300)
    }
}

fn delayed(period: Duration) -> Interval {
    let mut interval = interval(period.max(Duration::from_millis(1)));
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}
