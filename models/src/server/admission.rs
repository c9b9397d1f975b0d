//! Checks that a request fits the model. Requests that pass can be batched with any other.

use parapet_config::repository::ModelEntry;
use parapet_open_inference::{Datatype, Excerpt, InferRequest, Tensor};

/// A request that does not fit its model.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InputError {
    #[error("input {input:?} is missing; the model takes {}", expected.join(", "))]
    Missing {
        input: Excerpt,
        expected: Vec<String>,
    },
    #[error("input {input:?} is unknown or given twice; the model takes {}", expected.join(", "))]
    Unexpected {
        input: Excerpt,
        expected: Vec<String>,
    },
    #[error("input {input:?}: datatype {actual}, expected {expected}")]
    Datatype {
        input: Excerpt,
        expected: Datatype,
        actual: Datatype,
    },
    #[error(
        "input {input:?}: shape {actual:?}, expected [batch, {}]",
        list(expected)
    )]
    Shape {
        input: Excerpt,
        expected: Vec<usize>,
        actual: Vec<usize>,
    },
    #[error("input {input:?}: {actual} rows on the batch axis, the input before it has {expected}")]
    UnequalRows {
        input: Excerpt,
        expected: usize,
        actual: usize,
    },
    #[error("{rows} rows on the batch axis; send 1 to {limit}")]
    Rows { rows: usize, limit: usize },
    #[error("input {input:?} holds a NaN or an infinity")]
    NonFinite { input: Excerpt },
    #[error("output {output:?} is unknown; the model gives {}", expected.join(", "))]
    Output {
        output: Excerpt,
        expected: Vec<String>,
    },
}

/// A request that is known to fit.
#[derive(Debug)]
pub(crate) struct Admitted {
    /// Inputs in the model's order.
    pub(crate) inputs: Vec<Tensor>,
    pub(crate) rows: usize,
}

/// Takes the inputs out of `request`, in the model's order, if they fit.
pub(crate) fn admit(
    entry: &ModelEntry,
    request: &mut InferRequest,
    max_rows: usize,
) -> Result<Admitted, InputError> {
    let mut given: Vec<Option<Tensor>> = request.inputs.drain(..).map(Some).collect();
    let expected = || entry.inputs.iter().map(|spec| spec.name.clone()).collect();
    let mut inputs = Vec::with_capacity(entry.inputs.len());
    let mut rows = None;
    for spec in &entry.inputs {
        let found = given
            .iter_mut()
            .find(|tensor| tensor.as_ref().is_some_and(|given| given.name == spec.name));
        let Some(tensor) = found.and_then(Option::take) else {
            return Err(InputError::Missing {
                input: Excerpt::from(&spec.name),
                expected: expected(),
            });
        };
        if tensor.datatype != spec.datatype {
            let (expected, actual) = (spec.datatype, tensor.datatype);
            return Err(InputError::Datatype {
                input: Excerpt::from(&tensor.name),
                expected,
                actual,
            });
        }
        let Some((&tensor_rows, _)) = tensor
            .shape
            .split_first()
            .filter(|(_, sample)| *sample == spec.shape)
        else {
            let (expected, actual) = (spec.shape.clone(), tensor.shape);
            return Err(InputError::Shape {
                input: Excerpt::from(&tensor.name),
                expected,
                actual,
            });
        };
        let expected = *rows.get_or_insert(tensor_rows);
        if tensor_rows != expected {
            return Err(InputError::UnequalRows {
                input: Excerpt::from(&tensor.name),
                expected,
                actual: tensor_rows,
            });
        }
        if !(1..=max_rows).contains(&tensor_rows) {
            return Err(InputError::Rows {
                rows: tensor_rows,
                limit: max_rows,
            });
        }
        if tensor.has_non_finite() {
            return Err(InputError::NonFinite {
                input: Excerpt::from(&tensor.name),
            });
        }
        inputs.push(tensor);
    }
    if let Some(tensor) = given.into_iter().flatten().next() {
        return Err(InputError::Unexpected {
            input: Excerpt::from(&tensor.name),
            expected: expected(),
        });
    }
    let known = |name: &str| entry.outputs.iter().any(|spec| spec.name == name);
    if let Some(unknown) = request.outputs.iter().find(|output| !known(&output.name)) {
        let expected = entry.outputs.iter().map(|spec| spec.name.clone()).collect();
        return Err(InputError::Output {
            output: Excerpt::from(&unknown.name),
            expected,
        });
    }
    Ok(Admitted {
        inputs,
        rows: rows.unwrap_or_default(),
    })
}

fn list(axes: &[usize]) -> String {
    axes.iter()
        .map(usize::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}
