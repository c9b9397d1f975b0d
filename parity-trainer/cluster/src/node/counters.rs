//! What a node counts.

use parapet_parameter_server::{Link, Traffic};

/// What happened to messages since the start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counters {
    pub received: u64,
    pub sent: u64,
    /// Messages for which there was no connection or no room: they are sent again
    /// when nobody answers.
    pub dropped: u64,
    /// Connections that were made.
    pub connected: u64,
    /// Connections that were lost.
    pub lost: u64,
    /// What filters made of the messages that were sent.
    pub filtered: Traffic,
    /// What they had made of those that were received.
    pub unfiltered: Traffic,
}

impl Counters {
    /// Adds what a connection has counted.
    pub(crate) fn add(&mut self, link: &Link) {
        self.filtered.add(link.traffic());
        self.unfiltered.add(link.received());
    }
}
