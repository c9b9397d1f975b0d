//! Counters that the core keeps; the driver exports them.

/// Running totals since the engine's start, but for the gauges at the end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Queries accepted.
    pub accepted: u64,
    /// Queries refused because a bound was reached.
    pub rejected: u64,
    /// Answered with the deployed model's own prediction.
    pub exact: u64,
    /// Answered with a reconstruction.
    pub reconstructed: u64,
    /// Answered with an error, the deadline's included.
    pub failed: u64,
    /// Of those, because the deadline came.
    pub deadline_exceeded: u64,
    /// Clients that went away before their answer.
    pub abandoned: u64,
    /// Attempts after a failed one.
    pub retries: u64,
    /// Coding groups encoded.
    pub groups_encoded: u64,
    /// Of those, completed with recently answered queries (CG-5).
    pub groups_completed_with_fillers: u64,
    /// Queries that joined no group, since too many kinds of query are about.
    pub uncoded: u64,
    /// Parity queries sent (redundant requests issued).
    pub redundant_issued: u64,
    /// Reconstructions that answered a query (redundant work that won).
    pub redundant_won: u64,
    /// Parity queries whose group did not need them in the end.
    pub redundant_wasted: u64,
    /// Parity queries not sent: budget, overload, no parity instance (CG-7).
    pub redundant_shed: u64,
    /// Parity queries that failed.
    pub redundant_failed: u64,
    /// Reconstructions refused: they came after the exact prediction, or were not finite.
    pub reconstructions_dropped: u64,
    /// Queries that were late with no way to reconstruct them when they came to be.
    pub late_unrecoverable: u64,
    /// A second answer for one query was about to be given. Always 0: CG-1.
    pub cg1_violations: u64,
    /// Gauge: queries in the table.
    pub queries_tracked: u64,
    /// Gauge: coding groups in memory.
    pub groups_tracked: u64,
    /// Gauge: the current hold-back in microseconds.
    pub hold_back_us: u64,
}
