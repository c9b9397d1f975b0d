//! Intervals by the bootstrap over groups (Efron 1979, percentiles).
//!
//! Reconstructions of one group share their members' predictions and the parity outputs, so groups
//! are drawn, not reconstructions.

use rand::Rng;
use serde::{Deserialize, Serialize};

use crate::network::stream;

/// Units that are resampled at most; groups beyond are gathered into them.
const UNITS: usize = 5000;
/// Share on either side of the 95 % interval.
const TAIL: f64 = 0.025;

/// A part of 1, or a difference of two, and where it probably lies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    pub value: f64,
    /// Its 95 % interval.
    pub interval: Option<(f64, f64)>,
}

/// Ends of an interval.
pub(super) type Interval = (f64, f64);

/// Facts of one reconstruction that are counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Judged {
    /// Its class is the label.
    pub(super) right: bool,
    /// Its class is the deployed model's.
    pub(super) agreeing: bool,
    /// The deployed model's own class is the label.
    pub(super) deployed_right: bool,
}

/// Reconstructions of a unit.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    right: u64,
    agreeing: u64,
    deployed_right: u64,
    all: u64,
}

/// Intervals of one kind of figures.
#[derive(Debug, Clone, Copy)]
pub(super) struct Intervals {
    pub(super) accuracy: Interval,
    pub(super) agreement: Interval,
    /// Of the accuracy that is lost, paired: each resample has the deployed model's answers to the
    /// very queries whose reconstructions it has, so that queries which both get wrong add nothing
    /// to its width.
    pub(super) loss: Interval,
}

/// Counts of each group's reconstructions.
#[derive(Debug)]
pub(super) struct GroupCounts {
    kinds: usize,
    groups: usize,
    /// For unit `u` and kind `i` at `u * kinds + i`.
    units: Vec<Counts>,
}

impl GroupCounts {
    /// For `kinds` kinds of figures.
    pub(super) fn new(kinds: usize) -> Self {
        Self {
            kinds,
            groups: 0,
            units: Vec::new(),
        }
    }

    pub(super) fn begin(&mut self) {
        self.groups += 1;
        if self.groups <= UNITS {
            self.units
                .resize(self.groups * self.kinds, Counts::default());
        }
    }

    pub(super) fn add(&mut self, kind: usize, one: Judged) {
        let unit = (self.groups.max(1) - 1) % UNITS;
        if let Some(counts) = self.units.get_mut(unit * self.kinds + kind) {
            counts.add(Counts {
                right: u64::from(one.right),
                agreeing: u64::from(one.agreeing),
                deployed_right: u64::from(one.deployed_right),
                all: 1,
            });
        }
    }

    /// For each kind, its intervals; none for no resamples.
    pub(super) fn intervals(&self, resamples: usize, seed: u64) -> Vec<Intervals> {
        let units = self.units.len() / self.kinds.max(1);
        if resamples == 0 || units == 0 {
            return Vec::new();
        }
        let mut rng = stream(seed, 1);
        let mut resampled = vec![Resampled::default(); self.kinds];
        let mut sums = vec![Counts::default(); self.kinds];
        for _ in 0..resamples {
            sums.fill(Counts::default());
            for _ in 0..units {
                let unit = rng.random_range(0..units);
                for (sum, counts) in sums
                    .iter_mut()
                    .zip(self.units.iter().skip(unit * self.kinds))
                {
                    sum.add(*counts);
                }
            }
            for (resampled, counts) in resampled.iter_mut().zip(&sums) {
                resampled.push(counts);
            }
        }
        resampled.into_iter().map(Resampled::intervals).collect()
    }
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.right += other.right;
        self.agreeing += other.agreeing;
        self.deployed_right += other.deployed_right;
        self.all += other.all;
    }
}

/// The figures of each resample.
#[derive(Debug, Clone, Default)]
struct Resampled {
    accuracy: Vec<f64>,
    agreement: Vec<f64>,
    loss: Vec<f64>,
}

impl Resampled {
    fn push(&mut self, counts: &Counts) {
        let all = counts.all.max(1) as f64;
        self.accuracy.push(counts.right as f64 / all);
        self.agreement.push(counts.agreeing as f64 / all);
        self.loss
            .push((counts.deployed_right as f64 - counts.right as f64) / all);
    }

    fn intervals(self) -> Intervals {
        Intervals {
            accuracy: interval(self.accuracy),
            agreement: interval(self.agreement),
            loss: interval(self.loss),
        }
    }
}

fn interval(mut parts: Vec<f64>) -> Interval {
    parts.sort_by(f64::total_cmp);
    let last = parts.len().saturating_sub(1) as f64;
    let at = |quantile: f64| {
        parts
            .get((quantile * last).round() as usize)
            .copied()
            .unwrap_or_default()
    };
    (at(TAIL), at(1.0 - TAIL))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::Rng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn judged(right: bool, deployed_right: bool) -> Judged {
        Judged {
            right,
            agreeing: true,
            deployed_right,
        }
    }

    /// One reconstruction a group.
    fn counts(groups: impl IntoIterator<Item = Judged>) -> GroupCounts {
        let mut counts = GroupCounts::new(1);
        for one in groups {
            counts.begin();
            counts.add(0, one);
        }
        counts
    }

    #[test]
    fn intervals_are_as_wide_as_the_binomial_says() {
        let counts = counts((0..1000).map(|group| judged(group % 4 != 0, true)));
        let Intervals {
            accuracy,
            agreement,
            loss,
        } = counts.intervals(2000, 1)[0];
        // 1.96 standard errors of a part of 0.75 in 1000: 0.0268.
        assert!(
            (accuracy.0 - 0.7232).abs() < 0.005 && (accuracy.1 - 0.7768).abs() < 0.005,
            "{accuracy:?}"
        );
        assert_eq!(agreement, (1.0, 1.0));
        // Against a deployed model that is always right, the loss is what the accuracy lacks.
        assert!((loss.0 - (1.0 - accuracy.1)).abs() < 1e-9, "{loss:?}");
        assert!((loss.1 - (1.0 - accuracy.0)).abs() < 1e-9, "{loss:?}");
    }

    #[test]
    fn a_loss_where_both_are_right_of_the_same_queries_has_no_width() {
        let counts = counts((0..1000).map(|group| judged(group % 4 != 0, group % 4 != 0)));
        let Intervals { accuracy, loss, .. } = counts.intervals(500, 1)[0];
        assert_eq!(loss, (0.0, 0.0));
        assert!(accuracy.1 - accuracy.0 > 0.04, "{accuracy:?}");
    }

    #[test]
    fn members_of_a_group_are_resampled_together() {
        let mut alone = GroupCounts::new(1);
        let mut together = GroupCounts::new(1);
        for group in 0..500 {
            together.begin();
            for _ in 0..4 {
                alone.begin();
                alone.add(0, judged(group % 2 == 0, true));
                together.add(0, judged(group % 2 == 0, true));
            }
        }
        let width = |counts: &GroupCounts| {
            let loss = counts.intervals(1000, 1)[0].loss;
            loss.1 - loss.0
        };
        // Four members that share their fate say as little as one: twice the standard error.
        let ratio = width(&together) / width(&alone);
        assert!((1.7..2.3).contains(&ratio), "{ratio}");
    }

    /// Both answers of each query, drawn so that the reconstruction is right in `a_d` of them and
    /// the deployed model in `a_a`, independently.
    fn drawn(a_a: f64, a_d: f64, groups: usize, seed: u64) -> GroupCounts {
        let mut rng: ChaCha8Rng = stream(seed, 9);
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
            let loss = drawn(a_a, a_d, 2000, seed).intervals(1000, seed)[0].loss;
            // Of a difference of two independent parts.
            let deviation = ((a_a * (1.0 - a_a) + a_d * (1.0 - a_d)) / 2000.0).sqrt();
            let width = (loss.1 - loss.0) / (2.0 * 1.96 * deviation);
            prop_assert!((0.85..1.15).contains(&width), "{width} of the width");
            // 5 standard errors from where it lies: one in a million.
            let middle = f64::midpoint(loss.0, loss.1);
            prop_assert!((middle - (a_a - a_d)).abs() < 5.0 * deviation, "{middle}");
        }

        #[test]
        fn the_interval_of_a_loss_turns_round_with_the_two_models(seed in any::<u64>()) {
            let one = drawn(0.9, 0.7, 300, seed);
            let turned = counts(one.units.iter().map(|unit| {
                judged(unit.deployed_right == 1, unit.right == 1)
            }));
            let (a, b) = (one.intervals(400, 1)[0].loss, turned.intervals(400, 1)[0].loss);
            prop_assert!((a.0 + b.1).abs() < 0.01 && (a.1 + b.0).abs() < 0.01, "{a:?}, {b:?}");
        }
    }

    #[test]
    fn intervals_hold_the_true_loss_about_as_often_as_they_say() {
        let held = (0..200)
            .filter(|&seed| {
                let loss = drawn(0.9, 0.8, 400, seed).intervals(300, seed)[0].loss;
                loss.0 <= 0.1 && 0.1 <= loss.1
            })
            .count();
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
        assert_eq!(
            counts.units.iter().map(|unit| unit.all).sum::<u64>(),
            3 * UNITS as u64
        );
    }
}
