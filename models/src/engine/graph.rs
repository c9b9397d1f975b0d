//! Holding a model's graph against its `model.toml`.

use parapet_config::repository::TensorSpec;
use parapet_open_inference::Datatype;

/// An input or output of a graph.
#[derive(Debug, Clone)]
pub(super) struct GraphTensor {
    pub(super) name: String,
    /// `None` for a type that the protocol or this engine has no word for.
    pub(super) datatype: Option<Datatype>,
    /// -1 for an axis of any length; the batch axis first.
    pub(super) shape: Vec<i64>,
}

/// Finds the field of one side that the graph contradicts, with the problem and the fix; `side` is
/// `inputs` or `outputs`, as the file has it. Batches have up to `max_rows` rows.
pub(super) fn check(
    side: &str,
    specs: &[TensorSpec],
    graph: &[GraphTensor],
    max_rows: usize,
) -> Result<(), String> {
    for (index, spec) in specs.iter().enumerate() {
        let checked = check_tensor(side, spec, graph, max_rows);
        checked.map_err(|(field, mistake)| format!("{side}[{index}].{field}: {mistake}"))?;
    }
    let is_missing = |tensor: &&GraphTensor| specs.iter().all(|spec| spec.name != tensor.name);
    match graph.iter().find(is_missing) {
        None => Ok(()),
        Some(tensor) => Err(format!(
            "{side}: {:?} of the graph is missing; describe it with [[{side}]]",
            tensor.name
        )),
    }
}

/// Finds the field that the graph contradicts, with what is wrong and what to do.
fn check_tensor(
    side: &str,
    spec: &TensorSpec,
    graph: &[GraphTensor],
    max_rows: usize,
) -> Result<(), (&'static str, String)> {
    let Some(found) = graph.iter().find(|tensor| tensor.name == spec.name) else {
        let names: Vec<&str> = graph.iter().map(|tensor| tensor.name.as_str()).collect();
        let (name, names) = (&spec.name, names.join(", "));
        let mistake = format!("the graph has no {name:?}; the graph's {side} are: {names}");
        return Err(("name", mistake));
    };
    let Some(datatype) = found.datatype else {
        let mistake = "the graph's element type cannot be served; export with floats, BOOL, \
            integers or strings";
        return Err(("datatype", mistake.to_owned()));
    };
    if datatype != spec.datatype {
        let here = spec.datatype;
        let mistake =
            format!("{here} here, {datatype} in the graph; write datatype = \"{datatype}\"");
        return Err(("datatype", mistake));
    }
    let wrong_shape = |mistake: String| Err(("shape", mistake));
    let Some((&batch, sample)) = found.shape.split_first() else {
        let mistake = "the graph's tensor is a scalar; export with a leading batch axis";
        return wrong_shape(mistake.to_owned());
    };
    let here = &spec.shape;
    let fits =
        |(&axis, &expected): (&i64, &usize)| axis < 0 || usize::try_from(axis) == Ok(expected);
    if sample.len() != here.len() || !sample.iter().zip(here).all(fits) {
        return wrong_shape(format!(
            "{here:?} here, {sample:?} after the batch axis in the graph; write the graph's, \
             without the batch axis"
        ));
    }
    if batch >= 0 && (batch, max_rows) != (1, 1) {
        let or = if batch == 1 {
            "set max-batch-size to 1 or "
        } else {
            ""
        };
        return wrong_shape(format!(
            "the graph's batch axis is fixed at {batch}, batches have up to {max_rows} rows; \
             {or}export with a dynamic batch axis"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(name: &str, datatype: Datatype, shape: &[i64]) -> Vec<GraphTensor> {
        vec![GraphTensor {
            name: name.to_owned(),
            datatype: Some(datatype),
            shape: shape.to_vec(),
        }]
    }

    #[test]
    fn each_field_is_compared() {
        let specs = [TensorSpec {
            name: "x".to_owned(),
            datatype: Datatype::Fp32,
            shape: vec![1, 28, 28],
        }];
        let (shape, name, datatype) = ("inputs[0].shape", "inputs[0].name", "inputs[0].datatype");
        let sound = || graph("x", Datatype::Fp32, &[-1, 1, 28, 28]);
        let two = [sound(), graph("mask", Datatype::Fp32, &[-1])].concat();
        for (graph, max_rows, field) in [
            (sound(), 8, "fits"),
            (graph("x", Datatype::Fp32, &[-1, -1, -1, -1]), 8, "fits"),
            (graph("x", Datatype::Fp32, &[1, 1, 28, 28]), 1, "fits"),
            (graph("x", Datatype::Fp32, &[1, 1, 28, 28]), 8, shape),
            (graph("x", Datatype::Fp32, &[4, 1, 28, 28]), 4, shape),
            (graph("x", Datatype::Fp32, &[-1, 784]), 8, shape),
            (graph("x", Datatype::Fp32, &[]), 8, shape),
            (graph("x", Datatype::Fp64, &[-1, 1, 28, 28]), 8, datatype),
            (graph("y", Datatype::Fp32, &[-1, 1, 28, 28]), 8, name),
            (two, 8, "inputs"),
        ] {
            let found = check("inputs", &specs, &graph, max_rows);
            let found = found.map_or_else(|mismatch| mismatch, |()| "fits: ".to_owned());
            assert!(
                found.starts_with(&format!("{field}: ")),
                "{graph:?}: {found}"
            );
        }
    }
}
