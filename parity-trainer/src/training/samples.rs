//! Samples to learn from, and those set aside to choose by.

use parapet_decoder::Agreement;
use rand::seq::SliceRandom;

use crate::data::{Augment, Samples, row};
use crate::deployed::InputScaling;
use crate::network::stream;

/// Training set of a parity model: whole samples, and the deployed model's outputs for them.
#[derive(Debug, Clone)]
pub struct TrainingSet {
    pub shape: Vec<usize>,
    /// Shape of the deployed model's output for a sample.
    pub output_shape: Vec<usize>,
    /// The comparison of its values, by which training chooses.
    pub agreement: Agreement,
    pub inputs: Vec<f32>,
    pub answers: Vec<f32>,
}

impl TrainingSet {
    pub fn outputs(&self) -> usize {
        self.agreement.output_len()
    }

    pub fn sample_len(&self) -> usize {
        self.shape.iter().product()
    }

    pub fn len(&self) -> usize {
        self.inputs.len() / self.sample_len().max(1)
    }

    pub fn is_empty(&self) -> bool {
        self.inputs.is_empty()
    }

    /// The first `count` samples.
    pub fn head(&self, count: usize) -> Self {
        let head = |values: &[f32], len| values.iter().take(count * len).copied().collect();
        Self {
            shape: self.shape.clone(),
            output_shape: self.output_shape.clone(),
            agreement: self.agreement,
            inputs: head(&self.inputs, self.sample_len()),
            answers: head(&self.answers, self.outputs()),
        }
    }

    pub(super) fn sample(&self, index: usize) -> &[f32] {
        row(&self.inputs, index, self.sample_len())
    }

    pub(super) fn answer(&self, index: usize) -> &[f32] {
        row(&self.answers, index, self.outputs())
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
    let (mut rng, shape) = (stream(seed, 4), &samples.shape);
    let mut inputs = samples.values.repeat(copies + 1);
    let sample_len = samples.sample_len();
    for (index, variant) in inputs.chunks_exact_mut(sample_len).enumerate().skip(samples.len()) {
        augment.apply(&mut rng, shape, samples.sample(index % samples.len()), variant);
    }
    scaling.apply(shape, &mut inputs);
    inputs
}

/// Splits `samples` into what is learned from and a `share` to validate on, `least` samples or more
/// of each; `None` if there are not that many. The same seed makes the same split; both parts keep
/// the samples' order.
pub fn split_validation(
    samples: &Samples,
    share: f64,
    least: usize,
    seed: u64,
) -> Option<(Samples, Samples)> {
    let count = samples.len();
    let held = ((count as f64 * share).round() as usize).max(least);
    if held + least > count {
        return None;
    }
    let mut order: Vec<usize> = (0..count).collect();
    order.shuffle(&mut stream(seed, 5));
    let part = |indices: &mut [usize]| {
        indices.sort_unstable();
        let values = indices.iter().flat_map(|&index| samples.sample(index));
        let labels = indices.iter().filter_map(|&index| samples.labels.get(index));
        Samples::new(samples.shape.clone(), values.copied().collect(), labels.copied().collect())
    };
    let (held, learned) = order.split_at_mut(held);
    Some((part(learned), part(held)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn samples(count: u8) -> Samples {
        let values = (0..count).map(f32::from).collect();
        let labels = (0..count).collect();
        Samples::new(vec![1], values, labels)
    }

    proptest! {
        #[test]
        fn each_sample_is_in_one_part(count in 4u8..60, share in 0.0f64..0.5, seed in 0u64..5) {
            let samples = samples(count);
            let (train, held) = split_validation(&samples, share, 2, seed).unwrap();
            prop_assert!(held.len() >= 2 && train.len() >= 2);
            let mut both = [train.values.clone(), held.values.clone()].concat();
            both.sort_by(f32::total_cmp);
            prop_assert_eq!(&both, &samples.values);
            prop_assert_eq!(split_validation(&samples, share, 2, seed).unwrap(), (train, held));
        }
    }

    #[test]
    fn too_few_samples_are_not_split() {
        assert!(split_validation(&samples(3), 0.1, 2, 0).is_none());
    }
}
