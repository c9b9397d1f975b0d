//! Samples one after another on a new axis: a parity query of shape `[k, ..]` for each sample.
//!
//! Nothing is shrunk or added, so any shape will do; a parity query is k times as long as a query.

/// Copies the k samples of `sample_len` elements beside each other, for each sample of a batch.
pub(crate) fn stack(sample_len: usize, queries: &[&[f32]], parity: &mut [f32]) {
    for (sample, stack) in parity.chunks_exact_mut(queries.len() * sample_len).enumerate() {
        let at = sample * sample_len..(sample + 1) * sample_len;
        for (cell, query) in stack.chunks_exact_mut(sample_len).zip(queries) {
            cell.copy_from_slice(query.get(at.clone()).unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{CodeSpec, EncodeError, Encoder, EncoderKind, build_encoder};
    use proptest::prelude::*;

    fn encoder(k: usize, r: usize, shape: &[usize]) -> Box<dyn Encoder> {
        build_encoder(&CodeSpec::new(EncoderKind::Stack, k, r), shape).unwrap()
    }

    #[test]
    fn samples_of_a_batch_are_stacked_one_by_one() {
        let (a, b) = ([1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]);
        let mut parity = [0.0; 8];
        encoder(2, 1, &[2]).encode(0, &[&a, &b], &mut parity).unwrap();
        assert_eq!(parity, [1.0, 2.0, 5.0, 6.0, 3.0, 4.0, 7.0, 8.0]);
    }

    #[test]
    fn a_parity_query_that_is_not_k_times_as_long_is_refused() {
        let encoder = encoder(2, 1, &[2]);
        let query = [1.0, 2.0];
        let partial = encoder.encode(0, &[&query, &query], &mut [0.0; 2]);
        let expected = EncodeError::PartialSample { len: 2, sample_len: 4 };
        assert_eq!(partial, Err(expected));
        let unequal = encoder.encode(0, &[&query, &query[..1]], &mut [0.0; 4]);
        let expected = EncodeError::UnequalLength { slot: 1, expected: 2, got: 1 };
        assert_eq!(unequal, Err(expected));
    }

    proptest! {
        #[test]
        fn every_sample_is_found_in_its_slot_bit_for_bit_in_every_row(
            k in 2usize..=6,
            len in 1usize..9,
            batch in 1usize..4,
            seed in 0u32..1000,
        ) {
            let encoder = encoder(k, 2, &[len]);
            let value = |slot: usize, at: usize| (seed as usize + 31 * slot + at) as f32;
            let queries: Vec<Vec<f32>> = (0..k)
                .map(|slot| (0..batch * len).map(|at| value(slot, at)).collect())
                .collect();
            let views: Vec<&[f32]> = queries.iter().map(Vec::as_slice).collect();
            for row in 0..2 {
                let mut parity = vec![f32::NAN; k * batch * len];
                encoder.encode(row, &views, &mut parity).unwrap();
                for (i, cell) in parity.chunks(len).enumerate() {
                    let (sample, slot) = (i / k, i % k);
                    prop_assert_eq!(cell, &queries[slot][sample * len..(sample + 1) * len]);
                }
            }
        }
    }
}
