//! Coding groups for training: parity queries and what a parity model should answer to them.

use std::sync::Arc;

use parapet_decoder::{ClassAxis, ClassScores};
use parapet_encoder::{Encoder, OutputTransform};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use crate::TrainError;
use crate::data::{Augment, Samples, Shuffle};
use crate::deployed::InputScaling;
use crate::network::stream;

/// Number of the latest queries among which training draws a group's last one, as a frontend does.
const RECENT: usize = 16;

/// Training set of a parity model: whole samples, and the deployed model's outputs for them.
#[derive(Debug, Clone)]
pub struct TrainingSet {
    /// Shape of one sample.
    pub shape: Vec<usize>,
    /// The classes that the outputs score: training chooses by the top one.
    pub classes: ClassAxis,
    /// The samples, row-major.
    pub inputs: Vec<f32>,
    /// The deployed model's raw outputs for each.
    pub answers: Vec<f32>,
}

impl TrainingSet {
    /// Outputs of one sample.
    pub fn outputs(&self) -> usize {
        self.classes.count()
    }

    /// Values in one sample.
    pub fn sample_len(&self) -> usize {
        self.shape.iter().product()
    }

    pub fn len(&self) -> usize {
        self.inputs.len() / self.sample_len().max(1)
    }

    pub fn is_empty(&self) -> bool {
        self.inputs.is_empty()
    }

    pub(super) fn sample(&self, index: usize) -> &[f32] {
        let length = self.sample_len();
        self.inputs
            .get(index * length..(index + 1) * length)
            .unwrap_or_default()
    }

    pub(super) fn answer(&self, index: usize) -> &[f32] {
        self.answers
            .get(index * self.outputs()..(index + 1) * self.outputs())
            .unwrap_or_default()
    }
}

/// The inputs of a [`TrainingSet`]: the samples, `copies` random variants of each, all scaled as
/// the deployed model wants them. The same seed gives the same values.
pub fn training_inputs(
    samples: &Samples,
    augment: Augment,
    copies: usize,
    scaling: &InputScaling,
    seed: u64,
) -> Vec<f32> {
    let mut rng = stream(seed, 4);
    let mut inputs = samples.values.clone();
    for _ in 0..copies {
        let start = inputs.len();
        inputs.resize(start + samples.values.len(), 0.0);
        let variants = inputs
            .get_mut(start..)
            .unwrap_or_default()
            .chunks_exact_mut(samples.sample_len());
        for (index, variant) in variants.enumerate() {
            augment.apply(&mut rng, &samples.shape, samples.sample(index), variant);
        }
    }
    scaling.apply(&samples.shape, &mut inputs);
    inputs
}

/// Sampler of groups. All of its state can be saved.
#[derive(Debug)]
pub(super) struct GroupSampler {
    shuffle: Shuffle,
    /// The latest samples that were not fillers, oldest first, at most [`RECENT`].
    recent: Vec<usize>,
    /// Part of the groups that are completed with fillers.
    filler_share: f64,
}

impl GroupSampler {
    pub(super) fn new(samples: usize, filler_share: f64) -> Self {
        Self {
            shuffle: Shuffle::new(samples),
            recent: Vec::new(),
            filler_share,
        }
    }

    /// Fills `group` with k samples: consecutive ones of a fresh shuffle each pass (ParM section
    /// 4.1).
    ///
    /// A share of the groups has the form that a frontend gives to one that did not fill in time
    /// (invariant CG-5): one or more new queries, then fillers out of the few latest ones, which
    /// come again and again while little is asked.
    pub(super) fn next(&mut self, group: &mut [usize], rng: &mut ChaCha8Rng) {
        let completed = self.filler_share > 0.0
            && !self.recent.is_empty()
            && rng.random_bool(self.filler_share.min(1.0));
        let members = if completed {
            rng.random_range(1..group.len().max(2))
        } else {
            group.len()
        };
        for (slot, index) in group.iter_mut().enumerate() {
            *index = if slot < members {
                self.shuffle.next(rng)
            } else {
                self.recent
                    .get(rng.random_range(0..self.recent.len()))
                    .copied()
                    .unwrap_or_default()
            };
        }
        if self.filler_share > 0.0 {
            self.recent.extend(group.iter().take(members));
            self.recent
                .drain(..self.recent.len().saturating_sub(RECENT));
        }
    }

    pub(super) fn position(&self) -> SamplerPosition {
        let (order, next) = self.shuffle.position();
        SamplerPosition {
            order: order.to_vec(),
            next,
            recent: self.recent.clone(),
        }
    }

    pub(super) fn restore(&mut self, position: &SamplerPosition) {
        self.shuffle = Shuffle::at(position.order.clone(), position.next);
        self.recent.clone_from(&position.recent);
    }
}

/// Where a [`GroupSampler`] stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SamplerPosition {
    pub order: Vec<usize>,
    /// Number of entries of `order` that are used up.
    pub next: usize,
    pub recent: Vec<usize>,
}

/// One batch of coding groups, slot by slot: `slot * groups + group` is the row of a group's query.
#[derive(Debug)]
pub(super) struct GroupBatch {
    /// Parity queries, a sample each.
    pub(super) parity: Vec<f32>,
    /// The weighted sum of the deployed model's outputs, transformed, for each group.
    pub(super) targets: Vec<f32>,
    /// Each slot's share of `targets`, `[groups, cells, outputs]`; nothing for a
    /// batch without cells.
    pub(super) cell_targets: Vec<f32>,
    /// The samples of each slot's queries.
    pub(super) members: Vec<usize>,
    queries: Vec<f32>,
    groups: usize,
}

/// A training set with the outputs as they are added: in the domain of the code's transform.
#[derive(Debug)]
pub(super) struct CodedSet {
    pub(super) set: Arc<TrainingSet>,
    coded: Vec<f32>,
    transform: OutputTransform,
}

impl CodedSet {
    pub(super) fn new(set: Arc<TrainingSet>, transform: &OutputTransform) -> Self {
        let mut coded = set.answers.clone();
        transform.apply(&mut coded, set.outputs());
        Self {
            set,
            coded,
            transform: transform.clone(),
        }
    }

    /// Mean and standard deviation of the transformed outputs.
    pub(super) fn moments(&self) -> (f64, f64) {
        moments(&self.coded)
    }

    /// The outputs for a sample, transformed.
    pub(super) fn coded(&self, index: usize) -> &[f32] {
        let length = self.set.outputs();
        self.coded
            .get(index * length..(index + 1) * length)
            .unwrap_or_default()
    }

    /// An empty batch of `groups` groups for [`CodedSet::fill`].
    pub(super) fn batch(&self, k: usize, groups: usize) -> GroupBatch {
        self.batch_of_cells(k, groups, 0)
    }

    /// One that has the targets of `cells` cells, too: slot i is cell i, further cells are
    /// to add nothing.
    pub(super) fn batch_of_cells(&self, k: usize, groups: usize, cells: usize) -> GroupBatch {
        GroupBatch {
            cell_targets: vec![0.0; groups * cells * self.set.outputs()],
            parity: vec![0.0; groups * self.set.sample_len()],
            targets: vec![0.0; groups * self.set.outputs()],
            members: vec![0; k * groups],
            queries: vec![0.0; k * groups * self.set.sample_len()],
            groups,
        }
    }

    /// Fills `batch`; `next` writes the samples of one group.
    pub(super) fn fill(
        &self,
        encoder: &dyn Encoder,
        row: usize,
        batch: &mut GroupBatch,
        mut next: impl FnMut(&mut [usize]),
    ) -> Result<(), TrainError> {
        let (sample_len, output_len) = (self.set.sample_len(), self.set.outputs());
        let (groups, code) = (batch.groups, encoder.code());
        let mut group = vec![0; code.k()];
        batch.targets.fill(0.0);
        let cells = batch.cell_targets.len() / (groups * output_len).max(1);
        for (at, target) in batch.targets.chunks_exact_mut(output_len).enumerate() {
            next(&mut group);
            for (slot, &index) in group.iter().enumerate() {
                let cell = (at * cells + slot) * output_len;
                if let Some(cell) = batch
                    .cell_targets
                    .get_mut(cell..cell + output_len)
                    .filter(|_| slot < cells)
                {
                    cell.copy_from_slice(self.coded(index));
                }
                let place = slot * groups + at;
                batch.members[place] = index;
                batch.queries[place * sample_len..(place + 1) * sample_len]
                    .copy_from_slice(self.set.sample(index));
                for (target, output) in target.iter_mut().zip(self.coded(index)) {
                    *target += code.coefficient(row, slot) * output;
                }
            }
        }
        let queries: Vec<&[f32]> = batch.queries.chunks_exact(groups * sample_len).collect();
        encoder.encode(row, &queries, &mut batch.parity)?;
        Ok(())
    }

    /// Returns the number of the batch's queries whose reconstruction alone has the deployed
    /// model's class, and the number of queries.
    pub(super) fn agreeing(
        &self,
        parity: &[f32],
        batch: &GroupBatch,
        row: &[f32],
    ) -> (usize, usize) {
        let mut agreeing = 0;
        self.reconstruct(parity, batch, row, |reconstructed, exact| {
            agreeing += usize::from(reconstructed.top_class() == exact.top_class());
        });
        (agreeing, batch.members.len())
    }

    /// Reconstructs each of the batch's queries alone; `each` is handed the reconstruction and the
    /// deployed model's outputs.
    ///
    /// The error of the parity output, divided by the query's coefficient, is the error
    /// of its reconstruction.
    pub(super) fn reconstruct(
        &self,
        parity: &[f32],
        batch: &GroupBatch,
        row: &[f32],
        mut each: impl FnMut(ClassScores<'_>, ClassScores<'_>),
    ) {
        let output_len = self.set.outputs();
        let mut reconstructed = vec![0.0; output_len];
        for (place, &index) in batch.members.iter().enumerate() {
            let (slot, group) = (place / batch.groups, place % batch.groups);
            let coefficient = row.get(slot).copied().unwrap_or(1.0);
            let range = group * output_len..(group + 1) * output_len;
            let errors = parity[range.clone()].iter().zip(&batch.targets[range]);
            for ((out, exact), (parity, target)) in
                reconstructed.iter_mut().zip(self.coded(index)).zip(errors)
            {
                *out = exact + (parity - target) / coefficient;
            }
            self.transform.invert(&mut reconstructed);
            let scores = |outputs| self.set.classes.scores(outputs);
            if let (Some(made), Some(exact)) =
                (scores(&reconstructed), scores(self.set.answer(index)))
            {
                each(made, exact);
            }
        }
    }
}

/// Mean and standard deviation.
pub(super) fn moments(values: &[f32]) -> (f64, f64) {
    let count = values.len().max(1) as f64;
    let mean = values.iter().copied().map(f64::from).sum::<f64>() / count;
    let squares = values
        .iter()
        .map(|&value| (f64::from(value) - mean).powi(2))
        .sum::<f64>();
    (mean, (squares / count).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completed_groups_end_in_recent_samples() {
        let mut sampler = GroupSampler::new(1000, 0.5);
        let mut rng = stream(1, 0);
        let (mut completed, mut repeated) = (0, 0);
        for _ in 0..400 {
            let recent = sampler.recent.clone();
            let mut group = [0; 4];
            sampler.next(&mut group, &mut rng);
            assert!(sampler.recent.len() <= RECENT);
            if recent.contains(&group[3]) {
                completed += 1;
                repeated += usize::from(group[3] == group[2]);
            }
        }
        assert!((150..250).contains(&completed), "{completed}");
        assert!(repeated > 0, "one filler may come twice in a group");
    }

    #[test]
    fn without_fillers_each_pass_takes_each_sample_once() {
        let mut sampler = GroupSampler::new(12, 0.0);
        let mut rng = stream(1, 0);
        let mut seen = Vec::new();
        for _ in 0..4 {
            let mut group = [0; 3];
            sampler.next(&mut group, &mut rng);
            seen.extend(group);
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..12).collect::<Vec<_>>());
    }
}
