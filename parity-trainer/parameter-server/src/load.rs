//! Load distribution, after PSLD: a model of each server's service time, and chains that keep the
//! slowest server's time short.
//!
//! The time that servers themselves take, waits for other workers among it, is not counted: they
//! say how long they have held a request. What is left is the way to them and back, and their
//! queues, which are long where a link or a server is slow.

mod plan;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use plan::{Plan, plan};

use crate::{ArrayId, KeyRange, NodeId};

/// Weight of what was seen one observation earlier.
const FORGETTING: f64 = 0.8;

/// Observations before an estimate, by weight.
const LEAST: f64 = 2.4;

/// Service time of a server for a number of rows, which go there or come from there.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct ServiceTime {
    pub base_us: u64,
    pub row_ns: u64,
}

impl ServiceTime {
    /// Returns the seconds for so many rows; none for none.
    pub fn seconds(self, rows: u64) -> f64 {
        match rows {
            0 => 0.0,
            rows => self.base_us as f64 / 1e6 + self.row_ns as f64 / 1e9 * rows as f64,
        }
    }

    /// Returns true if they differ by more than a tenth for some number of rows that matters.
    pub fn is_far_from(self, other: Self) -> bool {
        let is_far = |own: u64, other: u64| 10 * own > 11 * other || 11 * own < 10 * other;
        is_far(self.row_ns, other.row_ns)
            || (is_far(self.base_us, other.base_us) && self.base_us.abs_diff(other.base_us) > 1_000)
    }
}

/// Least squares of `base + row x rows` with forgetting: old observations lose a fifth of their
/// weight with each new one. While the number of rows stays the same, all of the time is the rows'.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ServiceModel {
    weight: f64,
    rows: f64,
    rows_squared: f64,
    seconds: f64,
    product: f64,
}

impl ServiceModel {
    pub fn observe(&mut self, rows: u64, took: Duration) {
        let (rows, seconds) = (rows as f64, took.as_secs_f64());
        for (sum, new) in [
            (&mut self.weight, 1.0),
            (&mut self.rows, rows),
            (&mut self.rows_squared, rows * rows),
            (&mut self.seconds, seconds),
            (&mut self.product, rows * seconds),
        ] {
            *sum = *sum * FORGETTING + new;
        }
    }

    pub fn estimate(&self) -> Option<ServiceTime> {
        if self.weight < LEAST || self.rows_squared <= 0.0 {
            return None;
        }
        // A base is believed as far as one more observation, of none, does not contradict it.
        let weight = self.weight + 1.0;
        let determinant = weight * self.rows_squared - self.rows * self.rows;
        let base = (self.seconds * self.rows_squared - self.product * self.rows) / determinant;
        let base = base.max(0.0);
        let row = ((self.product - base * self.rows) / self.rows_squared).max(0.0);
        Some(ServiceTime {
            base_us: (base * 1e6).round() as u64,
            row_ns: (row * 1e9).round() as u64,
        })
    }
}

/// Chains that load distribution has chosen, in place of those of the ring.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LoadPlan {
    pub chains: Vec<(ArrayId, KeyRange, Vec<NodeId>)>,
    /// Shards that it moved, and the time of the slowest server before and after, as predicted.
    pub moved: usize,
    pub before_us: u64,
    pub after_us: u64,
}

/// Returns the median of what workers say of each server.
pub fn medians(
    told: impl IntoIterator<Item = (NodeId, ServiceTime)>,
) -> BTreeMap<NodeId, ServiceTime> {
    let mut all: BTreeMap<NodeId, Vec<ServiceTime>> = BTreeMap::new();
    for (node, time) in told {
        all.entry(node).or_default().push(time);
    }
    let median = |mut times: Vec<ServiceTime>| {
        times.sort_unstable_by_key(|time| (time.row_ns, time.base_us));
        times.get(times.len() / 2).copied()
    };
    all.into_iter().filter_map(|(node, times)| Some((node, median(times)?))).collect()
}
