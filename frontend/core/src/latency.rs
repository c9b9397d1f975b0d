//! Percentiles of latency in the last half minute, as answered and as they would have
//! been without approximations.
//!
//! A query that was answered with an approximation has its own request in flight still, to compare
//! ([`Comparison`]). When that one's prediction comes is when the query would have been answered
//! without redundancy; one that never comes counts with its deadline, which is the least that its
//! client would have waited. So both figures are of the same queries. Answers count when they are
//! given, late truths when they come, so that the second figure trails the first by the wait for a
//! late truth. Failed queries count only if it was for their deadline.
//!
//! [`Comparison`]: crate::Comparison

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::Time;

/// The window is this many slots long, the one that fills included.
const SLOTS: usize = 6;
const SLOT: Duration = Duration::from_secs(5);
/// Longest latency told apart, in microseconds.
const CEILING_US: u64 = 60_000_000;

/// Percentiles of latency, from a query's arrival at the engine to its answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say what the fields are")]
pub struct Percentiles {
    pub count: u64,
    pub p50: Duration,
    pub p99: Duration,
    pub p999: Duration,
}

/// Latency in the last half minute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LatencyView {
    /// Latency as answered.
    pub answered: Percentiles,
    /// Of those, how many were answered with an approximation.
    pub approximated: u64,
    /// As they would have been answered without approximations.
    pub without: Percentiles,
}

impl LatencyView {
    /// The longest time that it looks back.
    pub const WINDOW: Duration = SLOT.saturating_mul(SLOTS as u32);
}

#[derive(Debug)]
struct Slot {
    /// Answered with a prediction of the deployed model, or not by the deadline.
    own: Histogram<u32>,
    /// Answered with an approximation: when.
    approximated: Histogram<u32>,
    /// The same, without it.
    without: Histogram<u32>,
}

/// A sliding window of latencies; its memory is fixed.
#[derive(Debug)]
pub(crate) struct LatencyWindow {
    slots: [Slot; SLOTS],
    current: usize,
    ends: Time,
}

impl LatencyWindow {
    pub(crate) fn new() -> Self {
        let slot = |_| Slot { own: empty(), approximated: empty(), without: empty() };
        Self { slots: std::array::from_fn(slot), current: 0, ends: Time::ZERO + SLOT }
    }

    /// A query was answered with a prediction of its own, or not at all by its deadline.
    pub(crate) fn own(&mut self, now: Time, took: Duration) {
        record(&mut self.slot(now).own, took);
    }

    pub(crate) fn approximated(&mut self, now: Time, took: Duration) {
        record(&mut self.slot(now).approximated, took);
    }

    /// So long an approximated query would have waited without it.
    pub(crate) fn without(&mut self, now: Time, took: Duration) {
        record(&mut self.slot(now).without, took);
    }

    pub(crate) fn view(&mut self, now: Time) -> LatencyView {
        self.slot(now);
        let (mut answered, mut without) = (empty(), empty());
        let mut approximated = 0;
        for slot in &self.slots {
            add(&mut answered, [&slot.own, &slot.approximated]);
            add(&mut without, [&slot.own, &slot.without]);
            approximated += slot.approximated.len();
        }
        LatencyView {
            answered: percentiles(&answered),
            approximated,
            without: percentiles(&without),
        }
    }

    /// The slot of `now`; those between it and the last one are emptied.
    fn slot(&mut self, now: Time) -> &mut Slot {
        if now >= self.ends {
            let passed = now.since(self.ends).as_nanos() / SLOT.as_nanos() + 1;
            for _ in 0..passed.min(SLOTS as u128) {
                self.current = (self.current + 1) % SLOTS;
                self.slots[self.current].clear();
            }
            let passed = u32::try_from(passed).unwrap_or(u32::MAX);
            self.ends = self.ends + SLOT.saturating_mul(passed);
        }
        &mut self.slots[self.current]
    }
}

impl Slot {
    fn clear(&mut self) {
        // One never used has no memory of its own yet, which writing zeros to it would change.
        let used = [&mut self.own, &mut self.approximated, &mut self.without].into_iter();
        used.filter(|histogram| !histogram.is_empty()).for_each(Histogram::reset);
    }
}

pub(crate) fn record(histogram: &mut Histogram<u32>, took: Duration) {
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).clamp(1, CEILING_US);
    histogram.saturating_record(micros);
}

fn add(sum: &mut Histogram<u32>, parts: [&Histogram<u32>; 2]) {
    for part in parts.into_iter().filter(|part| !part.is_empty()) {
        // All have the same bounds.
        let _added = sum.add(part);
    }
}

fn percentiles(histogram: &Histogram<u32>) -> Percentiles {
    let at = |quantile| Duration::from_micros(histogram.value_at_quantile(quantile));
    Percentiles { count: histogram.len(), p50: at(0.5), p99: at(0.99), p999: at(0.999) }
}

/// Two significant digits: no use of it needs more, and it stays at 22 KiB.
#[expect(
    clippy::expect_used,
    reason = "the bounds are constants, and every test makes one; never on a request path"
)]
pub(crate) fn empty() -> Histogram<u32> {
    Histogram::new_with_bounds(1, CEILING_US, 2).expect("1 us to 60 s at 2 digits are valid bounds")
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Within the histogram's two digits.
    fn close(got: Duration, expected: Duration) -> bool {
        got.abs_diff(expected) <= expected / 100
    }

    #[test]
    fn approximations_are_set_against_what_they_spared() {
        let mut window = LatencyWindow::new();
        let now = Time::ZERO + ms(100);
        (0..990).for_each(|_| window.own(now, ms(5)));
        (0..10).for_each(|_| window.approximated(now, ms(20)));
        (0..10).for_each(|_| window.without(now + ms(300), ms(300)));
        let view = window.view(now + ms(300));
        let without = view.without;
        assert_eq!((view.answered.count, view.approximated, without.count), (1000, 10, 1000));
        assert!(close(view.answered.p50, ms(5)) && close(without.p50, ms(5)), "{view:?}");
        assert!(close(view.answered.p999, ms(20)), "{view:?}");
        assert!(close(without.p999, ms(300)), "{view:?}");
    }

    #[test]
    fn what_is_older_than_the_window_is_forgotten() {
        let mut window = LatencyWindow::new();
        window.own(Time::ZERO, ms(900));
        window.approximated(Time::ZERO, ms(900));
        window.own(Time::ZERO + SLOT, ms(10));
        let before = window.view(Time::ZERO + (LatencyView::WINDOW - ms(1)));
        assert_eq!((before.answered.count, before.approximated, before.without.count), (3, 1, 2));
        let after = window.view(Time::ZERO + LatencyView::WINDOW);
        assert_eq!((after.answered.count, after.approximated), (1, 0));
        assert!(after.without.count == 1 && close(after.without.p999, ms(10)));
        let long_after = window.view(Time::ZERO + ms(3_600_000));
        assert_eq!(long_after.answered, Percentiles::default());
        window.own(Time::ZERO + ms(3_600_001), ms(1));
        assert_eq!(
            window.view(Time::ZERO + ms(3_604_000)).answered.count,
            1,
            "it goes on after a pause"
        );
    }
}
