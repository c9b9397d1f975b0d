//! decode(encode) is exact for linear models: with `F` linear and parity models `F_Pj = F` for the sum code, every
//! erasure pattern of u <= r predictions is recovered to 1e-4.

use parapet_decoder::{DecodeError, LinearDecoder};
use parapet_encoder::{Code, CodeSpec, EncoderKind, build_encoder};
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
        let spec = CodeSpec { encoder: EncoderKind::Sum, k, r, generator: None };
        let encoder = build_encoder(&spec, &[INPUTS]).unwrap();
        let decoder = LinearDecoder::new(Code::try_from(&spec).unwrap());
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
                let predictions: Vec<_> =
                    (0..k).map(|i| (missing & (1 << i) == 0).then(|| truth[i].clone())).collect();
                let rows: Vec<_> = (0..r).map(|j| (answered & (1 << j) != 0).then(|| parity[j].clone())).collect();
                let recoverable = missing.count_ones() <= answered.count_ones();
                for slot in (0..k).filter(|i| missing & (1 << i) != 0) {
                    let mut out = vec![0.0; CLASSES];
                    let result = decoder.decode(&views(&predictions), &views(&rows), slot, &mut out);
                    if recoverable {
                        prop_assert_eq!(result, Ok(()));
                        prop_assert!(close(&out, &truth[slot]), "{:?} against {:?}", out, &truth[slot]);
                    } else {
                        let refused = matches!(result, Err(DecodeError::Unrecoverable { .. }));
                        prop_assert!(refused, "{:?}", result);
                    }
                }
            }
        }
    }

    /// For concatenation the linear parity model exists when the deployed model sees an image only through the means
    /// of its pixel pairs: it then reads each half of the parity query with the deployed model's weights.
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
                .map(|row| image.chunks(2).zip(row).map(|(pair, w)| w * (pair[0] + pair[1])).sum())
                .collect()
        };
        let spec = CodeSpec { encoder: EncoderKind::Concat, k: 2, r: 1, generator: None };
        let encoder = build_encoder(&spec, &[1, 12]).unwrap();
        let mut query = vec![0.0; 12];
        encoder.encode(0, &[&left, &right], &mut query).unwrap();
        let parity: Vec<f32> = pair_weights
            .chunks(6)
            .map(|row| query.chunks(6).map(|half| half.iter().zip(row).map(|(x, w)| 2.0 * w * x).sum::<f32>()).sum())
            .collect();
        let decoder = LinearDecoder::new(Code::try_from(&spec).unwrap());
        let (l, r) = (deployed(&left), deployed(&right));
        let mut out = vec![0.0; CLASSES];
        decoder.decode(&[None, Some(&r)], &[Some(&parity)], 0, &mut out).unwrap();
        prop_assert!(close(&out, &l));
        decoder.decode(&[Some(&l), None], &[Some(&parity)], 1, &mut out).unwrap();
        prop_assert!(close(&out, &r));
    }
}
