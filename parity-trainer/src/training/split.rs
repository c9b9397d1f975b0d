//! Samples set aside to choose by.

use rand::seq::SliceRandom;

use crate::data::Samples;
use crate::network::stream;

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
    let mut is_held = vec![false; count];
    for &index in order.iter().take(held) {
        is_held[index] = true;
    }
    let part = |wanted: bool| {
        let length = is_held.iter().filter(|&&held| held == wanted).count() * samples.sample_len();
        let values = Vec::with_capacity(length);
        let mut part = Samples {
            shape: samples.shape.clone(),
            values,
            labels: Vec::new(),
        };
        for index in (0..count).filter(|&index| is_held[index] == wanted) {
            part.values.extend_from_slice(samples.sample(index));
            part.labels.extend(samples.labels.get(index));
        }
        part
    };
    Some((part(false), part(true)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_sample_is_in_one_part(count in 4usize..60, share in 0.0f64..0.5, seed in 0u64..5) {
            let values: Vec<f32> = (0..count).map(|value| value as f32).collect();
            let labels = (0..count).map(|label| label as u8).collect();
            let samples = Samples { shape: vec![1], values: values.clone(), labels };
            let (train, held) = split_validation(&samples, share, 2, seed).unwrap();
            prop_assert!(held.len() >= 2 && train.len() >= 2);
            let mut both = [train.values.clone(), held.values.clone()].concat();
            both.sort_by(f32::total_cmp);
            prop_assert_eq!(both, values);
            prop_assert_eq!(split_validation(&samples, share, 2, seed).unwrap(), (train, held));
        }
    }

    #[test]
    fn too_few_samples_are_not_split() {
        let samples = Samples {
            shape: vec![1],
            values: vec![0.0; 3],
            labels: vec![0; 3],
        };
        assert!(split_validation(&samples, 0.1, 2, 0).is_none());
    }
}
