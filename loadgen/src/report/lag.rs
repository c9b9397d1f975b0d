//! Lag of the generator behind its schedule.
//!
//! Latency counts from the planned time, so a late send is charged to the server. That is right for
//! lateness which the server caused, and here it causes none (sends wait for nothing); all lag is
//! the generator's own. A run whose 99th percentile of lag exceeds `max(1 ms, 5 % of the median
//! latency)` measures the generator, and is not valid.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Summary, latency_histogram};
use crate::run::{Record, Recording};

const LEAST_LIMIT_MS: f64 = 1.0;
const SHARE_OF_MEDIAN: f64 = 0.05;

/// Time from planned to actual sends, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct LagReport {
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
    /// Largest p99 of a valid run.
    pub limit: f64,
}

/// Largest p99 lag of a valid run whose answers have this median latency; without answers there is
/// none to compare with.
pub fn lag_limit_ms(median_latency_ms: Option<f64>) -> f64 {
    LEAST_LIMIT_MS.max(median_latency_ms.unwrap_or_default() * SHARE_OF_MEDIAN)
}

impl LagReport {
    pub fn of(recording: &Recording) -> Self {
        let lag = Summary::of_micros(recording.records.iter().filter_map(Record::lag_us));
        let answered = Summary::of(&latency_histogram(&recording.records));
        let (p50, p99, max) = lag.map_or((0.0, 0.0, 0.0), |lag| (lag.p50, lag.p99, lag.max));
        Self {
            p50,
            p99,
            max,
            limit: lag_limit_ms(answered.map(|latency| latency.p50)),
        }
    }

    pub fn is_valid(&self) -> bool {
        self.p99 <= self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_a_millisecond_or_a_twentieth_of_the_median() {
        assert_eq!(lag_limit_ms(None), 1.0);
        assert_eq!(lag_limit_ms(Some(4.0)), 1.0);
        assert_eq!(lag_limit_ms(Some(100.0)), 5.0);
        let lag = |p99| LagReport {
            p50: 0.0,
            p99,
            max: 9.0,
            limit: 1.0,
        };
        assert!(lag(1.0).is_valid() && !lag(1.1).is_valid());
    }
}
