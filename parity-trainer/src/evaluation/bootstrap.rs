//! Intervals by the bootstrap over groups (Efron 1979, percentiles).
//!
//! Reconstructions of one group share their members' predictions and the parity outputs, so groups are drawn, not
//! reconstructions.

use rand::Rng;
use serde::Serialize;

use crate::network::stream;

/// Units that are resampled at most; groups beyond are gathered into them.
const UNITS: usize = 5000;
/// What lies on either side of the 95 % interval.
const TAIL: f64 = 0.025;

/// A part of 1, and where it probably lies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The part.
    pub value: f64,
    /// Its 95 % interval.
    pub interval: Option<(f64, f64)>,
}

/// Ends of an interval.
pub(super) type Interval = (f64, f64);

/// Right and agreeing reconstructions of each group.
#[derive(Debug)]
pub(super) struct GroupCounts {
    kinds: usize,
    groups: usize,
    /// For unit `u` and kind `i` at `u * kinds + i`: right, agreeing, all.
    units: Vec<[u64; 3]>,
}

impl GroupCounts {
    /// For `kinds` kinds of figures.
    pub(super) fn new(kinds: usize) -> Self {
        Self { kinds, groups: 0, units: Vec::new() }
    }

    pub(super) fn begin(&mut self) {
        self.groups += 1;
        if self.groups <= UNITS {
            self.units.resize(self.groups * self.kinds, [0; 3]);
        }
    }

    pub(super) fn add(&mut self, kind: usize, right: bool, agreeing: bool) {
        let unit = (self.groups.max(1) - 1) % UNITS;
        if let Some([rights, agreements, all]) = self.units.get_mut(unit * self.kinds + kind) {
            *rights += u64::from(right);
            *agreements += u64::from(agreeing);
            *all += 1;
        }
    }

    /// For each kind, the intervals of the parts that are right and that agree; none for no resamples.
    pub(super) fn intervals(&self, resamples: usize, seed: u64) -> Vec<(Interval, Interval)> {
        let units = self.units.len() / self.kinds.max(1);
        if resamples == 0 || units == 0 {
            return Vec::new();
        }
        let mut rng = stream(seed, 1);
        let mut parts = vec![(Vec::with_capacity(resamples), Vec::with_capacity(resamples)); self.kinds];
        let mut sums = vec![[0u64; 3]; self.kinds];
        for _ in 0..resamples {
            sums.fill([0; 3]);
            for _ in 0..units {
                let unit = rng.random_range(0..units);
                for (sums, counts) in sums.iter_mut().zip(self.units.iter().skip(unit * self.kinds)) {
                    for (sum, count) in sums.iter_mut().zip(counts) {
                        *sum += count;
                    }
                }
            }
            for ((right, agreeing), &[rights, agreements, all]) in parts.iter_mut().zip(&sums) {
                right.push(rights as f64 / all.max(1) as f64);
                agreeing.push(agreements as f64 / all.max(1) as f64);
            }
        }
        parts.into_iter().map(|(right, agreeing)| (interval(right), interval(agreeing))).collect()
    }
}

fn interval(mut parts: Vec<f64>) -> Interval {
    parts.sort_by(f64::total_cmp);
    let last = parts.len().saturating_sub(1) as f64;
    let at = |quantile: f64| parts.get((quantile * last).round() as usize).copied().unwrap_or_default();
    (at(TAIL), at(1.0 - TAIL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_as_wide_as_the_binomial_says() {
        let mut counts = GroupCounts::new(1);
        for group in 0..1000 {
            counts.begin();
            counts.add(0, group % 4 != 0, true);
        }
        let (right, agreeing) = counts.intervals(2000, 1)[0];
        // 1.96 standard errors of a part of 0.75 in 1000: 0.0268.
        assert!((right.0 - 0.7232).abs() < 0.005 && (right.1 - 0.7768).abs() < 0.005, "{right:?}");
        assert_eq!(agreeing, (1.0, 1.0));
    }

    #[test]
    fn memory_is_bounded_and_no_group_is_lost() {
        let mut counts = GroupCounts::new(2);
        for group in 0..3 * UNITS {
            counts.begin();
            counts.add(group % 2, true, false);
        }
        assert_eq!(counts.units.len(), 2 * UNITS);
        assert_eq!(counts.units.iter().map(|unit| unit[2]).sum::<u64>(), 3 * UNITS as u64);
    }
}
