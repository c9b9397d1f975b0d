//! Measurements of a comparison.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::payload::WireEncoding;
use crate::run::{Record, Recording};
use crate::schedule::Arrivals;

/// A finished comparison, or as much of it as there is.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    pub settings: Settings,
    /// Measurements of each strategy. Block `i` of every strategy had the same planned
    /// times and rows.
    pub strategies: Vec<Measured>,
    pub faults: Vec<FaultMark>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Settings {
    pub model: String,
    /// Seed of the schedule and of the order of rows.
    pub seed: u64,
    pub arrivals: Arrivals,
    pub rate: f64,
    /// Blocks planned for each strategy.
    pub blocks: usize,
    /// Seconds of load in each block.
    pub block_s: f64,
    pub timeout_ms: u64,
    pub encoding: WireEncoding,
    /// Deadline that requests carried, if they did.
    pub deadline_ms: Option<u64>,
    /// File of the rows that were sent.
    pub images: String,
    /// File of their classes, if given.
    pub labels: Option<String>,
    /// Anything else worth telling a reader, such as the machine or how stragglers were made.
    pub notes: BTreeMap<String, String>,
}

impl Settings {
    pub(crate) fn load(&self) -> String {
        let Self {
            arrivals,
            rate,
            seed,
            ..
        } = self;
        format!("{arrivals} arrivals, {rate} requests/s, seed {seed}")
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Short name, unlike the others'.
    pub name: String,
    pub description: String,
    /// Instances that it ran on, those for redundancy included; `None` if unknown.
    pub instances: Option<usize>,
    /// Its blocks, in the order of the schedule.
    pub blocks: Vec<Block>,
    /// Blocks that were measured again because the generator had been late or the machine had stood
    /// still; what was measured first is not in `blocks`.
    pub repeated_blocks: usize,
    /// Number of those in which the machine had stood still ([`Block::is_disturbed`]).
    pub stalled_repeats: usize,
    /// Redundant work over all its blocks; `None` if unknown.
    pub redundancy: Option<Redundancy>,
}

impl Measured {
    /// All blocks as one recording, whose times count from the comparison's start. The lulls
    /// between blocks stay.
    pub fn recording(&self) -> Recording {
        let from_start =
            |started_s: f64, time: Duration| Duration::from_secs_f64(started_s.max(0.0)) + time;
        let mut whole = Recording {
            records: Vec::with_capacity(
                self.blocks
                    .iter()
                    .map(|block| block.recording.records.len())
                    .sum(),
            ),
            sending_ended: Duration::ZERO,
            ended: Duration::ZERO,
            partial: false,
        };
        for Block {
            started_s,
            recording,
            ..
        } in &self.blocks
        {
            let shift = (started_s * 1e6) as u64;
            whole
                .records
                .extend(recording.records.iter().map(|record| Record {
                    planned_us: record.planned_us + shift,
                    sent_us: record.sent_us.map(|at| at + shift),
                    done_us: record.done_us.map(|at| at + shift),
                    ..*record
                }));
            whole.sending_ended = from_start(*started_s, recording.sending_ended);
            whole.ended = from_start(*started_s, recording.ended);
            whole.partial |= recording.partial;
        }
        whole
    }
}

/// An uninterrupted stretch of load on one strategy.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    /// When it started, in seconds since the comparison did.
    pub started_s: f64,
    /// Its requests; their times count from the block's start.
    pub recording: Recording,
    /// True if the generator kept the block's schedule ([`crate::report::LagReport::is_valid`]).
    pub valid: bool,
    /// Stalls of the machine meanwhile; `None` if they were not watched.
    pub stalls: Option<HostStalls>,
}

/// Cores of the machine that nothing could run on, because its host ran another one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HostStalls {
    /// Milliseconds of all cores together, in stalls of at least 3 ms.
    pub total_ms: f64,
    /// The longest stall, in milliseconds.
    pub longest_ms: f64,
}

/// The share of the time that a percentile of 99.9 sees.
const DISTURBING_SHARE: f64 = 0.001;

impl Block {
    /// Returns true if the machine stood still for long enough to be seen in the 99.9th percentile,
    /// whatever was measured: for a thousandth of the time.
    pub fn is_disturbed(&self) -> bool {
        let block_ms = self.recording.ended.as_secs_f64() * 1e3;
        self.stalls
            .is_some_and(|stalls| stalls.total_ms > block_ms * DISTURBING_SHARE)
    }
}

/// Work beside the one prediction that each request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Redundancy {
    /// Redundant requests sent to instances: parity queries, copies, hedges.
    pub issued: u64,
    /// Redundant requests whose answer was used.
    pub won: u64,
    /// Redundant requests whose answer was not needed.
    pub wasted: u64,
    /// Redundant requests not sent, for want of room.
    pub shed: u64,
    /// Redundant requests that failed.
    pub failed: u64,
    /// Coding groups in which a late member could not be reconstructed.
    pub unrecoverable: u64,
    pub groups: u64,
    /// All requests sent to instances.
    pub upstream_requests: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FaultMark {
    /// When it began, in seconds since the comparison's start.
    pub at_s: f64,
    /// When it ended; `None` where it is a moment, or did not end.
    pub until_s: Option<f64>,
    /// Event, such as `stopped`.
    pub what: String,
    pub instance: String,
    /// The strategy whose cluster it hit; `None` if it hit all.
    pub strategy: Option<String>,
}
