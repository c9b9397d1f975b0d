//! When a group's parity queries are sent.
//!
//! ParM (SOSP 2019) sends them as soon as a group is full. But a reconstruction may answer only
//! once its query is late (CG-4), so a parity query is in time if it has answered by then, and most
//! groups have all their predictions before: for them nothing need be sent at all. So parity
//! queries wait until what they have lately taken is left, and something for bad days. Where they
//! take about as long as the hold-back itself, that is at once.

use std::time::Duration;

use crate::{HoldBack, HoldBackPolicy, Time};

/// The share of parity queries that take no longer than what is allowed for, before the margin.
const PERCENTILE: f64 = 0.95;
/// Half as much again: parity queries take longer just when queries are late.
const MARGIN: (u32, u32) = (3, 2);
/// A driver's timers may be so much late.
const TIMER: Duration = Duration::from_millis(1);

/// Learns how long parity queries take.
#[derive(Debug)]
pub(super) struct ParityTiming {
    /// `None` if they are always sent at once.
    took: Option<HoldBack>,
}

impl ParityTiming {
    pub(super) fn new(defer: bool) -> Self {
        let policy = HoldBackPolicy::Learned {
            percentile: PERCENTILE,
            min: Duration::ZERO,
            // Until enough have been seen, none waits.
            max: Duration::MAX,
            max_over_median: f64::INFINITY,
        };
        Self { took: defer.then(|| HoldBack::new(policy)) }
    }

    pub(super) fn observe(&mut self, took: Duration) {
        if let Some(estimate) = &mut self.took {
            estimate.observe(took);
        }
    }

    /// After how long a parity query is a straggler itself; `None` if that is not known.
    pub(super) fn overdue_after(&self) -> Option<Duration> {
        let lead = self.lead()?;
        (lead < Duration::MAX).then(|| lead.saturating_sub(TIMER))
    }

    /// Returns the lead with which a parity query is sent before it is needed.
    fn lead(&self) -> Option<Duration> {
        let (times, over) = MARGIN;
        let took = self.took.as_ref()?.delay();
        Some((took / over).saturating_mul(times).saturating_add(TIMER))
    }

    /// When the parity queries of a group have to go whose first member is late at `late_at`;
    /// `None` for at once.
    pub(super) fn due(&self, now: Time, late_at: Time) -> Option<Time> {
        let wait = late_at.since(now).checked_sub(self.lead()?).filter(|wait| !wait.is_zero())?;
        Some(now + wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_nanos(5_000_000_000);
    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn nothing_is_deferred_before_it_is_known_how_long_parity_queries_take() {
        let mut timing = ParityTiming::new(true);
        assert_eq!((timing.due(NOW, NOW + ms(60_000)), timing.overdue_after()), (None, None));
        for _ in 0..HoldBackPolicy::WARM_UP - 1 {
            timing.observe(ms(2));
        }
        assert_eq!(timing.due(NOW, Time::MAX), None);
    }

    #[test]
    fn the_margin_is_left() {
        let mut timing = ParityTiming::new(true);
        for query in 0..2 * HoldBackPolicy::WARM_UP {
            timing.observe(ms(if query % 50 == 0 { 40 } else { 2 }));
        }
        assert_eq!(timing.due(NOW, NOW + ms(4)), None, "4 ms are what it takes");
        let due = timing.due(NOW, NOW + ms(10)).map(|due| due.since(NOW));
        assert!(due.is_some_and(|wait| (ms(5)..ms(7)).contains(&wait)), "{due:?}");
        assert_eq!(timing.due(NOW, Time::ZERO), None, "late already");
    }

    #[test]
    fn who_wants_them_at_once_has_them_at_once() {
        let mut timing = ParityTiming::new(false);
        (0..1000).for_each(|_| timing.observe(ms(1)));
        assert_eq!(timing.due(NOW, Time::MAX), None);
    }
}
