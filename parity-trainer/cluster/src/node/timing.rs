//! Every interval and timeout, from one setting.

use std::time::Duration;

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

    /// Returns the time that a peer may be silent before it is suspected.
    pub const fn silence(self) -> Duration {
        self.heartbeat.saturating_mul(Self::MISSED)
    }

    /// Returns the time that a connection and its handshake may take.
    pub const fn connect(self) -> Duration {
        self.heartbeat.saturating_mul(Self::MISSED)
    }

    /// The wait before the second attempt to connect; it doubles with each further one.
    pub fn first_backoff(self) -> Duration {
        self.heartbeat / 10
    }

    /// The longest wait between attempts to connect.
    pub const fn longest_backoff(self) -> Duration {
        self.heartbeat.saturating_mul(5)
    }

    /// Interval at which a state machine is asked for messages to send again.
    pub fn tick(self) -> Duration {
        self.heartbeat / 5
    }

    /// When a worker sends again what was not answered. Late: what a lost connection swallowed is
    /// sent again as soon as there is another, and a push that waits for a slow worker should not
    /// be sent over and over.
    pub const fn client_resend(self) -> Duration {
        self.heartbeat.saturating_mul(20)
    }

    /// When a worker asks again after a refusal.
    pub fn client_retry(self) -> Duration {
        self.heartbeat / 5
    }

    /// When a server sends a log entry again that the chain has not acknowledged.
    pub const fn server_resend(self) -> Duration {
        self.heartbeat.saturating_mul(2)
    }

    /// When a server drops a copy that is not complete and gets no further: late, as a piece may
    /// take long over a slow network.
    pub const fn forget(self) -> Duration {
        self.heartbeat.saturating_mul(300)
    }
}
