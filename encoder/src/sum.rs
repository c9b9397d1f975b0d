//! Weighted sum: `P_j = sum_i a_ji X_i` (ParM section 3.2). For any shape; exact for linear models.

/// Elements at a time: 4 KiB of the output stay in the first-level cache while inputs stream past.
const BLOCK: usize = 1024;

pub(crate) fn weighted_sum(coefficients: &[f32], queries: &[&[f32]], parity: &mut [f32]) {
    let all_ones = coefficients.iter().all(|&a| a == 1.0);
    // One pass over memory for the usual sizes; the bounds are proved once by the zips.
    match queries {
        [a, b] if all_ones => {
            for ((out, a), b) in parity.iter_mut().zip(*a).zip(*b) {
                *out = a + b;
            }
        }
        [a, b, c] if all_ones => {
            for (((out, a), b), c) in parity.iter_mut().zip(*a).zip(*b).zip(*c) {
                *out = a + b + c;
            }
        }
        [a, b, c, d] if all_ones => {
            for ((((out, a), b), c), d) in parity.iter_mut().zip(*a).zip(*b).zip(*c).zip(*d) {
                *out = (a + b) + (c + d);
            }
        }
        _ => {
            for (block, out) in parity.chunks_mut(BLOCK).enumerate() {
                let start = block * BLOCK;
                out.fill(0.0);
                for (coefficient, query) in coefficients.iter().zip(queries) {
                    let query = query.get(start..start + out.len()).unwrap_or_default();
                    for (out, value) in out.iter_mut().zip(query) {
                        *out += coefficient * value;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{CodeSpec, EncodeError, Encoder, EncoderKind, build_encoder};
    use proptest::prelude::*;

    fn encoder(k: usize, r: usize, sample_len: usize) -> Box<dyn Encoder> {
        build_encoder(&CodeSpec::new(EncoderKind::Sum, k, r), &[sample_len]).unwrap()
    }

    proptest! {
        #[test]
        fn is_the_weighted_sum(
            k in 2usize..=6,
            row in 0usize..2,
            len in 1usize..3000,
            seed in any::<u32>(),
        ) {
            let encoder = encoder(k, 2, len);
            let queries: Vec<Vec<f32>> = (0..k)
                .map(|i| {
                    (0..len)
                        .map(|e| ((e * 31 + i * 7 + seed as usize % 1000) % 97) as f32 / 9.7 - 5.0)
                        .collect()
                })
                .collect();
            let views: Vec<&[f32]> = queries.iter().map(Vec::as_slice).collect();
            let mut parity = vec![f32::NAN; len];
            encoder.encode(row, &views, &mut parity).unwrap();
            for e in 0..len {
                let expected: f64 = (0..k)
                    .map(|i| {
                        f64::from(encoder.code().coefficient(row, i)) * f64::from(queries[i][e])
                    })
                    .sum();
                prop_assert!((f64::from(parity[e]) - expected).abs() < 1e-3);
            }
        }
    }

    #[test]
    fn a_group_that_does_not_fit_is_refused() {
        let encoder = encoder(2, 1, 4);
        let (a, short) = ([0.0; 4], [0.0; 3]);
        let mut parity = [0.0; 4];
        assert_eq!(
            encoder.encode(1, &[&a, &a], &mut parity),
            Err(EncodeError::NoSuchRow { row: 1, r: 1 })
        );
        assert_eq!(
            encoder.encode(0, &[&a], &mut parity),
            Err(EncodeError::GroupSize { expected: 2, got: 1 })
        );
        assert_eq!(
            encoder.encode(0, &[&a, &short], &mut parity),
            Err(EncodeError::UnequalLength { slot: 1, expected: 4, got: 3 })
        );
        assert_eq!(
            encoder.encode(0, &[&a, &a], &mut [0.0; 5]),
            Err(EncodeError::PartialSample { len: 5, sample_len: 4 })
        );
    }
}
