//! Figures of reconstructions, by what they are asked about.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::CodeEvaluation;
use super::counts::{Bins, Counts, Estimate, GroupCounts, interval};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ByLosses {
    pub missing: usize,
    /// A_d: the part of the reconstructions whose class is the label.
    pub accuracy: Option<Estimate>,
    /// A_a - A_d over the same queries, with a paired interval.
    pub loss: Option<Estimate>,
    /// The part of the reconstructions that agree with the deployed model.
    pub agreement: Estimate,
    pub reconstructions: usize,
}

/// Figures of queries that are missing alone.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    pub accuracy_deployed: Option<f64>,
    pub accuracy: Option<f64>,
    pub agreement: f64,
    pub reconstructions: usize,
}

pub(super) struct Reconstruction {
    pub(super) missing: usize,
    pub(super) slot: usize,
    pub(super) agrees: bool,
    pub(super) is_right: bool,
    pub(super) is_deployed_right: bool,
    pub(super) confidence: f32,
    /// The label, or the deployed model's class where there is none.
    pub(super) class: usize,
}

#[derive(Debug)]
pub(super) struct Tally {
    labelled: bool,
    losses: Vec<Counts>,
    classes: Vec<Counts>,
    slots: Vec<Counts>,
    bins: Bins,
    pub(super) groups: GroupCounts,
}

impl Tally {
    pub(super) fn new(k: usize, most_missing: usize, classes: usize, labelled: bool) -> Self {
        Self {
            labelled,
            losses: vec![Counts::default(); most_missing],
            classes: vec![Counts::default(); classes],
            slots: vec![Counts::default(); k],
            bins: Bins::default(),
            groups: GroupCounts::new(most_missing),
        }
    }

    pub(super) fn add(&mut self, one: &Reconstruction) {
        let counts = Counts {
            right: usize::from(one.is_right),
            agreeing: usize::from(one.agrees),
            deployed_right: usize::from(one.is_deployed_right),
            all: 1,
        };
        self.groups.add(one.missing - 1, counts);
        self.losses[one.missing - 1].add(counts);
        if one.missing == 1 {
            if let Some(own) = self.classes.get_mut(one.class) {
                own.add(counts);
            }
            self.slots[one.slot].add(counts);
            self.bins.add(one.confidence, if self.labelled { one.is_right } else { one.agrees });
        }
    }

    pub(super) fn finish(
        self,
        (samples, groups): (usize, usize),
        accuracy_deployed: Option<f64>,
        resamples: usize,
        seed: u64,
    ) -> CodeEvaluation {
        let known = |value: f64| self.labelled.then_some(value);
        let resampled = self.groups.resample(resamples, seed);
        let losses = self.losses.iter().zip(&resampled).enumerate();
        let by_losses = losses.map(|(index, (counts, resampled))| {
            let estimate = |figure: fn(Counts) -> f64| Estimate {
                value: figure(*counts),
                interval: interval(resampled, figure),
            };
            ByLosses {
                missing: index + 1,
                accuracy: self.labelled.then(|| estimate(Counts::accuracy)),
                loss: self.labelled.then(|| estimate(Counts::loss)),
                agreement: estimate(Counts::agreement),
                reconstructions: counts.all,
            }
        });
        let figures = |counts: &Counts| Figures {
            accuracy_deployed: known(counts.part(counts.deployed_right)),
            accuracy: known(counts.accuracy()),
            agreement: counts.agreement(),
            reconstructions: counts.all,
        };
        let all = |counts: &[Counts]| counts.iter().map(figures).enumerate().collect();
        let (by_slot, mut by_class): (BTreeMap<_, _>, BTreeMap<_, _>) =
            (all(&self.slots), all(&self.classes));
        by_class.retain(|_, figures: &mut Figures| figures.reconstructions > 0);
        CodeEvaluation {
            samples,
            groups,
            accuracy_deployed,
            by_losses: by_losses.collect(),
            by_class,
            by_slot,
            calibration: self.bins.finish(),
        }
    }
}
