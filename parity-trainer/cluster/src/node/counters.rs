//! Counters of a node.

use parapet_parameter_server::{Link, Traffic};

/// Counts of messages since the start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counters {
    pub received: u64,
    pub sent: u64,
    /// Messages for which there was no connection or no room: they are sent again after a wait.
    pub dropped: u64,
    /// Connections that were made.
    pub connected: u64,
    /// Connections that were lost.
    pub lost: u64,
    /// Bytes of sent messages, before and after filters.
    pub filtered: Traffic,
    /// Bytes of received messages, before and after filters.
    pub unfiltered: Traffic,
}

impl Counters {
    /// Adds what a connection has counted.
    pub(crate) fn add(&mut self, link: &Link) {
        self.filtered.add(link.traffic());
        self.unfiltered.add(link.received());
    }
}
