//! decode(encode) is exact for linear models: with `F` linear and parity models `F_Pj = F` for the
//! sum code, every erasure pattern of u <= r predictions is recovered to 1e-4.

use parapet_decoder::{DecodeError, build_decoder};
use parapet_encoder::{CodeSpec, EncoderKind, OutputTransform, build_encoder};
use proptest::prelude::*;

const INPUTS: usize = 12;
const CLASSES: usize = 5;

/// A random linear model without bias, `CLASSES` x `INPUTS`.
fn apply(weights: &[f32], input: &[f32]) -> Vec<f32> {
    weights.chunks(INPUTS).map(|row| row.iter().zip(input).map(|(w, x)| w * x).sum()).collect()
}

fn views(outputs: &[Option<Vec<f32>>]) -> Vec<Option<&[f32]>> {
    outputs.iter().map(Option::as_deref).collect()
}

fn close(a: &[f32], b: &[f32]) -> bool {
    let scale = b.iter().fold(1.0f32, |scale, value| scale.max(value.abs()));
    a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-4 * scale)
}

proptest! {
    #[test]
    fn every_erasure_pattern_of_the_sum_code(
        k in 2usize..=6,
        r in 1usize..=2,
        weights in proptest::collection::vec(-1.0f32..1.0, CLASSES * INPUTS),
        inputs in proptest::collection::vec(-1.0f32..1.0, 6 * INPUTS),
    ) {
        let spec = CodeSpec::new(EncoderKind::Sum, k, r);
        let encoder = build_encoder(&spec, &[INPUTS]).unwrap();
        let decoder = build_decoder(&spec, CLASSES).unwrap();
        let queries: Vec<&[f32]> = inputs.chunks(INPUTS).take(k).collect();
        let truth: Vec<Vec<f32>> = queries.iter().map(|query| apply(&weights, query)).collect();
        let parity: Vec<Vec<f32>> = (0..r)
            .map(|row| {
                let mut query = vec![0.0; INPUTS];
                encoder.encode(row, &queries, &mut query).unwrap();
                apply(&weights, &query)
            })
            .collect();

        for missing in 1u32..1 << k {
            for answered in 0u32..1 << r {
                let predictions: Vec<_> = (0..k)
                    .map(|i| (missing & (1 << i) == 0).then(|| truth[i].clone()))
                    .collect();
                let rows: Vec<_> = (0..r)
                    .map(|j| (answered & (1 << j) != 0).then(|| parity[j].clone()))
                    .collect();
                let recoverable = missing.count_ones() <= answered.count_ones();
                for slot in (0..k).filter(|i| missing & (1 << i) != 0) {
                    let mut out = vec![0.0; CLASSES];
                    let result =
                        decoder.decode(&views(&predictions), &views(&rows), slot, &mut out);
                    if recoverable {
                        prop_assert_eq!(result, Ok(()));
                        prop_assert!(
                            close(&out, &truth[slot]),
                            "{:?} against {:?}",
                            out,
                            &truth[slot]
                        );
                    } else {
                        let refused = matches!(result, Err(DecodeError::Unrecoverable { .. }));
                        prop_assert!(refused, "{:?}", result);
                    }
                }
            }
        }
    }

    /// The deployed model is linear up to its output's scale and level, `F(X) = deviation * W X +
    /// mean`, the parity models are `W`: what they answer is the sum in the standardised domain,
    /// for requests of two samples.
    #[test]
    fn models_that_are_linear_once_standardised(
        k in 2usize..=4,
        r in 1usize..=2,
        for_each in any::<bool>(),
        mean in proptest::collection::vec(-40.0f32..40.0, CLASSES),
        deviation in proptest::collection::vec(0.5f32..40.0, CLASSES),
        weights in proptest::collection::vec(-1.0f32..1.0, CLASSES * INPUTS),
        inputs in proptest::collection::vec(-1.0f32..1.0, 4 * 2 * INPUTS),
    ) {
        let entries = if for_each { CLASSES } else { 1 };
        let (mean, deviation) = (mean[..entries].to_vec(), deviation[..entries].to_vec());
        let of_class = |entries: &[f32], class: usize| entries[if for_each { class } else { 0 }];
        let linear = |input: &[f32]| -> Vec<f32> {
            input
                .chunks(INPUTS)
                .flat_map(|sample| apply(&weights, sample))
                .collect()
        };
        let deployed = |input: &[f32]| -> Vec<f32> {
            let scaled = linear(input)
                .into_iter()
                .enumerate()
                .map(|(i, y)| y * of_class(&deviation, i % CLASSES) + of_class(&mean, i % CLASSES));
            scaled.collect()
        };
        let transform = OutputTransform::Standardised {
            mean: mean.clone(),
            deviation: deviation.clone(),
        };
        let spec = CodeSpec {
            transform,
            ..CodeSpec::new(EncoderKind::Sum, k, r)
        };
        let encoder = build_encoder(&spec, &[INPUTS]).unwrap();
        let decoder = build_decoder(&spec, CLASSES).unwrap();
        let queries: Vec<&[f32]> = inputs.chunks(2 * INPUTS).take(k).collect();
        let truth: Vec<Vec<f32>> = queries.iter().map(|query| deployed(query)).collect();
        let parity: Vec<Option<Vec<f32>>> = (0..r)
            .map(|row| {
                let mut query = vec![0.0; 2 * INPUTS];
                encoder.encode(row, &queries, &mut query).unwrap();
                Some(linear(&query))
            })
            .collect();
        let predictions: Vec<_> = truth
            .iter()
            .enumerate()
            .map(|(i, y)| (i >= r).then(|| y.clone()))
            .collect();
        for slot in 0..r {
            let mut out = vec![0.0; 2 * CLASSES];
            decoder
                .decode(&views(&predictions), &views(&parity), slot, &mut out)
                .unwrap();
            for (y, truth) in out.iter().zip(&truth[slot]) {
                prop_assert!((y - truth).abs() < 0.02, "{y} for {truth}");
            }
        }
    }

    /// Parity outputs that are the sum of log-probabilities give back log-probabilities: the same
    /// top class, no inverse.
    #[test]
    fn sums_of_log_probabilities_give_log_probabilities_back(
        k in 2usize..=6,
        slot in 0usize..6,
        logits in proptest::collection::vec(-30.0f32..30.0, 6 * 2 * CLASSES),
    ) {
        let slot = slot % k;
        let transform = OutputTransform::LogSoftmax { floor: -20.0 };
        let spec = CodeSpec {
            transform: transform.clone(),
            ..CodeSpec::new(EncoderKind::Sum, k, 1)
        };
        let decoder = build_decoder(&spec, CLASSES).unwrap();
        let truth: Vec<Vec<f32>> = logits
            .chunks(2 * CLASSES)
            .take(k)
            .map(<[f32]>::to_vec)
            .collect();
        let mut coded = truth.clone();
        coded
            .iter_mut()
            .for_each(|outputs| transform.apply(outputs, CLASSES));
        let parity: Vec<f32> = (0..2 * CLASSES)
            .map(|i| coded.iter().map(|y| y[i]).sum())
            .collect();
        let predictions: Vec<_> = truth
            .iter()
            .enumerate()
            .map(|(i, y)| (i != slot).then_some(y.as_slice()))
            .collect();
        let mut out = vec![0.0; 2 * CLASSES];
        decoder
            .decode(&predictions, &[Some(&parity)], slot, &mut out)
            .unwrap();
        prop_assert_eq!(decoder.output_domain().to_string(), "log_probabilities");
        prop_assert!(
            close(&out, &coded[slot]),
            "{:?} against {:?}",
            out,
            &coded[slot]
        );
    }

    /// For concatenation the linear parity model exists when the deployed model sees an image only
    /// through the means of its pixel pairs: it then reads each half of the parity query with the
    /// deployed model's weights.
    #[test]
    fn concatenation_is_exact_for_models_of_the_shrunk_image(
        pair_weights in proptest::collection::vec(-1.0f32..1.0, CLASSES * 6),
        left in proptest::collection::vec(-1.0f32..1.0, INPUTS),
        right in proptest::collection::vec(-1.0f32..1.0, INPUTS),
    ) {
        // Images of 1 x 12: the deployed model weighs both pixels of a pair alike.
        let deployed = |image: &[f32]| -> Vec<f32> {
            pair_weights
                .chunks(6)
                .map(|row| {
                    image
                        .chunks(2)
                        .zip(row)
                        .map(|(pair, w)| w * (pair[0] + pair[1]))
                        .sum()
                })
                .collect()
        };
        let spec = CodeSpec::new(EncoderKind::Concat, 2, 1);
        let encoder = build_encoder(&spec, &[1, 12]).unwrap();
        let mut query = vec![0.0; 12];
        encoder.encode(0, &[&left, &right], &mut query).unwrap();
        let parity: Vec<f32> = pair_weights
            .chunks(6)
            .map(|row| {
                query
                    .chunks(6)
                    .map(|half| half.iter().zip(row).map(|(x, w)| 2.0 * w * x).sum::<f32>())
                    .sum()
            })
            .collect();
        let decoder = build_decoder(&spec, CLASSES).unwrap();
        let (l, r) = (deployed(&left), deployed(&right));
        let mut out = vec![0.0; CLASSES];
        decoder
            .decode(&[None, Some(&r)], &[Some(&parity)], 0, &mut out)
            .unwrap();
        prop_assert!(close(&out, &l));
        decoder
            .decode(&[Some(&l), None], &[Some(&parity)], 1, &mut out)
            .unwrap();
        prop_assert!(close(&out, &r));
    }
}
