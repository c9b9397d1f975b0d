//! The strategy's settings.

use std::time::Duration;

use crate::{HoldBackPolicy, PoolId, Row};

/// Settings of coded redundancy.
#[derive(Debug, Clone, PartialEq)]
pub struct CodedConfig {
    /// Queries in a group.
    pub k: usize,
    /// Parity rows, each with its own pool.
    pub r: usize,
    /// The pool of row 0's parity model; those of the other rows follow it. The deployed model's
    /// own, for a code that needs no parity models: then it is that of all rows.
    pub first_parity: PoolId,
    /// When a query counts as late.
    pub hold_back: HoldBackPolicy,
    /// Send parity queries only when they are due to be in time for the first member that would be
    /// late, instead of at once.
    pub defer_parity: bool,
    /// Time that a group may stay open while a query in it waits.
    pub flush_after: Duration,
    /// Time that the own prediction of a reconstructed query is awaited, to compare.
    pub late_truth_wait: Duration,
    /// Time that a parity query may take.
    pub parity_timeout: Duration,
    /// Parity queries allowed for each accepted query over time. A full group costs r / k; a
    /// flushed one more.
    pub redundant_share: f64,
    /// Parity queries allowed at once beyond that.
    pub redundant_burst: f64,
    /// Issue no parity queries while more queries than this wait for a slot of the deployed model.
    pub shed_above: usize,
    /// Audit one in so many groups in which nothing straggled; 0 for none.
    pub audit_every: u64,
    /// Kinds of query with a group or fillers of their own. Domains share them.
    pub max_keys: usize,
    /// Memory of the inputs of answered queries that are kept, as fillers and in groups that are
    /// not yet full. Domains share it.
    pub max_kept_bytes: usize,
}

impl CodedConfig {
    /// Where the parity queries of `row` go.
    pub const fn parity_pool(&self, row: Row) -> PoolId {
        match self.first_parity {
            PoolId::DEPLOYED => PoolId::DEPLOYED,
            first => first.of_row(row),
        }
    }
}
