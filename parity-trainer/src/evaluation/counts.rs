//! Counts of reconstructions, and intervals by the bootstrap over groups (Efron 1979, percentiles).
//!
//! Reconstructions of one group share their members' predictions and the parity outputs, so groups
//! are drawn, not reconstructions.

use rand::Rng;
use serde::{Deserialize, Serialize};

use crate::network::stream;

/// Units that are resampled at most; groups beyond are gathered into them.
const UNITS: usize = 5000;
const TAIL: f64 = 0.025;
const BINS: usize = 15;

/// A part of 1, or a difference of two, and where it probably lies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    pub value: f64,
    pub interval: Option<(f64, f64)>,
}

/// Writes a part of 1 in hundredths.
pub fn percent(part: f64, decimals: usize) -> String {
    format!("{:.decimals$} %", 100.0 * part)
}

impl Estimate {
    /// Writes it in hundredths, the interval in brackets: `87.4 % [86.1, 88.6]`.
    pub fn hundredths(self, decimals: usize, unit: &str) -> String {
        let interval = self.interval.map_or(String::new(), |(low, high)| {
            format!(" [{:.decimals$}, {:.decimals$}]", 100.0 * low, 100.0 * high)
        });
        format!("{:.decimals$}{unit}{interval}", 100.0 * self.value)
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) right: usize,
    pub(super) agreeing: usize,
    /// Reconstructions of queries for which the deployed model's own class is the label.
    pub(super) deployed_right: usize,
    pub(super) all: usize,
}

impl Counts {
    pub(super) fn add(&mut self, other: Self) {
        self.right += other.right;
        self.agreeing += other.agreeing;
        self.deployed_right += other.deployed_right;
        self.all += other.all;
    }

    pub(super) fn part(self, count: usize) -> f64 {
        count as f64 / self.all.max(1) as f64
    }

    pub(super) fn accuracy(self) -> f64 {
        self.part(self.right)
    }

    /// A_a - A_d, paired: over the very queries whose reconstructions are counted, so that queries
    /// which both get wrong add nothing to an interval's width.
    pub(super) fn loss(self) -> f64 {
        (self.deployed_right as f64 - self.right as f64) / self.all.max(1) as f64
    }

    pub(super) fn agreement(self) -> f64 {
        self.part(self.agreeing)
    }
}

#[derive(Debug)]
pub(super) struct GroupCounts {
    kinds: usize,
    groups: usize,
    /// For unit `u` and kind `i` at `u * kinds + i`.
    units: Vec<Counts>,
}

impl GroupCounts {
    pub(super) fn new(kinds: usize) -> Self {
        Self { kinds, groups: 0, units: Vec::new() }
    }

    pub(super) fn begin(&mut self) {
        self.groups += 1;
        if self.groups <= UNITS {
            self.units.resize(self.groups * self.kinds, Counts::default());
        }
    }

    pub(super) fn add(&mut self, kind: usize, counts: Counts) {
        let unit = (self.groups.max(1) - 1) % UNITS;
        if let Some(own) = self.units.get_mut(unit * self.kinds + kind) {
            own.add(counts);
        }
    }

    pub(super) fn resample(&self, resamples: usize, seed: u64) -> Vec<Vec<Counts>> {
        let units = self.units.len() / self.kinds.max(1);
        let mut rng = stream(seed, 1);
        let mut resampled = vec![Vec::new(); self.kinds];
        for _ in 0..if units == 0 { 0 } else { resamples } {
            let mut sums = vec![Counts::default(); self.kinds];
            for _ in 0..units {
                let unit = rng.random_range(0..units);
                for (sum, counts) in sums.iter_mut().zip(&self.units[unit * self.kinds..]) {
                    sum.add(*counts);
                }
            }
            for (resampled, sum) in resampled.iter_mut().zip(sums) {
                resampled.push(sum);
            }
        }
        resampled
    }
}

/// The interval of a figure over resamples; none for no resamples.
pub(super) fn interval(resampled: &[Counts], figure: fn(Counts) -> f64) -> Option<(f64, f64)> {
    let mut parts: Vec<f64> = resampled.iter().map(|counts| figure(*counts)).collect();
    parts.sort_by(f64::total_cmp);
    let last = parts.len().checked_sub(1)? as f64;
    let at = |quantile: f64| parts[(quantile * last).round() as usize];
    Some((at(TAIL), at(1.0 - TAIL)))
}

/// Agreement of confidence and accuracy (Guo et al. 2017).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Calibration {
    /// The expected calibration error: the mean distance of the two over all reconstructions.
    pub expected_error: f64,
    pub bins: Vec<CalibrationBin>,
}

/// Reconstructions of about the same confidence.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CalibrationBin {
    pub confidence: f64,
    /// The part that is right (or agrees with the deployed model, where there are no labels).
    pub right: f64,
    pub count: usize,
}

/// Sum of confidences, number that is right, and number of all, of each bin.
#[derive(Debug, Default)]
pub(super) struct Bins([(f64, usize, usize); BINS]);

impl Bins {
    pub(super) fn add(&mut self, confidence: f32, right: bool) {
        let confidence = f64::from(confidence).clamp(0.0, 1.0);
        let (sum, rights, count) = &mut self.0[((confidence * BINS as f64) as usize).min(BINS - 1)];
        *sum += confidence;
        *rights += usize::from(right);
        *count += 1;
    }

    pub(super) fn finish(&self) -> Calibration {
        let filled = self.0.iter().filter(|(_, _, count)| *count > 0);
        let bins = filled.map(|&(sum, rights, count)| CalibrationBin {
            confidence: sum / count as f64,
            right: rights as f64 / count as f64,
            count,
        });
        let bins: Vec<CalibrationBin> = bins.collect();
        let all: usize = bins.iter().map(|bin| bin.count).sum();
        let error = |bin: &CalibrationBin| bin.count as f64 * (bin.confidence - bin.right).abs();
        let expected_error = bins.iter().map(error).sum::<f64>() / all.max(1) as f64;
        Calibration { expected_error, bins }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::Rng;

    use super::*;

    fn judged(right: bool, deployed_right: bool) -> Counts {
        let [right, deployed_right] = [right, deployed_right].map(usize::from);
        Counts { right, agreeing: 1, deployed_right, all: 1 }
    }

    /// One reconstruction a group.
    fn counts(groups: impl IntoIterator<Item = Counts>) -> GroupCounts {
        let mut counts = GroupCounts::new(1);
        for one in groups {
            counts.begin();
            counts.add(0, one);
        }
        counts
    }

    fn interval_of(counts: &GroupCounts, figure: fn(Counts) -> f64, seed: u64) -> (f64, f64) {
        interval(&counts.resample(1000, seed)[0], figure).unwrap()
    }

    #[test]
    fn intervals_are_as_wide_as_the_binomial_says() {
        let counts = counts((0..1000).map(|group| judged(group % 4 != 0, true)));
        let (low, high) = interval_of(&counts, Counts::accuracy, 1);
        // 1.96 standard errors of a part of 0.75 in 1000: 0.0268.
        assert!((low - 0.7232).abs() < 0.005, "{low}");
        assert!((high - 0.7768).abs() < 0.005, "{high}");
        assert_eq!(interval_of(&counts, Counts::agreement, 1), (1.0, 1.0));
        // Against a deployed model that is always right, the loss is what the accuracy lacks.
        let loss = interval_of(&counts, Counts::loss, 1);
        assert!((loss.0 - (1.0 - high)).abs() < 1e-9, "{loss:?}");
        assert!((loss.1 - (1.0 - low)).abs() < 1e-9, "{loss:?}");
    }

    #[test]
    fn a_loss_where_both_are_right_of_the_same_queries_has_no_width() {
        let counts = counts((0..1000).map(|group| judged(group % 4 != 0, group % 4 != 0)));
        assert_eq!(interval_of(&counts, Counts::loss, 1), (0.0, 0.0));
        let (low, high) = interval_of(&counts, Counts::accuracy, 1);
        assert!(high - low > 0.04, "{low}, {high}");
    }

    #[test]
    fn members_of_a_group_are_resampled_together() {
        let one = |group: usize| judged(group.is_multiple_of(2), true);
        let alone = counts((0..2000).map(|at| one(at / 4)));
        let mut together = GroupCounts::new(1);
        for group in 0..500 {
            together.begin();
            for _ in 0..4 {
                together.add(0, one(group));
            }
        }
        let width = |counts: &GroupCounts| {
            let (low, high) = interval_of(counts, Counts::loss, 1);
            high - low
        };
        // Four members that share their fate say as little as one: twice the standard error.
        let ratio = width(&together) / width(&alone);
        assert!((1.7..2.3).contains(&ratio), "{ratio}");
    }

    /// Both answers of each query, drawn so that the reconstruction is right in `a_d` of them and
    /// the deployed model in `a_a`, independently.
    fn drawn(a_a: f64, a_d: f64, groups: usize, seed: u64) -> GroupCounts {
        let mut rng = stream(seed, 9);
        counts((0..groups).map(|_| {
            let deployed_right = rng.random_bool(a_a);
            judged(rng.random_bool(a_d), deployed_right)
        }))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn the_interval_of_a_loss_is_as_wide_as_the_known_distribution_says(
            a_a in 0.3f64..0.95,
            a_d in 0.3f64..0.95,
            seed in any::<u64>(),
        ) {
            let (low, high) = interval_of(&drawn(a_a, a_d, 2000, seed), Counts::loss, seed);
            // Of a difference of two independent parts.
            let deviation = ((a_a * (1.0 - a_a) + a_d * (1.0 - a_d)) / 2000.0).sqrt();
            let width = (high - low) / (2.0 * 1.96 * deviation);
            prop_assert!((0.85..1.15).contains(&width), "{width} of the width");
            // 5 standard errors from where it lies: one in a million.
            let middle = f64::midpoint(low, high);
            prop_assert!((middle - (a_a - a_d)).abs() < 5.0 * deviation, "{middle}");
        }

        #[test]
        fn the_interval_of_a_loss_turns_round_with_the_two_models(seed in any::<u64>()) {
            let one = drawn(0.9, 0.7, 300, seed);
            let turn = |unit: &Counts| judged(unit.deployed_right == 1, unit.right == 1);
            let turned = counts(one.units.iter().map(turn));
            let [a, b] = [one, turned].map(|counts| interval_of(&counts, Counts::loss, 1));
            prop_assert!((a.0 + b.1).abs() < 0.01 && (a.1 + b.0).abs() < 0.01, "{a:?}, {b:?}");
        }
    }

    #[test]
    fn intervals_hold_the_true_loss_about_as_often_as_they_say() {
        let holds = |seed: &u64| {
            let resampled = drawn(0.9, 0.8, 400, *seed).resample(300, *seed);
            let (low, high) = interval(&resampled[0], Counts::loss).unwrap();
            (low..=high).contains(&0.1)
        };
        let held = (0..200).filter(holds).count();
        // 95 % of 200 are 190; its standard deviation is 3.1.
        assert!((178..=199).contains(&held), "{held} of 200");
    }

    #[test]
    fn memory_is_bounded_and_no_group_is_lost() {
        let mut counts = GroupCounts::new(2);
        for group in 0..3 * UNITS {
            counts.begin();
            counts.add(group % 2, judged(true, false));
        }
        assert_eq!(counts.units.len(), 2 * UNITS);
        let counted: usize = counts.units.iter().map(|unit| unit.all).sum();
        assert_eq!(counted, 3 * UNITS);
    }

    #[test]
    fn the_calibration_error_is_the_gap_between_sure_and_right() {
        let mut bins = Bins::default();
        for index in 0..100 {
            bins.add(0.9, index % 2 == 0);
            bins.add(1.0, true);
        }
        let calibration = bins.finish();
        let error = calibration.expected_error;
        assert!((error - 0.2).abs() < 1e-6, "{error}");
        assert_eq!(calibration.bins.len(), 2);
    }
}
