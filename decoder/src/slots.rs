//! The decoder of codes with slots: a parity output of shape `[k, ..]` for each sample holds an
//! approximation of every member's prediction, so one output answers for all of them.
//!
//! Networks with several inputs and outputs are MIMONets (NeurIPS 2023) and DataMUX (NeurIPS 2022);
//! as parity models of a coding group they need no sibling's prediction. Rows are independent
//! models: where several answered, the mean of their slots is taken.

use crate::GroupDecoder;

impl GroupDecoder {
    /// The slot's outputs of each sample of a parity output.
    fn slot<'a>(&self, output: &'a [f32], slot: usize) -> impl Iterator<Item = &'a [f32]> {
        output.chunks_exact(self.output_len).skip(slot).step_by(self.code.k())
    }

    /// Writes the mean of the slot in the parity outputs, in the transform's domain, for a group
    /// that fits.
    pub(super) fn read_slot(&self, parity: &[Option<&[f32]>], slot: usize, out: &mut [f32]) {
        let mut outputs = parity.iter().flatten();
        if let Some(first) = outputs.next() {
            let samples = out.chunks_exact_mut(self.output_len);
            samples.zip(self.slot(first, slot)).for_each(|(out, y)| out.copy_from_slice(y));
        }
        let mut rows = 1.0;
        for output in outputs {
            rows += 1.0;
            let samples = out.chunks_exact_mut(self.output_len);
            for (out, outputs) in samples.zip(self.slot(output, slot)) {
                out.iter_mut().zip(outputs).for_each(|(sum, y)| *sum += y);
            }
        }
        if rows > 1.0 {
            out.iter_mut().for_each(|sum| *sum /= rows);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{DecodeError, Decoder, build_decoder};
    use parapet_encoder::{CodeSpec, EncoderKind, OutputTransform};

    fn decoder(k: usize, r: usize, transform: OutputTransform) -> Box<dyn Decoder> {
        let spec = CodeSpec { transform, ..CodeSpec::new(EncoderKind::Stack, k, r) };
        build_decoder(&spec, 2).unwrap()
    }

    const OUTPUT: &[f32] = &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];

    #[test]
    fn every_member_is_had_from_one_output_when_all_are_missing() {
        let decoder = decoder(2, 1, OutputTransform::Raw);
        for (slot, expected) in [(0, [1.0, 2.0, 5.0, 6.0]), (1, [3.0, 4.0, 7.0, 8.0])] {
            let mut out = [0.0; 4];
            let parity = [Some(OUTPUT)];
            decoder.decode(&[None, None], &parity, slot, &mut out).unwrap();
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn rows_that_answered_are_averaged_and_the_transform_is_undone() {
        let transform = OutputTransform::Standardised { mean: vec![1.0], deviation: vec![10.0] };
        let decoder = decoder(2, 2, transform);
        let other: &[f32] = &[3.0, 4.0, 0.0, 0.0];
        let mut out = [0.0; 2];
        let parity = [Some(&OUTPUT[..4]), Some(other)];
        decoder.decode(&[None, None], &parity, 0, &mut out).unwrap();
        assert_eq!(out, [21.0, 31.0]);
        let parity = [None, Some(other)];
        decoder.decode(&[None, None], &parity, 0, &mut out).unwrap();
        assert_eq!(out, [31.0, 41.0], "the row that answered alone");
    }

    #[test]
    fn what_cannot_be_decoded_is_refused_and_leaves_out_alone() {
        let decoder = decoder(2, 1, OutputTransform::Raw);
        let known: &[f32] = &[1.0, 2.0];
        let mut out = [7.0; 2];
        let mut decode = |predictions: &[Option<&[f32]>], parity: &[Option<&[f32]>], slot| {
            decoder.decode(predictions, parity, slot, &mut out)
        };
        let none = decode(&[None, None], &[None], 0);
        let expected = DecodeError::Unrecoverable { missing: 2, available: 0 };
        assert_eq!(none, Err(expected));
        let there = decode(&[None, Some(known)], &[Some(&OUTPUT[..4])], 1);
        assert_eq!(there, Err(DecodeError::NotMissing { slot: 1 }));
        let linear = decode(&[None, Some(known)], &[Some(known)], 0);
        let expected = DecodeError::UnequalLength { expected: 4, got: 2 };
        assert_eq!(linear, Err(expected));
        assert_eq!(out, [7.0; 2]);
    }
}
