//! Results of a simulation.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::compare::Redundancy;
use crate::report::{Counts, Latency, Summary};
use crate::run::Recording;
use crate::target::Provenance;

/// A simulation's figures. Times are milliseconds of virtual time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Simulated {
    /// True if it was ended before all queries were answered.
    pub partial: bool,
    /// Virtual seconds until the last answer.
    pub elapsed_s: f64,
    pub counts: Counts,
    /// From a query's arrival to its answer; those without one count as the deadline in `all`.
    pub latency: Latency,
    /// Answers by how they came about; only kinds that occurred.
    pub provenance: BTreeMap<Provenance, Answered>,
    /// Failed queries by kind, as a client sees them: `http-STATUS`.
    pub errors: BTreeMap<String, usize>,
    pub redundancy: Redundancy,
    /// Attempts after a failed one.
    pub retries: u64,
    /// Time after which queries counted as late at the end; zero where none ever does.
    pub hold_back_ms: f64,
    /// Use of each pool, in the order of their ids.
    pub pools: Vec<PoolUse>,
    /// Each query, if they were kept.
    #[serde(skip)]
    pub recording: Option<Recording>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Answered {
    pub count: u64,
    /// Share of all answers, `0.0..=1.0`.
    pub share: f64,
    pub latency: Summary,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PoolUse {
    pub role: String,
    pub instances: usize,
    /// Share of their time in which batches ran.
    pub utilisation: f64,
    /// Batches that began.
    pub batches: u64,
    /// Requests that waited for a slot at the frontend, averaged over time.
    pub mean_queue: f64,
    /// Most that did.
    pub max_queue: usize,
}
