//! Instances as people look at them.

use std::time::Duration;

use strum::Display;

use crate::InstanceId;

/// Availability of an instance, by the name that metrics and the live page show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display)]
#[strum(serialize_all = "snake_case")]
pub enum InstanceState {
    /// It gets requests.
    Up,
    /// Health checks fail, or a request to it took so long that it is to be checked first.
    Down,
    /// Its answers were bad; it gets none for a while.
    Ejected,
    /// It finishes what it has.
    Leaving,
}

/// One instance as it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say what the fields are")]
pub struct InstanceView {
    pub id: InstanceId,
    pub state: InstanceState,
    /// Requests in flight there.
    pub in_flight: u32,
    /// For how long the oldest of them has been.
    pub oldest: Option<Duration>,
    /// Moving average of its latency, in which each request counts an eighth.
    pub latency: Option<Duration>,
    /// Of its last requests, how many failed by its own fault, and how many those are. Begun anew
    /// when it is ejected.
    pub failed: (u32, u32),
    /// Times in a row that it was ejected.
    pub ejections: u32,
}
