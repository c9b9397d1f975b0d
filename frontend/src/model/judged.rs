//! The output by which approximations are compared with the deployed model's answers.

use parapet_config::repository::{Datatype, TensorSpec};
use parapet_decoder::{ClassAxis, NotClassScores};

use crate::payload::Output;

/// An output of class scores: confidence and agreement are those of its top class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JudgedOutput {
    name: String,
    classes: ClassAxis,
}

impl JudgedOutput {
    /// The output `spec` of a model; `None` if it is not FP32.
    ///
    /// # Errors
    /// [`NotClassScores`] for an output of one value, or of several axes.
    pub fn of(spec: &TensorSpec) -> Result<Option<Self>, NotClassScores> {
        if spec.datatype != Datatype::Fp32 {
            return Ok(None);
        }
        Ok(Some(Self {
            name: spec.name.clone(),
            classes: ClassAxis::of(&spec.shape)?,
        }))
    }

    pub fn classes(&self) -> ClassAxis {
        self.classes
    }

    /// Tells whether an approximation names the truth's top class for every sample. They may be
    /// in different domains: every output transform keeps the top class. `None` if one of them
    /// has no such output.
    pub fn agrees(&self, approximation: &Output, truth: &Output) -> Option<bool> {
        let values = |given: &Output| {
            given
                .tensor(&self.name)
                .and_then(|tensor| tensor.f32s().ok())
        };
        Some(
            self.classes
                .agrees(&values(approximation)?, &values(truth)?),
        )
    }
}
