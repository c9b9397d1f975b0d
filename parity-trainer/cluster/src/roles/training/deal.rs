//! Executors dealt to processes by their pace.
//!
//! A step ends with its slowest process, so those that are fast for long work for more executors.
//! Each process tells the registry how long an executor's part takes it, and all deal alike from
//! what the registry knows: longest processing time first (Graham, "Bounds on Multiprocessing
//! Timing Anomalies", 1969), here with parts of equal size.

use std::collections::VecDeque;
use std::time::Duration;

use parapet_parameter_server::median;
use serde::{Deserialize, Serialize};

/// Steps whose median is the pace, and the least that it is told after.
const STEPS: usize = 9;
const LEAST: usize = 3;

/// Time between two tellings, at least: each one may move executors.
const EVERY: Duration = Duration::from_secs(1);

/// Time after which a process without executors tells half its pace, so that it is tried again.
const RETRY: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Deal {
    /// By their pace, so that all take as long.
    #[default]
    ByPace,
    Evenly,
}

/// Returns the process of each executor, by its place in `paces`: the one that has it done first.
/// The first process always has one. A pace that is not known counts as the median of the others.
pub(super) fn deal(executors: usize, paces: &[Option<u64>]) -> Vec<usize> {
    let usual = median(paces.iter().copied().flatten()).unwrap_or(1);
    // Each process's pace, and when it has one more part done.
    let mut ends = Vec::from_iter(paces.iter().map(|pace| {
        let pace = pace.unwrap_or(usual).max(1);
        (pace, pace)
    }));
    let mut dealt = Vec::with_capacity(executors);
    for executor in 0..executors {
        let among = if executor == 0 { 1 } else { ends.len() };
        let processes = ends.iter_mut().enumerate().take(among);
        if let Some((place, (pace, end))) = processes.min_by_key(|(place, (_, end))| (*end, *place))
        {
            *end = end.saturating_add(*pace);
            dealt.push(place);
        }
    }
    dealt
}

/// Measurement of this process's pace. Times count from any moment.
#[derive(Debug, Default)]
pub(super) struct PaceMeter {
    /// The end of the last part, or when parts were asked for.
    mark: Option<Duration>,
    /// Parts of this step, and the time they took.
    parts: u32,
    took: Duration,
    recent: VecDeque<Duration>,
    told: Option<Duration>,
    /// When it was told, or tried again, last.
    told_at: Duration,
}

impl PaceMeter {
    pub(super) const fn begin(&mut self, now: Duration) {
        self.mark = Some(now);
    }

    /// A piece of a part is computed, or the last one; what pushes take does not count.
    pub(super) const fn computed(&mut self, now: Duration, is_last: bool) {
        if let Some(mark) = self.mark.take() {
            self.parts += is_last as u32;
            self.took = self.took.saturating_add(now.saturating_sub(mark));
        }
    }

    /// The step is done. Returns the pace, in microseconds for a part, if it is to be told: one
    /// that is off what was told by a quarter or more.
    pub(super) fn end_step(&mut self, now: Duration) -> Option<u64> {
        let (parts, took) = (std::mem::take(&mut self.parts), std::mem::take(&mut self.took));
        let next = match took.checked_div(parts) {
            Some(pace) => {
                self.recent.truncate(STEPS - 1);
                self.recent.push_front(pace);
                let median = median(self.recent.iter().copied()).unwrap_or_default();
                let is_far = |told: Duration| 4 * median > 5 * told || 5 * median < 4 * told;
                let is_due = now >= self.told_at + EVERY && self.recent.len() >= LEAST;
                (is_due && self.told.is_none_or(is_far)).then_some(median)
            }
            None => {
                self.recent.clear();
                let told = self.told.filter(|_| now >= self.told_at + RETRY);
                told.map(|told| told / 2)
            }
        };
        let micros = u64::try_from(next?.as_micros()).ok().filter(|&micros| micros > 0)?;
        (self.told, self.told_at) = (next, now);
        Some(micros)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    fn counts(dealt: &[usize], processes: usize) -> Vec<usize> {
        (0..processes).map(|place| dealt.iter().filter(|&&at| at == place).count()).collect()
    }

    #[test]
    fn slow_process_gets_fewer_and_one_that_is_unknown_an_equal_part() {
        let cases: [(&[Option<u64>], &[usize]); 5] = [
            (&[None; 4], &[4, 4, 4, 4]),
            (&[Some(20), Some(20), Some(80), Some(20)], &[5, 5, 1, 5]),
            (&[Some(20), None, Some(80), Some(20)], &[5, 5, 1, 5]),
            (&[Some(1), Some(1_000_000)], &[16, 0]),
            (&[Some(1_000_000), Some(1)], &[1, 15]),
        ];
        for (paces, expected) in cases {
            assert_eq!(counts(&deal(16, paces), paces.len()), expected, "{paces:?}");
        }
        assert_eq!(deal(3, &[]), Vec::<usize>::new());
    }

    proptest! {
        /// No executor could be moved so that the step ends sooner.
        #[test]
        fn no_single_move_ends_the_step_sooner(
            paces in prop::collection::vec(1_u64..1000, 1..9), executors in 1_usize..64
        ) {
            let told = Vec::from_iter(paces.iter().copied().map(Some));
            let counts = counts(&deal(executors, &told), paces.len());
            prop_assert_eq!(counts.iter().sum::<usize>(), executors);
            prop_assert!(counts[0] > 0);
            let time = |place: usize, count: usize| paces[place] * count as u64;
            // The first process has one whatever its pace is.
            let worst = (0..paces.len()).filter(|&place| place > 0 || counts[0] > 1);
            let worst = worst.map(|place| time(place, counts[place])).max().unwrap_or(0);
            for (place, count) in counts.iter().enumerate() {
                prop_assert!(time(place, count + 1) >= worst);
            }
        }
    }

    const NOT: [u64; 0] = [];

    /// Steps of so many parts, each of which takes so long.
    fn steps(meter: &mut PaceMeter, now: &mut u64, count: u32, parts: u64, ms: u64) -> Vec<u64> {
        let mut told = Vec::new();
        for _ in 0..count {
            for part in 0..parts {
                meter.begin(Duration::from_millis(*now + part * ms));
                meter.computed(Duration::from_millis(*now + (part + 1) * ms), true);
            }
            *now += 500;
            told.extend(meter.end_step(Duration::from_millis(*now)));
        }
        told
    }

    #[test]
    fn pace_is_told_when_it_has_changed_for_long() {
        let (mut meter, mut now) = (PaceMeter::default(), 0);
        let mut run = |count, parts, ms| steps(&mut meter, &mut now, count, parts, ms);
        assert_eq!(run(2, 4, 10), NOT, "two steps say little");
        assert_eq!(run(20, 4, 10), [10_000]);
        assert_eq!(run(4, 4, 90), NOT, "four of nine steps are no median");
        assert_eq!(run(20, 4, 11), NOT, "near enough");
        assert_eq!(run(20, 2, 40), [40_000]);
    }

    /// The first half of a part waits for a slow link, which is no reason to deal it elsewhere.
    #[test]
    fn pushes_of_pieces_do_not_count() {
        let mut meter = PaceMeter::default();
        let told = (1..=3).filter_map(|step| {
            for (begun, is_last) in [(500, false), (900, true)] {
                let begun = Duration::from_millis(1_000 * step + begun);
                meter.begin(begun);
                meter.computed(begun + Duration::from_millis(20), is_last);
            }
            meter.end_step(Duration::from_millis(1_000 * (step + 1)))
        });
        assert_eq!(Vec::from_iter(told), [40_000]);
    }

    #[test]
    fn process_without_executors_is_tried_again() {
        let (mut meter, mut now) = (PaceMeter::default(), 0);
        let mut run = |count, parts, ms| steps(&mut meter, &mut now, count, parts, ms);
        assert_eq!(run(9, 1, 400), [400_000]);
        assert_eq!(run(60, 0, 0), [200_000, 100_000, 50_000]);
        // It is as fast as the others again, or as slow as before.
        assert_eq!(run(3, 1, 400), [400_000]);
    }
}
