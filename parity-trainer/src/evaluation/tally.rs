//! Counts of reconstructions, by what they are asked about.

use serde::{Deserialize, Serialize};

use super::CodeEvaluation;
use super::bootstrap::{Estimate, GroupCounts, Judged};
use super::calibration::Bins;

/// Parts of reconstructed answers for which A_o is told.
const FRACTIONS: [f64; 8] = [0.0, 0.001, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0];

/// Figures for one number of missing queries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ByLosses {
    /// Queries of a group that are missing at once.
    pub missing: usize,
    /// A_d: the part of the reconstructions whose class is the label.
    pub accuracy: Option<Estimate>,
    /// A_a - A_d over the same queries, with a paired interval.
    pub loss: Option<Estimate>,
    /// The part of the reconstructions whose class is the deployed model's.
    pub agreement: Estimate,
    pub reconstructions: usize,
}

/// Figures for one class, one query missing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ByClass {
    pub class: usize,
    /// A_a of its samples.
    pub accuracy_deployed: Option<f64>,
    /// A_d of its samples.
    pub accuracy: Option<f64>,
    /// Agreement with the deployed model.
    pub agreement: f64,
    pub reconstructions: usize,
}

/// Figures for one slot of the groups, one query missing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BySlot {
    /// The slot, from 0.
    pub slot: usize,
    pub accuracy: Option<f64>,
    /// Agreement with the deployed model.
    pub agreement: f64,
    pub reconstructions: usize,
}

/// A_o(f) = (1 - f) A_a + f A_d.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Overall {
    /// f, the part of the answers that are reconstructed.
    pub fraction: f64,
    pub accuracy: f64,
}

/// One reconstruction and what it should be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reconstruction {
    pub(super) missing: usize,
    pub(super) slot: usize,
    pub(super) class: usize,
    pub(super) confidence: f32,
    pub(super) deployed: usize,
    pub(super) label: Option<usize>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Count {
    right: usize,
    agreeing: usize,
    deployed_right: usize,
    all: usize,
}

impl Reconstruction {
    fn judged(&self) -> Judged {
        Judged {
            right: self.label == Some(self.class),
            agreeing: self.class == self.deployed,
            deployed_right: self.label == Some(self.deployed),
        }
    }
}

impl Count {
    fn add(&mut self, one: Judged) {
        self.all += 1;
        self.right += usize::from(one.right);
        self.agreeing += usize::from(one.agreeing);
        self.deployed_right += usize::from(one.deployed_right);
    }

    /// A_a - A_d.
    fn loss(&self) -> f64 {
        (self.deployed_right as f64 - self.right as f64) / self.all.max(1) as f64
    }

    fn part(&self, count: usize) -> f64 {
        count as f64 / self.all.max(1) as f64
    }
}

#[derive(Debug)]
pub(super) struct Tally {
    labelled: bool,
    losses: Vec<Count>,
    classes: Vec<Count>,
    slots: Vec<Count>,
    bins: Bins,
    groups: GroupCounts,
}

impl Tally {
    pub(super) fn new(k: usize, most_missing: usize, classes: usize, labelled: bool) -> Self {
        Self {
            labelled,
            losses: vec![Count::default(); most_missing],
            classes: vec![Count::default(); classes],
            slots: vec![Count::default(); k],
            bins: Bins::default(),
            groups: GroupCounts::new(most_missing),
        }
    }

    pub(super) fn begin_group(&mut self) {
        self.groups.begin();
    }

    pub(super) fn add(&mut self, one: Reconstruction) {
        let judged = one.judged();
        self.groups.add(one.missing - 1, judged);
        if let Some(count) = self.losses.get_mut(one.missing - 1) {
            count.add(judged);
        }
        if one.missing != 1 {
            return;
        }
        let class = one.label.unwrap_or(one.deployed);
        for count in [self.classes.get_mut(class), self.slots.get_mut(one.slot)]
            .into_iter()
            .flatten()
        {
            count.add(judged);
        }
        self.bins.add(
            one.confidence,
            if self.labelled {
                judged.right
            } else {
                judged.agreeing
            },
        );
    }

    pub(super) fn finish(
        self,
        samples: usize,
        groups: usize,
        accuracy_deployed: Option<f64>,
        resamples: usize,
        seed: u64,
    ) -> CodeEvaluation {
        let labelled = self.labelled;
        let known = |value: f64| labelled.then_some(value);
        let intervals = self.groups.intervals(resamples, seed);
        let by_losses: Vec<ByLosses> = self
            .losses
            .iter()
            .enumerate()
            .map(|(index, count)| {
                let intervals = intervals.get(index).copied();
                let estimate = |value, interval| Estimate { value, interval };
                ByLosses {
                    missing: index + 1,
                    accuracy: known(count.part(count.right))
                        .map(|value| estimate(value, intervals.map(|of| of.accuracy))),
                    loss: known(count.loss())
                        .map(|value| estimate(value, intervals.map(|of| of.loss))),
                    agreement: estimate(
                        count.part(count.agreeing),
                        intervals.map(|of| of.agreement),
                    ),
                    reconstructions: count.all,
                }
            })
            .collect();
        let one_missing = by_losses
            .first()
            .and_then(|losses| losses.accuracy)
            .map(|estimate| estimate.value);
        let overall = match (accuracy_deployed, one_missing) {
            (Some(exact), Some(reconstructed)) => FRACTIONS
                .iter()
                .map(|&fraction| Overall {
                    fraction,
                    accuracy: (1.0 - fraction) * exact + fraction * reconstructed,
                })
                .collect(),
            _ => Vec::new(),
        };
        let by_class = self
            .classes
            .iter()
            .enumerate()
            .filter(|(_, count)| count.all > 0)
            .map(|(class, count)| ByClass {
                class,
                accuracy_deployed: known(count.part(count.deployed_right)),
                accuracy: known(count.part(count.right)),
                agreement: count.part(count.agreeing),
                reconstructions: count.all,
            });
        let by_slot = self.slots.iter().enumerate().map(|(slot, count)| BySlot {
            slot,
            accuracy: known(count.part(count.right)),
            agreement: count.part(count.agreeing),
            reconstructions: count.all,
        });
        CodeEvaluation {
            samples,
            groups,
            accuracy_deployed,
            by_class: by_class.collect(),
            by_slot: by_slot.collect(),
            by_losses,
            overall,
            calibration: self.bins.finish(),
        }
    }
}
