//! Counters that the core keeps; the driver exports them.

/// Running totals since the engine's start, but for the gauges at the end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say what the fields are")]
pub struct Stats {
    pub accepted: u64,
    /// Queries refused because a bound was reached.
    pub rejected: u64,
    /// Answered with the deployed model's own prediction from the query's own request.
    pub exact: u64,
    /// Answered with the deployed model's own prediction from a redundant copy.
    pub hedged: u64,
    /// Answered with a backup model's prediction.
    pub backup: u64,
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
    pub groups_encoded: u64,
    /// Of those, completed with recently answered queries (CG-5).
    pub groups_completed_with_fillers: u64,
    /// Coding groups whose members were all answered before their parity queries were due.
    pub groups_spared: u64,
    /// Queries that joined no group: too many kinds of query were about, or they may join none.
    pub uncoded: u64,
    /// Of redundant requests: copies, requests to a backup model, parity queries.
    pub redundant: RedundancyOutcomes,
    /// Reconstructions refused: they came after the exact prediction, or were not finite.
    pub reconstructions_dropped: u64,
    /// Queries that were late with no way to reconstruct them when they came to be.
    pub late_unrecoverable: u64,
    /// Times that an instance was ejected for its bad answers.
    pub ejections: u64,
    /// A second answer for one query was about to be given. Always 0: CG-1.
    pub cg1_violations: u64,
    /// Gauge: instances of the deployed model that are ejected.
    pub ejected: u64,
    /// Gauge: queries that may wait for a slot of the deployed model.
    pub queue_limit: u64,
    /// Slots of an instance of the deployed model.
    pub slots_per_instance: u64,
    /// Gauge: queries that wait for a slot of the deployed model.
    pub queued: u64,
    /// Gauge: queries in the table.
    pub queries_tracked: u64,
    /// Gauge: coding groups in memory.
    pub groups_tracked: u64,
    /// Gauge: memory of the inputs of answered queries that are kept for groups.
    pub kept_bytes: u64,
    /// Gauge: the current hold-back in microseconds.
    pub hold_back_us: u64,
}

/// Outcomes of redundant requests. Each that was sent ends as exactly one of won, wasted and failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RedundancyOutcomes {
    /// Sent; one that was withdrawn before its turn came is not among them.
    pub issued: u64,
    /// Of those, with an outcome that answered a query.
    pub won: u64,
    /// Of those, with an outcome that no query needed, or withdrawn.
    pub wasted: u64,
    /// Not sent: budget, overload, no instance for it (CG-7).
    pub shed: u64,
    /// Of those sent, failed.
    pub failed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Issued,
    Won,
    Wasted,
    Shed,
    Failed,
}

impl RedundancyOutcomes {
    pub(crate) fn count(&mut self, fate: Fate) {
        match fate {
            Fate::Issued => self.issued += 1,
            Fate::Won => self.won += 1,
            Fate::Wasted => self.wasted += 1,
            Fate::Shed => self.shed += 1,
            Fate::Failed => self.failed += 1,
        }
    }
}
