//! The strategy's settings.

use std::time::Duration;

use crate::HoldBackPolicy;

/// Settings of interpolation in its authors' form.
#[derive(Debug, Clone, PartialEq)]
pub struct InterpolatedConfig {
    /// Queries in a group.
    pub k: usize,
    /// Coded queries beyond k: stragglers that a group outlasts (the authors' S).
    pub spare: usize,
    /// How long a query may wait for its group to fill. It joins one only if twice as long is left before its deadline.
    pub fill_within: Duration,
    /// When a group counts as late, after it was coded: then k outputs will do.
    pub hold_back: HoldBackPolicy,
    /// How long after its group was coded a query is sent as it is, if fewer than k outputs are there; at most half of what
    /// is left before its deadline.
    pub plain_after: Duration,
    /// How long a coded query may take.
    pub coded_timeout: Duration,
    /// How long an own prediction is awaited to compare with.
    pub late_truth_wait: Duration,
    /// Coded queries allowed for each accepted query over time. A group costs (k + spare) / k.
    pub redundant_share: f64,
    /// Coded queries allowed at once beyond that; at least k + spare.
    pub redundant_burst: f64,
    /// Withhold no query while more queries than this wait for a slot.
    pub shed_above: usize,
    /// In one of so many groups one query is sent as it is, too, once it is answered, to compare; 0 for none.
    pub audit_every: u64,
    /// Kinds of query with a group of their own.
    pub max_keys: usize,
}

impl InterpolatedConfig {
    /// Coded queries of a group.
    pub const fn workers(&self) -> usize {
        self.k + self.spare
    }
}
