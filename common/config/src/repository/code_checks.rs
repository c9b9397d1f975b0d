//! Checks of a `[code]` beside the tensors of its model.

use std::path::Path;

use parapet_encoder::{Code, EncoderKind};
use parapet_open_inference::Datatype;

use crate::FileError;
use crate::repository::{CodeMetadata, Shape, TensorSpec};

impl CodeMetadata {
    /// Checks that shapes are fixed, but for the second axis of the one input that is padded.
    pub(super) fn check_lengths(
        &self,
        path: &Path,
        parsed: &Code,
        inputs: &[TensorSpec],
        outputs: &[TensorSpec],
    ) -> Result<(), FileError> {
        let is_free = |spec: &&TensorSpec| spec.shape.fixed().is_none();
        let Some(padding) = &self.padding else {
            let free = inputs.iter().chain(outputs).find(is_free);
            return free.map_or(Ok(()), |free| {
                let problem = format!("for {:?} of shape {}", free.name, free.shape);
                let fix = "write the length of every axis, or the lengths that groups are padded \
                    to: padding = [32, 64]";
                Err(FileError::field(path, "code", &problem, fix))
            });
        };
        padding.check(parsed).map_err(|error| FileError::new(path, error))?;
        let k = parsed.k() as i64;
        let is_padded = |shape: &Shape| match shape.axes() {
            [slots, sample @ ..] => *slots == k && Shape(sample.to_vec()).steps_axis().is_some(),
            [] => false,
        };
        let fits = match inputs {
            [stack, lengths] => {
                is_padded(&stack.shape)
                    && stack.datatype.size().is_some()
                    && (lengths.datatype, lengths.shape.axes()) == (Datatype::Int64, &[k])
            }
            _ => false,
        };
        if fits && !outputs.iter().any(|output| is_free(&output)) {
            return Ok(());
        }
        let problem = format!("{:?}, and the tensors do not go with it", padding.lengths());
        let fix = format!(
            "give an input of shape [{k}, -1, ..] ({k}, 1, -1, .. too), one of INT64 [{k}] for the \
             lengths, and outputs of fixed shapes"
        );
        Err(FileError::field(path, "code.padding", &problem, &fix))
    }

    /// Checks names of tensors and the row of a model with these inputs and outputs.
    pub(super) fn check(
        &self,
        path: &Path,
        inputs: &[TensorSpec],
        outputs: &[TensorSpec],
    ) -> Result<(), FileError> {
        for (field, names, own) in
            [("code.inputs", &self.inputs, inputs), ("code.outputs", &self.outputs, outputs)]
        {
            let twice = names.iter().enumerate().any(|(index, name)| names[..index].contains(name));
            if twice || !(names.is_empty() || names.len() == own.len()) {
                let problem = format!("{names:?} for the {} of this model", own.len());
                let fix = "name one of the deployed model's for each of this model's, or none";
                return Err(FileError::field(path, field, &problem, fix));
            }
        }
        let (row, r) = (self.row, self.spec.r);
        if self.spec.encoder == EncoderKind::Learned && row > 0 {
            let fix = "a learned code is for all rows; leave it out";
            return Err(FileError::field(path, "code.row", &row.to_string(), fix));
        }
        if row >= r {
            let problem = format!("{row} is beyond the last of r = {r} rows");
            return Err(FileError::field(path, "code.row", &problem, "rows count from 0"));
        }
        Ok(())
    }
}
