//! Percentiles.

use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Longest time told apart: an hour; longer ones count as that.
const MAX_US: u64 = 3_600_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

/// An empty histogram of microseconds.
#[allow(
    clippy::expect_used,
    reason = "the arguments are constants in the range that the library documents"
)]
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MAX_US, SIGNIFICANT_DIGITS)
        .expect("bounds and digits are allowed")
}

/// A distribution of times, in milliseconds, to three significant digits (`mean` and `max` too).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    pub count: u64,
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p99_5: f64,
    pub p99_9: f64,
    pub max: f64,
}

impl Summary {
    /// Of microseconds; `None` without samples.
    pub fn of(histogram: &Histogram<u64>) -> Option<Self> {
        let quantile = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
        (!histogram.is_empty()).then(|| Self {
            count: histogram.len(),
            mean: histogram.mean() / 1e3,
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p99_5: quantile(0.995),
            p99_9: quantile(0.999),
            max: histogram.max() as f64 / 1e3,
        })
    }

    /// Percentiles, mean and maximum by the names of their fields.
    pub(crate) fn figures(&self) -> [(&'static str, f64); 7] {
        [
            ("p50", self.p50),
            ("mean", self.mean),
            ("p90", self.p90),
            ("p99", self.p99),
            ("p99_5", self.p99_5),
            ("p99_9", self.p99_9),
            ("max", self.max),
        ]
    }

    /// Of an iterator of microseconds; `None` if it is empty.
    pub(super) fn of_micros(times: impl Iterator<Item = u64>) -> Option<Self> {
        let mut histogram = histogram();
        times.for_each(|time| histogram.saturating_record(time));
        Self::of(&histogram)
    }
}
