//! The learned decoder.

use std::sync::Arc;

use parapet_decoder::{DecodeError, Decoder, check_group};
use parapet_encoder::Code;

use crate::learned_code::network::Network;

/// Reconstructs predictions by a network. Parity outputs are the deployed model's own, as its
/// instances give them.
#[derive(Debug, Clone)]
pub(crate) struct LearnedDecoder {
    code: Code,
    output_len: usize,
    network: Arc<Network>,
}

impl LearnedDecoder {
    pub(crate) fn new(code: Code, output_len: usize, network: Arc<Network>) -> Self {
        Self {
            code,
            output_len,
            network,
        }
    }
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
        let samples = out.len() / length;
        let mut inputs = vec![0.0; samples * (k + self.code.r()) * length];
        // Sample by sample, each with all outputs of its group; what is missing stays zero.
        for (place, sample) in inputs
            .chunks_exact_mut((k + self.code.r()) * length)
            .enumerate()
        {
            let outputs = predictions.iter().chain(parity);
            for (to, output) in sample.chunks_exact_mut(length).zip(outputs) {
                if let Some(values) =
                    output.and_then(|output| output.get(place * length..(place + 1) * length))
                {
                    to.copy_from_slice(values);
                    transform.apply(to, length);
                }
            }
        }
        let decoded = self
            .network
            .run(samples, &inputs)
            .map_err(|reason| DecodeError::Network { reason })?;
        for (out, values) in out
            .chunks_exact_mut(length)
            .zip(decoded.chunks_exact(length).skip(slot).step_by(k))
        {
            out.copy_from_slice(values);
        }
        transform.invert(out);
        Ok(())
    }
}
