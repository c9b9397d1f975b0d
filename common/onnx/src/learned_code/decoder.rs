//! The learned decoder.

use std::sync::Arc;

use parapet_decoder::{DecodeError, Decoder, check_group};
use parapet_encoder::Code;

use crate::learned_code::network::Network;

/// Reconstructs predictions by a network. Parity outputs are the deployed model's own, as its
/// instances give them.
#[derive(Debug, Clone)]
pub(crate) struct LearnedDecoder {
    pub(super) code: Code,
    pub(super) output_len: usize,
    pub(super) network: Arc<Network>,
}

impl Decoder for LearnedDecoder {
    fn code(&self) -> &Code {
        &self.code
    }

    fn decode(
        &self,
        predictions: &[Option<&[f32]>],
        parity: &[Option<&[f32]>],
        slot: usize,
        out: &mut [f32],
    ) -> Result<(), DecodeError> {
        check_group(&self.code, predictions, parity, slot, out.len())?;
        let (length, k) = (self.output_len, self.code.k());
        if !out.len().is_multiple_of(length) {
            return Err(DecodeError::UnequalLength {
                expected: length,
                got: out.len(),
            });
        }
        let transform = self.code.transform();
        let (samples, group) = (out.len() / length, (k + self.code.r()) * length);
        let mut inputs = vec![0.0; samples * group];
        // Sample by sample, each with all outputs of its group; what is missing stays zero.
        for (place, sample) in inputs.chunks_exact_mut(group).enumerate() {
            let of_sample = place * length..(place + 1) * length;
            let outputs = predictions.iter().chain(parity);
            for (to, output) in sample.chunks_exact_mut(length).zip(outputs) {
                if let Some(values) = output.and_then(|output| output.get(of_sample.clone())) {
                    to.copy_from_slice(values);
                    transform.apply(to, length);
                }
            }
        }
        let decoded = self
            .network
            .run(samples, &inputs)
            .map_err(|reason| DecodeError::Network { reason })?;
        let of_slot = decoded.chunks_exact(length).skip(slot).step_by(k);
        for (out, values) in out.chunks_exact_mut(length).zip(of_slot) {
            out.copy_from_slice(values);
        }
        transform.invert(out);
        Ok(())
    }
}
