//! The trainer's own networks as models.

use super::{DeployedError, DeployedModel};
use crate::network::Network;

impl DeployedModel for Network {
    fn input_shape(&self) -> &[usize] {
        Self::input_shape(self)
    }

    fn output_shape(&self) -> &[usize] {
        Self::output_shape(self)
    }

    fn outputs(&self) -> usize {
        Self::outputs(self)
    }

    fn infer(&self, samples: &[f32]) -> Result<Vec<f32>, DeployedError> {
        Ok(Self::infer(self, samples))
    }
}
