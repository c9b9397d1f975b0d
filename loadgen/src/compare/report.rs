//! Results of a comparison.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{FaultMark, Redundancy, Settings, Warning};
use crate::report::{Accuracy, Answers, Counts, Summary};
use crate::target::Provenance;

pub const SCHEMA: &str = "parapet-loadgen/compare/2";

/// A comparison's figures. Times are milliseconds but where a name ends in `_s`, and count from
/// the planned send.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CompareReport {
    #[schemars(extend("const" = SCHEMA))]
    pub schema: String,
    pub valid: bool,
    pub partial: bool,
    pub settings: Settings,
    pub baseline: String,
    /// Rounds that every strategy finished; only these count.
    pub rounds: usize,
    pub bootstrap: Bootstrap,
    pub warnings: Vec<Warning>,
    pub strategies: Vec<StrategyReport>,
    pub faults: Vec<FaultMark>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bootstrap {
    pub resamples: usize,
    pub seed: u64,
}

impl Default for Bootstrap {
    fn default() -> Self {
        Self { resamples: 2000, seed: 1 }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StrategyReport {
    pub name: String,
    pub description: String,
    /// Instances that it ran on; absent if its frontend does not say.
    pub instances: Option<usize>,
    pub invalid_blocks: usize,
    /// Blocks that were measured again because the generator had not kept its schedule, which does
    /// not depend on what was measured.
    pub repeated_blocks: usize,
    pub counts: Counts,
    pub errors: BTreeMap<String, usize>,
    /// Of all requests that were due, as in a run's `latency.all`, but as exact order statistics:
    /// the value at `q` is the smallest that at least a share `q` of the requests do not exceed.
    pub latency: Summary,
    /// Confidence in the percentiles of `latency`, under the same names: `p50`, `p90`,
    /// `p99`, `p99_5`, `p99_9`.
    pub confidence: BTreeMap<String, Confidence>,
    pub gap_ms: Estimate,
    /// The baseline's gap over this one's, so more is better; absent where this one's is 0.
    pub gap_ratio: Option<Estimate>,
    /// This median over the baseline's, so less is better; absent where the baseline's is 0.
    pub p50_ratio: Option<Estimate>,
    /// Answers by how they came about; only kinds that occurred.
    pub provenance: BTreeMap<Provenance, Answers>,
    /// Accuracy over all answers; absent where no class is known.
    pub accuracy: Option<Accuracy>,
    pub cost: Cost,
    /// The whole distribution of `latency`, ascending, at most ten points for each factor of ten.
    pub spectrum: Vec<SpectrumPoint>,
    /// Latency over time, ascending; only stretches in which requests were due.
    pub series: Series,
}

/// A figure and the range that its true value is in with a confidence of 95 %, by the block
/// bootstrap; absent with fewer than two rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Estimate {
    pub value: f64,
    pub interval: Option<Interval>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    pub low: f64,
    pub high: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Confidence {
    /// Range by the block bootstrap, which heeds that neighbouring requests are slow together.
    pub bootstrap: Option<Interval>,
    /// Samples that are missing before the percentile may be quoted ([`samples_needed`]).
    pub needs_samples: u64,
}

/// Share of cases in which an interval encloses the true value.
pub const CONFIDENCE: f64 = 0.95;

/// The least number of samples with which the quantile `0 < quantile < 1` may be quoted: 6 for p50,
/// 368 for p99, 3,688 for p99.9.
///
/// The number of samples at or below the true quantile `q` is binomial, whatever their
/// distribution. The largest of `n` samples is an upper bound only if `1 - q^n >= (1 + C) / 2`, and
/// the smallest a lower one only if `1 - (1 - q)^n >= (1 + C) / 2`, with the confidence `C` (Hahn
/// and Meeker, *Statistical Intervals*, section 5.2). Before that, a percentile is a guess.
pub fn samples_needed(quantile: f64) -> u64 {
    let rarer = quantile.max(1.0 - quantile);
    (((1.0 - CONFIDENCE) / 2.0).ln() / rarer.ln()).ceil() as u64
}

/// Cost of redundancy, over all blocks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cost {
    /// Requests that were sent and not refused (429, 503, no connection).
    pub accepted: usize,
    /// Redundant requests issued for each accepted one; absent if none was accepted, or the
    /// frontend does not say.
    pub extra_work: Option<f64>,
    /// Redundant requests whose answer was not needed, per accepted one; absent as `extra_work` is.
    pub wasted_work: Option<f64>,
    /// The counts; absent if the frontend does not say.
    pub redundancy: Option<Redundancy>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SpectrumPoint {
    pub quantile: f64,
    pub ms: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    pub bin_s: f64,
    pub bins: Vec<Bin>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bin {
    /// Its beginning, in seconds since the comparison's start.
    pub at_s: f64,
    pub count: usize,
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

impl CompareReport {
    pub fn strategy(&self, name: &str) -> Option<&StrategyReport> {
        self.strategies.iter().find(|strategy| strategy.name == name)
    }
}

impl StrategyReport {
    pub(crate) fn is_tail_quotable(&self) -> bool {
        let confidence = self.confidence.get("p99_9");
        confidence.is_some_and(|confidence| confidence.needs_samples == 0)
    }
}
