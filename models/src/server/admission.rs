//! Checks that a request fits the model. Requests that pass can be batched with any other.

use parapet_config::repository::{ModelEntry, TensorSpec};
use parapet_open_inference::{Excerpt, InferRequest, Tensor};

use super::error::ApiError;

/// Takes the inputs out of `request`, in the model's order, and their rows, if they fit.
pub(super) fn admit(
    entry: &ModelEntry,
    request: &mut InferRequest,
    max_rows: usize,
) -> Result<(Vec<Tensor>, usize), ApiError> {
    let mut given = std::mem::take(&mut request.inputs);
    let mut inputs: Vec<Tensor> = Vec::with_capacity(entry.inputs.len());
    let mut rows = None;
    for spec in &entry.inputs {
        let name = &spec.name;
        let Some(position) = given.iter().position(|tensor| tensor.name == *name) else {
            let expected = names(&entry.inputs);
            return input(format!(
                "input {name:?} is missing; the model takes {expected}"
            ));
        };
        let tensor = given.remove(position);
        let (datatype, actual) = (spec.datatype, tensor.datatype);
        if actual != datatype {
            return input(format!(
                "input {name:?}: datatype {actual}, expected {datatype}"
            ));
        }
        let shape = &tensor.shape;
        let sample = shape
            .split_first()
            .filter(|(_, sample)| *sample == spec.shape);
        let Some((&own, _)) = sample else {
            let axes: Vec<String> = spec.shape.iter().map(usize::to_string).collect();
            let expected = axes.join(", ");
            return input(format!(
                "input {name:?}: shape {shape:?}, expected [batch, {expected}]"
            ));
        };
        let before = *rows.get_or_insert(own);
        if own != before {
            return input(format!(
                "input {name:?}: {own} rows on the batch axis, the input before it has {before}"
            ));
        }
        if !(1..=max_rows).contains(&own) {
            return input(format!(
                "{own} rows on the batch axis; send 1 to {max_rows}"
            ));
        }
        if tensor.has_non_finite() {
            return input(format!("input {name:?} holds a NaN or an infinity"));
        }
        inputs.push(tensor);
    }
    if let Some(tensor) = given.first() {
        let (name, expected) = (Excerpt::from(&tensor.name), names(&entry.inputs));
        return input(format!(
            "input {name:?} is unknown or given twice; the model takes {expected}"
        ));
    }
    let is_known = |name: &str| entry.outputs.iter().any(|spec| spec.name == name);
    if let Some(unknown) = request
        .outputs
        .iter()
        .find(|output| !is_known(&output.name))
    {
        let (name, expected) = (Excerpt::from(&unknown.name), names(&entry.outputs));
        return input(format!(
            "output {name:?} is unknown; the model gives {expected}"
        ));
    }
    Ok((inputs, rows.unwrap_or_default()))
}

fn input<T>(problem: String) -> Result<T, ApiError> {
    Err(ApiError::Input(problem))
}

fn names(specs: &[TensorSpec]) -> String {
    let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
    names.join(", ")
}
