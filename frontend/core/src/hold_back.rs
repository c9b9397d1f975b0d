//! When a query counts as late (CG-4).
//!
//! ParM answers with whichever comes first, exact or reconstructed. Wherever service times vary at
//! all, that turns a large share of answers into approximations for no gain at the tail. Here a
//! reconstruction may answer only once the query has waited longer than nearly all exact
//! predictions take: a percentile of their recent latency, or a fixed time.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::latency::{empty, record};
use crate::{HoldBackOverride, Stats, Time};

/// Time that a reconstruction is held back after the query's arrival.
#[derive(Debug, Clone, PartialEq)]
pub enum HoldBackPolicy {
    /// Always this long. Zero is ParM's own behaviour.
    Fixed(Duration),
    /// The `percentile` (0 to 1) of the latency, arrival to exact prediction, of recent queries.
    /// Late ones count with the time that they took in the end, else the estimate would learn from
    /// survivors only and creep down.
    Learned {
        /// The quantile, as 0.97.
        percentile: f64,
        /// Never less than this.
        min: Duration,
        /// Never more than this; also the value until [`Self::WARM_UP`] predictions are seen.
        max: Duration,
        /// Never more than this many medians of the same latency. Once stragglers are more frequent
        /// than `percentile` leaves room for, the quantile is their own latency, and a client that
        /// waits for it waits for them; the median is a healthy instance's until half of all are
        /// slow. Infinite for no such bound.
        max_over_median: f64,
    },
}

/// Learns how long to hold reconstructions back.
#[derive(Debug)]
pub(crate) struct HoldBack {
    configured: HoldBackPolicy,
    /// Policy in force: the configured one, or an override.
    policy: HoldBackPolicy,
    /// Two half windows: `current` fills while `previous` still counts.
    current: Histogram<u32>,
    previous: Histogram<u32>,
    seen: u64,
    delay: Duration,
}

impl HoldBackPolicy {
    /// Exact predictions seen before a learned percentile is used.
    pub const WARM_UP: u64 = 100;
    /// Default of `max_over_median`.
    pub const MAX_OVER_MEDIAN: f64 = 1.5;
    /// Default of `min`.
    pub const MIN: Duration = Duration::from_millis(1);
    /// Default of `max`.
    pub const MAX: Duration = Duration::from_millis(200);

    /// A percentile of recent latency within the default bounds.
    pub const fn learned(percentile: f64) -> Self {
        Self::Learned {
            percentile,
            min: Self::MIN,
            max: Self::MAX,
            max_over_median: Self::MAX_OVER_MEDIAN,
        }
    }

    /// Returns the hold-back until predictions have been seen.
    fn initial(&self) -> Duration {
        match self {
            Self::Fixed(delay) => *delay,
            Self::Learned { max, .. } => *max,
        }
    }

    /// Returns the policy with the override's values in place of its own.
    fn changed(&self, change: HoldBackOverride) -> Self {
        match (change, self) {
            (HoldBackOverride::Fixed(delay), _) => Self::Fixed(delay),
            (HoldBackOverride::Percentile(percentile), Self::Fixed(_)) => Self::learned(percentile),
            (
                HoldBackOverride::Percentile(percentile),
                &Self::Learned { min, max, max_over_median, .. },
            ) => Self::Learned { percentile, min, max, max_over_median },
        }
    }
}

impl HoldBack {
    const HALF_WINDOW: u64 = 2_000;
    const REFRESH: u64 = 32;

    pub(crate) fn new(policy: HoldBackPolicy) -> Self {
        let delay = policy.initial();
        Self {
            configured: policy.clone(),
            policy,
            current: empty(),
            previous: empty(),
            seen: 0,
            delay,
        }
    }

    /// Replaces the configured policy; `None` puts it back. What was learned is kept.
    pub(crate) fn set_override(&mut self, change: Option<HoldBackOverride>) {
        self.policy = change
            .map_or_else(|| self.configured.clone(), |change| self.configured.changed(change));
        self.delay = self.estimate().unwrap_or(match self.policy {
            HoldBackPolicy::Fixed(delay) => delay,
            // Nothing has been learned: as it would be without the change.
            HoldBackPolicy::Learned { .. } => self.configured.initial(),
        });
    }

    /// Time after its arrival at which a query counts as late.
    pub(crate) fn delay(&self) -> Duration {
        self.delay
    }

    /// When a query that arrived at `arrived` counts as late.
    pub(crate) fn late_at(&self, arrived: Time) -> Time {
        arrived + self.delay
    }

    /// Publishes the delay; of several, the longest.
    pub(crate) fn report(&self, stats: &mut Stats) {
        let micros = u64::try_from(self.delay.as_micros()).unwrap_or(u64::MAX);
        stats.hold_back_us = stats.hold_back_us.max(micros);
    }

    /// An exact prediction came `latency` after its query's arrival.
    pub(crate) fn observe(&mut self, latency: Duration) {
        let is_fixed = |policy: &HoldBackPolicy| matches!(policy, HoldBackPolicy::Fixed(_));
        if is_fixed(&self.configured) && is_fixed(&self.policy) {
            return;
        }
        record(&mut self.current, latency);
        self.seen += 1;
        if self.seen.is_multiple_of(Self::REFRESH)
            && let Some(delay) = self.estimate()
        {
            self.delay = delay;
        }
        if self.seen.is_multiple_of(Self::HALF_WINDOW) {
            std::mem::swap(&mut self.current, &mut self.previous);
            self.current.reset();
        }
    }

    /// Returns the learned estimate; `None` without enough observations, or with a fixed hold-back.
    fn estimate(&self) -> Option<Duration> {
        let HoldBackPolicy::Learned { percentile, min, max, max_over_median } = self.policy else {
            return None;
        };
        if self.seen < HoldBackPolicy::WARM_UP {
            return None;
        }
        let (quantile, median) = self.quantile_and_median(percentile);
        let late = (quantile as f64).min(median as f64 * max_over_median);
        Some(Duration::from_micros(late as u64).clamp(min, max.max(min)))
    }

    /// A quantile and the median over both half windows, in microseconds.
    fn quantile_and_median(&self, quantile: f64) -> (u64, u64) {
        let both = |histogram: &Histogram<u32>| {
            (histogram.value_at_quantile(quantile), histogram.value_at_quantile(0.5))
        };
        if self.previous.is_empty() {
            return both(&self.current);
        }
        let mut merged = self.previous.clone();
        if merged.add(&self.current).is_err() { both(&self.current) } else { both(&merged) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learned(percentile: f64) -> HoldBack {
        HoldBack::new(HoldBackPolicy::Learned {
            percentile,
            min: Duration::from_micros(500),
            max: Duration::from_millis(200),
            max_over_median: HoldBackPolicy::MAX_OVER_MEDIAN,
        })
    }

    #[test]
    fn stragglers_more_frequent_than_the_percentile_allows_do_not_raise_it_to_their_own_latency() {
        let mut hold_back = learned(0.97);
        for query in 0..10_000 {
            hold_back.observe(Duration::from_millis(if query % 5 == 0 { 60 } else { 20 }));
        }
        let late = hold_back.delay().as_micros();
        assert!((29_500..=30_500).contains(&late), "a fifth are stragglers: {late}");
    }

    #[test]
    fn waits_the_maximum_until_it_has_learned() {
        let mut hold_back = learned(0.95);
        for _ in 0..HoldBackPolicy::WARM_UP - 1 {
            hold_back.observe(Duration::from_millis(5));
        }
        assert_eq!(hold_back.delay(), Duration::from_millis(200));
        for _ in 0..HoldBack::REFRESH {
            hold_back.observe(Duration::from_millis(5));
        }
        let learned = hold_back.delay().as_micros();
        assert!((4_900..=5_200).contains(&learned), "{learned}");
    }

    #[test]
    fn follows_a_change_of_latency_within_a_window() {
        let mut hold_back = learned(0.9);
        for _ in 0..10_000 {
            hold_back.observe(Duration::from_millis(5));
        }
        for _ in 0..5_000 {
            hold_back.observe(Duration::from_millis(20));
        }
        let learned = hold_back.delay().as_micros();
        assert!((19_500..=20_500).contains(&learned), "{learned}");
    }

    #[test]
    fn stays_within_its_bounds() {
        let mut hold_back = learned(0.99);
        for _ in 0..200 {
            hold_back.observe(Duration::from_secs(90));
        }
        assert_eq!(hold_back.delay(), Duration::from_millis(200));
        for _ in 0..10_000 {
            hold_back.observe(Duration::from_nanos(10));
        }
        assert_eq!(hold_back.delay(), Duration::from_micros(500));
    }

    #[test]
    fn what_is_put_in_its_place_holds_until_it_is_taken_back() {
        let mut hold_back = learned(0.9);
        (0..1000).for_each(|_| hold_back.observe(Duration::from_millis(5)));
        let before = hold_back.delay();
        hold_back.set_override(Some(HoldBackOverride::Fixed(Duration::from_millis(40))));
        assert_eq!(hold_back.delay(), Duration::from_millis(40));
        (0..10_000).for_each(|_| hold_back.observe(Duration::from_millis(8)));
        assert_eq!(hold_back.delay(), Duration::from_millis(40), "it is fixed");
        hold_back.set_override(None);
        let after = hold_back.delay();
        assert!(
            after > before && after < Duration::from_millis(9),
            "it went on learning: {after:?}"
        );
    }

    #[test]
    fn another_percentile_is_of_what_was_learned() {
        let mut hold_back = learned(0.5);
        (0..1000).for_each(|query| hold_back.observe(Duration::from_micros(5_000 + query)));
        let median = hold_back.delay();
        hold_back.set_override(Some(HoldBackOverride::Percentile(0.99)));
        assert!(hold_back.delay() > median + Duration::from_micros(400), "{:?}", hold_back.delay());
        hold_back.set_override(Some(HoldBackOverride::Percentile(0.5)));
        assert_eq!(hold_back.delay(), median);
    }

    #[test]
    fn where_none_was_learned_a_percentile_holds_once_it_is_known() {
        let fixed = Duration::from_millis(22);
        let mut hold_back = HoldBack::new(HoldBackPolicy::Fixed(fixed));
        hold_back.set_override(Some(HoldBackOverride::Percentile(0.9)));
        assert_eq!(hold_back.delay(), fixed);
        (0..1000).for_each(|_| hold_back.observe(Duration::from_millis(5)));
        assert!(hold_back.delay() < Duration::from_millis(6));
        hold_back.set_override(None);
        assert_eq!(hold_back.delay(), fixed);
    }

    #[test]
    fn fixed_does_not_learn() {
        let mut hold_back = HoldBack::new(HoldBackPolicy::Fixed(Duration::from_millis(22)));
        for _ in 0..500 {
            hold_back.observe(Duration::from_secs(1));
        }
        assert_eq!(hold_back.late_at(Time::ZERO), Time::ZERO + Duration::from_millis(22));
    }
}
