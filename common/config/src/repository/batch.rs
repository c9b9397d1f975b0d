//! Requests held against a model's metadata.

use parapet_open_inference::{Excerpt, RequestedOutput, Tensor};

use crate::repository::TensorSpec;

/// Takes the inputs that `specs` describe out of `given`, in their order, and returns them with
/// their samples: the length of the batch axis, which is the same in all, and at most `max_rows`.
/// Inputs that pass can be batched with others of their shapes.
///
/// # Errors
/// One line that says which input does not fit.
pub fn take_inputs(
    specs: &[TensorSpec],
    mut given: Vec<Tensor>,
    max_rows: usize,
) -> Result<(Vec<Tensor>, usize), String> {
    let mut inputs = Vec::with_capacity(specs.len());
    let mut rows = None;
    for spec in specs {
        let name = &spec.name;
        let position = given.iter().position(|tensor| tensor.name == *name);
        let Some(position) = position else {
            let taken = names(specs);
            return Err(format!("input {name:?} is missing; the model takes {taken}"));
        };
        let tensor = given.swap_remove(position);
        let own = check_input(&tensor, spec, max_rows)?;
        let before = *rows.get_or_insert(own);
        if own != before {
            return Err(format!(
                "input {name:?}: {own} rows on the batch axis, the input before it has {before}"
            ));
        }
        inputs.push(tensor);
    }
    let Some(tensor) = given.first() else { return Ok((inputs, rows.unwrap_or(1))) };
    let (name, taken) = (Excerpt::from(&tensor.name), names(specs));
    Err(format!("input {name:?} is unknown or given twice; the model takes {taken}"))
}

/// Checks that the outputs that a request names are among `specs`.
///
/// # Errors
/// One line that names the one that is not.
pub fn check_outputs(specs: &[TensorSpec], named: &[RequestedOutput]) -> Result<(), String> {
    let is_known = |name: &str| specs.iter().any(|spec| spec.name == name);
    let Some(unknown) = named.iter().find(|output| !is_known(&output.name)) else { return Ok(()) };
    let (name, given) = (Excerpt::from(&unknown.name), names(specs));
    Err(format!("output {name:?} is unknown; the model gives {given}"))
}

fn check_input(tensor: &Tensor, spec: &TensorSpec, max_rows: usize) -> Result<usize, String> {
    let (name, datatype, shape) = (&spec.name, tensor.datatype, &tensor.shape);
    if datatype != spec.datatype {
        let problem = format!("datatype {datatype}, expected {}", spec.datatype);
        return Err(format!("input {name:?}: {problem}"));
    }
    let rows = match shape.split_first() {
        Some((rows, sample)) if spec.shape.matches(sample) && !sample.contains(&0) => *rows,
        _ => {
            let problem = format!("shape {shape:?}, expected {}", spec.shape.behind("batch"));
            return Err(format!("input {name:?}: {problem}"));
        }
    };
    if !(1..=max_rows).contains(&rows) {
        let problem = format!("{rows} rows on the batch axis; send 1 to {max_rows}");
        return Err(format!("input {name:?}: {problem}"));
    }
    if tensor.has_non_finite() {
        return Err(format!("input {name:?} holds a NaN or an infinity"));
    }
    Ok(rows)
}

fn names(specs: &[TensorSpec]) -> String {
    let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
    names.join(", ")
}
