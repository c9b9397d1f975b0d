//! Checks of an instance's answer.

use parapet_config::repository::{ModelEntry, TensorSpec};
use parapet_encoder::Decoding;
use parapet_open_inference::{InferResponse, Tensor};

use crate::payload::Output;

/// Room for the rest of a response beside its tensors.
const RESPONSE_HEADER_ROOM: usize = 64 * 1024;

/// The outputs of one model.
#[derive(Debug)]
pub(super) struct Expected {
    outputs: Vec<TensorSpec>,
    /// False where an output has slots: one member's input spoils its own alone, which the decoder
    /// finds.
    must_be_finite: bool,
    /// Bytes of a response.
    pub(super) max_bytes: usize,
}

impl Expected {
    /// For requests of up to `max_rows` samples.
    pub(super) fn of(entry: &ModelEntry, max_rows: usize) -> Self {
        let bytes = |output: &TensorSpec| {
            let size = output.datatype.size().unwrap_or(4096);
            output.sample_len().saturating_mul(size)
        };
        let sample_bytes = entry
            .outputs
            .iter()
            .map(bytes)
            .fold(0, usize::saturating_add);
        // JSON spells a number in up to some 25 bytes.
        let max_bytes =
            sample_bytes.saturating_mul(max_rows).saturating_mul(8) + RESPONSE_HEADER_ROOM;
        let code = entry.code.as_ref();
        Self {
            must_be_finite: code.is_none_or(|code| code.spec.decoding != Decoding::Slots),
            outputs: entry.outputs.clone(),
            max_bytes,
        }
    }

    /// The prediction for `rows` samples; outputs that the model's metadata does not name
    /// are left out.
    pub(super) fn check(&self, response: InferResponse, rows: usize) -> Result<Output, String> {
        let mut outputs = response.outputs;
        let specs = self.outputs.iter();
        let tensors = specs.map(|spec| {
            let tensor = take_output(&mut outputs, spec, rows)?;
            if self.must_be_finite && tensor.has_non_finite() {
                let name = &tensor.name;
                return Err(format!("output {name:?} holds a NaN or an infinity"));
            }
            Ok(tensor)
        });
        Ok(Output {
            tensors: tensors.collect::<Result<_, String>>()?,
            confidence: Some(1.0),
        })
    }
}

/// The output that `spec` describes, for `rows` samples (CG-6: nothing else gets into a group).
fn take_output(
    outputs: &mut Vec<Tensor>,
    spec: &TensorSpec,
    rows: usize,
) -> Result<Tensor, String> {
    let position = outputs.iter().position(|tensor| tensor.name == spec.name);
    let position = position.ok_or_else(|| format!("no output {:?} in the answer", spec.name))?;
    let tensor = outputs.swap_remove(position);
    let expected = || std::iter::once(rows).chain(spec.shape.iter().copied());
    if tensor.datatype != spec.datatype || !tensor.shape.iter().copied().eq(expected()) {
        let (name, shape, datatype) = (&tensor.name, &tensor.shape, tensor.datatype);
        let expected: Vec<usize> = expected().collect();
        return Err(format!(
            "output {name:?} is {datatype} {shape:?}, not {} {expected:?}",
            spec.datatype
        ));
    }
    Ok(tensor)
}
