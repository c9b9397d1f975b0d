//! Comparing redundancy strategies that served the same schedule.
//!
//! Strategies take turns, block by block (A B C A B C ...), so that whatever the machine does
//! meanwhile happens to all of them. A *round* is one block of each. Blocks of a round share their
//! planned times and rows; so the rounds, not the requests, are what the bootstrap draws, all
//! strategies' blocks of a round together. All of this is pure: from a runner's or simulator's
//! [`Comparison`] to [`CompareReport`].

mod analyse;
mod pool;
mod report;
mod series;
mod warning;

pub use analyse::analyse;
pub use report::{
    Bin, Bootstrap, CONFIDENCE, CompareReport, Confidence, Cost, Estimate, Interval, SCHEMA,
    Series, SpectrumPoint, StrategyReport, samples_needed,
};
pub(crate) use series::{recording_series, spectrum_of};
pub use warning::{Warning, WarningKind};

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::payload::WireEncoding;
use crate::run::{Record, Recording};
use crate::schedule::Arrivals;

#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    pub settings: Settings,
    /// Measurements of each strategy. Block `i` had the same planned times and rows for all.
    pub strategies: Vec<Measured>,
    pub faults: Vec<FaultMark>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Settings {
    pub model: String,
    pub seed: u64,
    pub arrivals: Arrivals,
    pub rate: f64,
    pub blocks: usize,
    pub block_s: f64,
    pub timeout_ms: u64,
    pub encoding: WireEncoding,
    pub deadline_ms: Option<u64>,
    pub images: String,
    pub labels: Option<String>,
    pub notes: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Measured {
    pub name: String,
    pub description: String,
    /// Instances that it ran on, those for redundancy included; `None` if unknown.
    pub instances: Option<usize>,
    pub blocks: Vec<Block>,
    /// Blocks that were measured again because the generator was late; `blocks` has the last ones.
    pub repeated_blocks: usize,
    /// Redundant work over all its blocks; `None` if unknown.
    pub redundancy: Option<Redundancy>,
}

impl Measured {
    /// The requests of all blocks, with times from the comparison's start.
    pub fn records(&self) -> Vec<Record> {
        let blocks = self.blocks.iter().flat_map(|block| {
            let shift = (block.started_s * 1e6) as u64;
            block.recording.records.iter().map(move |record| record.shifted(|at| at + shift))
        });
        blocks.collect()
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    /// When it started, in seconds since the comparison did.
    pub started_s: f64,
    /// Its requests; their times count from the block's start.
    pub recording: Recording,
    /// True if the generator kept the block's schedule ([`crate::report::LagReport::is_valid`]).
    pub valid: bool,
}

/// Work beside the one prediction that each request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Redundancy {
    /// Redundant requests sent to instances: parity queries, copies, hedges.
    pub issued: u64,
    pub won: u64,
    /// Redundant requests whose answer was not needed.
    pub wasted: u64,
    /// Redundant requests not sent, for want of room.
    pub shed: u64,
    pub failed: u64,
    /// Coding groups in which a late member could not be reconstructed.
    pub unrecoverable: u64,
    pub groups: u64,
    pub upstream_requests: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FaultMark {
    /// When it began, in seconds since the comparison's start.
    pub at_s: f64,
    /// When it ended; `None` where it is a moment, or did not end.
    pub until_s: Option<f64>,
    pub what: String,
    pub instance: String,
    /// The strategy whose cluster it hit; `None` if it hit all.
    pub strategy: Option<String>,
}
