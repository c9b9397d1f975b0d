//! The parameter server's data plane: what carries messages between the state machines of
//! `parapet-parameter-server`, and the tasks that drive those.
//!
//! - [`wire`]: bytes of handshakes and frames; pure.
//! - [`transport`]: connections over TCP or in memory.
//! - [`Membership`]: what a node hears from the registry and tells it.
//! - [`ServerNode`] and [`Worker`]: a state machine with connections, a clock and timers.
//!
//! Every interval and timeout follows from one setting, the heartbeat ([`Timing`]). Every queue is
//! bounded in bytes: a node takes a peer's requests only while there is room for the answers.

#![allow(
    clippy::large_enum_variant,
    reason = "messages are passed on at once: a box would cost an allocation for each"
)]

mod client;
mod connections;
mod membership;
mod server;
pub mod transport;
pub mod wire;

use std::time::Duration;

pub use parapet_parameter_server::Pulled;
use parapet_parameter_server::{ArrayFilters, ArrayId, Traffic};
use tokio::time::{Interval, MissedTickBehavior, interval};

pub use client::{Pending, TaskError, TaskSpec, Worker};
pub use membership::{Membership, Reporter};
pub use server::{ServerHandle, ServerNode};
pub use transport::Transport;

const AT_ONCE: usize = 128;

#[derive(Debug, Clone, Default)]
pub struct NodeConfig {
    /// The cluster's name; nodes of others are refused.
    pub cluster: String,
    pub transport: Transport,
    /// Filters on what it sends, of arrays that the registry does not describe; those that the
    /// receiver undoes. Others are applied before a push is submitted.
    pub filters: Vec<(ArrayId, ArrayFilters)>,
    pub timing: Timing,
    pub bounds: Bounds,
}

impl NodeConfig {
    pub fn new(cluster: &str, transport: Transport) -> Self {
        Self { cluster: cluster.to_owned(), transport, ..Self::default() }
    }
}

/// Bounds of a node's memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The longest message; all nodes of a cluster must have the same.
    pub max_frame: u64,
    /// Messages to one peer that wait to be sent, before its requests or further tasks wait.
    pub queue: usize,
    /// Received messages that wait to be handled.
    pub inbox: usize,
    /// Vectors that each connection keeps to be read into again, and a server to answer with.
    pub pooled: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { max_frame: 256 << 20, queue: 16 << 20, inbox: 64 << 20, pooled: 32 << 20 }
    }
}

/// Counts of a node's messages since the start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counters {
    pub received: u64,
    pub sent: u64,
    /// Messages for which there was no connection or no room: they are sent again after a wait.
    pub dropped: u64,
    pub connected: u64,
    pub lost: u64,
    pub filtered: Traffic,
    pub unfiltered: Traffic,
}

/// Intervals and timeouts in multiples of the heartbeat. A cluster has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    pub heartbeat: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self { heartbeat: Duration::from_millis(100) }
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

    /// Wait before the second attempt to connect; it doubles with each, up to [`Self::silence`].
    pub(super) fn first_backoff(self) -> Duration {
        self.heartbeat / 10
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
