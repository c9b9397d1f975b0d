//! The learned encoder.

use std::sync::Arc;

use parapet_encoder::{Code, EncodeError, Encoder, check_group};

use crate::learned_code::network::Network;

/// Makes parity queries by a network.
#[derive(Debug, Clone)]
pub(crate) struct LearnedEncoder {
    pub(super) code: Code,
    pub(super) sample_len: usize,
    pub(super) network: Arc<Network>,
}

impl Encoder for LearnedEncoder {
    fn code(&self) -> &Code {
        &self.code
    }

    fn encode(
        &self,
        row: usize,
        queries: &[&[f32]],
        parity: &mut [f32],
    ) -> Result<(), EncodeError> {
        let length = self.sample_len;
        check_group(&self.code, length, row, queries, parity)?;
        let samples = parity.len() / length;
        let mut inputs = Vec::with_capacity(samples * self.code.k() * length);
        for sample in 0..samples {
            for query in queries {
                let values = query.get(sample * length..(sample + 1) * length);
                inputs.extend_from_slice(values.unwrap_or_default());
            }
        }
        let rows = self
            .network
            .run(samples, &inputs)
            .map_err(|reason| EncodeError::Network { reason })?;
        let of_row = rows.chunks_exact(length).skip(row).step_by(self.code.r());
        for (parity, values) in parity.chunks_exact_mut(length).zip(of_row) {
            parity.copy_from_slice(values);
        }
        Ok(())
    }
}
