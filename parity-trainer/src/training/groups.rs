//! Coding groups for training: parity queries and what a parity model should answer to them.

use std::sync::Arc;

use parapet_encoder::{Encoder, OutputTransform};
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::{NORMALISATION_GROUPS, TrainingSet};
use crate::Result;
use crate::data::row as nth;
use crate::network::stream;

/// Groups of one validation, if there are samples: agreement is then known to 1.5 points.
const VALIDATION_GROUPS: usize = 512;
const VALIDATION_SHUFFLES: usize = 8;

/// Draws samples at random: each once in a pass (ParM section 4.1).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sampler {
    /// The samples in random order, shuffled afresh each time they run out.
    order: Vec<usize>,
    next: usize,
}

impl Sampler {
    pub(crate) fn new(samples: usize) -> Self {
        Self { order: (0..samples).collect(), next: samples }
    }

    pub(super) fn samples(&self) -> usize {
        self.order.len()
    }

    pub(crate) fn draw(&mut self, members: &mut [usize], rng: &mut ChaCha8Rng) {
        for index in members {
            if self.next >= self.order.len() {
                self.order.shuffle(rng);
                self.next = 0;
            }
            *index = self.order[self.next];
            self.next += 1;
        }
    }
}

/// Samples of some random groups of `k`, one after another, to normalise a network's input by.
pub(super) fn random_groups(set: &CodedSet, k: usize, seed: u64) -> Vec<usize> {
    let mut members = vec![0; NORMALISATION_GROUPS * k];
    Sampler::new(set.set.len()).draw(&mut members, &mut stream(seed, 7));
    members
}

/// The groups of k of so many samples that validations look at, one after another, by the seed.
pub(super) fn fixed_groups(samples: usize, k: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..samples).collect();
    let (whole, most) = (samples / k * k, VALIDATION_GROUPS * k);
    let mut rng = stream(seed, 6);
    let mut groups = Vec::new();
    for _ in 0..VALIDATION_SHUFFLES {
        order.shuffle(&mut rng);
        groups.extend_from_slice(&order[..whole]);
        if groups.len() >= most {
            break;
        }
    }
    groups.truncate(most);
    groups
}

#[derive(Debug)]
pub(super) struct GroupBatch {
    /// Samples of the queries, one group after another.
    pub(super) members: Vec<usize>,
    /// Parity queries, a sample each.
    pub(super) parity: Vec<f32>,
    /// The weighted sum of the deployed model's outputs, transformed, for each group.
    pub(super) targets: Vec<f32>,
    /// The queries, slot by slot.
    queries: Vec<f32>,
}

/// A training set with the outputs as they are added: in the domain of the code's transform.
#[derive(Debug)]
pub(super) struct CodedSet {
    pub(super) set: Arc<TrainingSet>,
    pub(super) coded: Vec<f32>,
    transform: OutputTransform,
}

impl CodedSet {
    pub(super) fn new(set: Arc<TrainingSet>, transform: &OutputTransform) -> Self {
        let mut coded = set.answers.clone();
        transform.apply(&mut coded, set.outputs());
        Self { set, coded, transform: transform.clone() }
    }

    pub(super) fn coded(&self, index: usize) -> &[f32] {
        nth(&self.coded, index, self.set.outputs())
    }

    pub(super) fn set_coded(&mut self, index: usize, coded: &[f32]) {
        let outputs = self.set.outputs();
        if let Some(all) = self.coded.get_mut(index * outputs..(index + 1) * outputs) {
            all.copy_from_slice(coded);
        }
    }

    /// A batch of groups of k `members` for [`CodedSet::fill`].
    pub(super) fn batch(&self, members: Vec<usize>, k: usize) -> GroupBatch {
        let (groups, sample_len, outputs) =
            (members.len() / k, self.set.sample_len(), self.set.outputs());
        GroupBatch {
            parity: vec![0.0; groups * sample_len],
            targets: vec![0.0; groups * outputs],
            queries: vec![0.0; members.len() * sample_len],
            members,
        }
    }

    /// Computes the parity queries and targets of the batch's members.
    pub(super) fn fill(
        &self,
        encoder: &dyn Encoder,
        row: usize,
        batch: &mut GroupBatch,
    ) -> Result<()> {
        let (sample_len, output_len) = (self.set.sample_len(), self.set.outputs());
        let (code, k) = (encoder.code(), encoder.code().k());
        let groups = batch.members.len() / k;
        batch.targets.fill(0.0);
        for (place, &index) in batch.members.iter().enumerate() {
            let (group, slot, coded) = (place / k, place % k, self.coded(index));
            let start = (slot * groups + group) * sample_len;
            batch.queries[start..start + sample_len].copy_from_slice(self.set.sample(index));
            let target = &mut batch.targets[group * output_len..][..output_len];
            for (target, output) in target.iter_mut().zip(coded) {
                *target += code.coefficient(row, slot) * output;
            }
        }
        let queries: Vec<&[f32]> = batch.queries.chunks_exact(groups * sample_len).collect();
        Ok(encoder.encode(row, &queries, &mut batch.parity)?)
    }

    /// Reconstructs each of the batch's queries alone, slot by slot; `each` is handed the
    /// reconstruction and the deployed model's outputs.
    ///
    /// A reconstruction's error is the parity output's, divided by the query's coefficient.
    pub(super) fn reconstruct(
        &self,
        parity: &[f32],
        batch: &GroupBatch,
        row: &[f32],
        mut each: impl FnMut(&[f32], &[f32]),
    ) {
        let output_len = self.set.outputs();
        let mut reconstructed = vec![0.0; output_len];
        for (slot, coefficient) in row.iter().enumerate() {
            for (group, &index) in batch.members.iter().skip(slot).step_by(row.len()).enumerate() {
                let targets = nth(&batch.targets, group, output_len);
                let errors = nth(parity, group, output_len).iter().zip(targets);
                let exact = self.coded(index).iter().zip(errors);
                for (out, (exact, (parity, target))) in reconstructed.iter_mut().zip(exact) {
                    *out = exact + (parity - target) / coefficient;
                }
                self.transform.invert(&mut reconstructed);
                each(&reconstructed, self.set.answer(index));
            }
        }
    }

    /// Number of the batch's queries whose reconstruction alone agrees with the deployed model.
    pub(super) fn agreeing(&self, parity: &[f32], batch: &GroupBatch, row: &[f32]) -> usize {
        let mut agreeing = 0;
        self.reconstruct(parity, batch, row, |made, exact| {
            agreeing += usize::from(self.set.agreement.agrees(made, exact));
        });
        agreeing
    }
}

/// Choice of the output transform that the code adds in: where a deployed model's outputs are badly
/// scaled it decides everything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum TransformChoice {
    /// By short trials of each that fits, on validation data.
    Auto,
    /// Outputs as they are, as in ParM.
    #[default]
    Raw,
    /// Less their mean, over their standard deviation.
    Standardised,
    /// Log-probabilities, clamped from below.
    LogSoftmax,
}

impl TransformChoice {
    /// The transforms that it allows for the outputs of `set`, raw first.
    pub fn candidates(self, set: &TrainingSet) -> Vec<OutputTransform> {
        let (mean, deviation) = moments(&set.answers);
        let standardised = OutputTransform::Standardised {
            mean: vec![mean as f32],
            deviation: vec![(deviation as f32).max(1e-6)],
        };
        let log_softmax = OutputTransform::LogSoftmax { floor: parapet_encoder::DEFAULT_FLOOR };
        match self {
            Self::Raw => vec![OutputTransform::Raw],
            Self::Standardised => vec![standardised],
            Self::LogSoftmax => vec![log_softmax],
            Self::Auto => {
                let mut all = vec![OutputTransform::Raw, standardised, log_softmax];
                all.retain(|transform| transform.validate(set.outputs()).is_ok());
                all
            }
        }
    }
}

pub(super) fn moments(values: &[f32]) -> (f64, f64) {
    let count = values.len().max(1) as f64;
    let values = || values.iter().copied().map(f64::from);
    let mean = values().sum::<f64>() / count;
    let squares: f64 = values().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / count).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pass_takes_each_sample_once() {
        let (mut sampler, mut rng) = (Sampler::new(12), stream(1, 0));
        let mut seen = [0; 24];
        for group in seen.chunks_mut(3) {
            sampler.draw(group, &mut rng);
        }
        for pass in seen.chunks_mut(12) {
            pass.sort_unstable();
            assert_eq!(pass, (0..12).collect::<Vec<_>>());
        }
    }
}
