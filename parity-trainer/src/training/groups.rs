//! Coding groups for training: parity queries and what a parity model should answer to them.

use parapet_encoder::Encoder;
use rand_chacha::ChaCha8Rng;

use crate::TrainError;
use crate::data::{Augment, Samples, Shuffle};
use crate::deployed::InputScaling;
use crate::network::stream;

/// Samples (and variants of them) with the deployed model's outputs, computed once.
#[derive(Debug)]
pub(super) struct Pool {
    samples: Vec<f32>,
    outputs: Vec<f32>,
    sample_len: usize,
    output_len: usize,
    shuffle: Shuffle,
}

/// What a parity model learns from: the training samples, `copies` random variants of each, all scaled as the deployed model
/// wants them. The same seed gives the same values.
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
        let variants = inputs.get_mut(start..).unwrap_or_default().chunks_exact_mut(samples.sample_len());
        for (index, variant) in variants.enumerate() {
            augment.apply(&mut rng, &samples.shape, samples.sample(index), variant);
        }
    }
    scaling.apply(&samples.shape, &mut inputs);
    inputs
}

/// One batch of coding groups, slot by slot: `slot * groups + group` is the row of a group's query.
#[derive(Debug)]
pub(super) struct GroupBatch {
    /// Parity queries, a sample each.
    pub(super) parity: Vec<f32>,
    /// The weighted sum of the deployed model's outputs for each group.
    pub(super) targets: Vec<f32>,
    /// The deployed model's outputs for the k slots' queries.
    pub(super) outputs: Vec<f32>,
    queries: Vec<f32>,
}

impl Pool {
    /// `samples` with the deployed model's `outputs`, `output_len` for each.
    pub(super) fn new(samples: Vec<f32>, outputs: Vec<f32>, sample_len: usize, output_len: usize) -> Self {
        let shuffle = Shuffle::new(samples.len() / sample_len.max(1));
        Self { samples, outputs, sample_len, output_len, shuffle }
    }

    /// Mean and standard deviation of the deployed model's outputs.
    pub(super) fn output_moments(&self) -> (f64, f64) {
        let count = self.outputs.len().max(1) as f64;
        let mean = self.outputs.iter().copied().map(f64::from).sum::<f64>() / count;
        let squares = self.outputs.iter().map(|&output| (f64::from(output) - mean).powi(2)).sum::<f64>();
        (mean, (squares / count).sqrt())
    }

    /// An empty batch of `groups` groups for [`Pool::fill`].
    pub(super) fn batch(&self, k: usize, groups: usize) -> GroupBatch {
        GroupBatch {
            parity: vec![0.0; groups * self.sample_len],
            targets: vec![0.0; groups * self.output_len],
            outputs: vec![0.0; k * groups * self.output_len],
            queries: vec![0.0; k * groups * self.sample_len],
        }
    }

    /// Fills `batch` with the next groups: k consecutive samples of a fresh shuffle each (ParM section 4.1).
    pub(super) fn fill(
        &mut self,
        encoder: &dyn Encoder,
        row: usize,
        batch: &mut GroupBatch,
        rng: &mut ChaCha8Rng,
    ) -> Result<(), TrainError> {
        let (sample_len, output_len) = (self.sample_len, self.output_len);
        let groups = batch.parity.len() / sample_len;
        let code = encoder.code();
        batch.targets.fill(0.0);
        for group in 0..groups {
            for slot in 0..code.k() {
                let index = self.shuffle.next(rng);
                let place = slot * groups + group;
                let sample = &self.samples[index * sample_len..(index + 1) * sample_len];
                batch.queries[place * sample_len..(place + 1) * sample_len].copy_from_slice(sample);
                let output = &self.outputs[index * output_len..(index + 1) * output_len];
                batch.outputs[place * output_len..(place + 1) * output_len].copy_from_slice(output);
                let target = &mut batch.targets[group * output_len..(group + 1) * output_len];
                for (target, output) in target.iter_mut().zip(output) {
                    *target += code.coefficient(row, slot) * output;
                }
            }
        }
        let queries: Vec<&[f32]> = batch.queries.chunks_exact(groups * sample_len).collect();
        encoder.encode(row, &queries, &mut batch.parity)?;
        Ok(())
    }
}
