//! The strategy's settings.

use std::time::Duration;

use parapet_encoder::Decoding;
use serde::{Deserialize, Serialize};

use crate::strategy::settings;
use crate::{HedgeBudget, HoldBackPolicy, PoolId, Row};

/// When a group's parity queries are sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SendParity {
    /// As soon as the group is full (ParM, SOSP 2019).
    AtOnce,
    /// When they are due to be in time for the first member that would be late.
    #[default]
    InTime,
    /// Once queries are late: only those form groups, of up to k. Needs a code with slots.
    WhenLate,
}

/// Settings of coded redundancy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodedConfig {
    /// Queries in a group.
    pub k: usize,
    /// Parity rows, each with its own pool.
    #[serde(default = "settings::number::<1>")]
    pub r: usize,
    /// Says which predictions parity outputs are enough for.
    #[serde(default)]
    pub decoding: Decoding,
    /// The pool of row 0's parity model; those of the other rows follow it. The deployed model's
    /// own, for a code that needs no parity models: then it is that of all rows.
    #[serde(skip, default = "first_redundant")]
    pub first_parity: PoolId,
    /// When a query counts as late.
    #[serde(default = "settings::learned_97", deserialize_with = "settings::late_at_97")]
    pub hold_back: HoldBackPolicy,
    /// When parity queries are sent.
    #[serde(default)]
    pub send_parity: SendParity,
    /// Time that a group may stay open while a query in it waits.
    #[serde(rename = "flush_after_ms", default = "settings::ms::<10>", with = "settings::millis")]
    pub flush_after: Duration,
    /// Time that the own prediction of a reconstructed query is awaited, to compare.
    #[serde(
        rename = "late_truth_wait_ms",
        default = "settings::late_truth_wait",
        with = "settings::millis"
    )]
    pub late_truth_wait: Duration,
    /// Time that a parity query may take.
    #[serde(
        rename = "parity_timeout_ms",
        default = "settings::ms::<1000>",
        with = "settings::millis"
    )]
    pub parity_timeout: Duration,
    /// Parity queries allowed for each accepted query over time. A full group costs r / k; a
    /// flushed one more.
    #[serde(default = "settings::whole::<1>")]
    pub redundant_share: f64,
    /// Parity queries allowed at once beyond that.
    #[serde(default = "settings::whole::<16>")]
    pub redundant_burst: f64,
    /// Issue no parity queries while more queries than this wait for a slot of the deployed model;
    /// as many as it has slots if `None`.
    pub shed_above: Option<usize>,
    /// Audit one in so many groups in which nothing straggled; 0 for none.
    #[serde(default = "audit_every")]
    pub audit_every: u64,
    /// Kinds of query with a group or fillers of their own. Domains share them.
    #[serde(default = "settings::number::<64>")]
    pub max_keys: usize,
    /// Memory of the inputs of answered queries that are kept, as fillers and in groups that are
    /// not yet full. Domains share it.
    #[serde(default = "settings::number::<{ 64 << 20 }>")]
    pub max_kept_bytes: usize,
    /// Budget of the late copies of `coded_hedged`.
    pub hedge: Option<HedgeBudget>,
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

const fn first_redundant() -> PoolId {
    PoolId::FIRST_REDUNDANT
}
const fn audit_every() -> u64 {
    50
}
