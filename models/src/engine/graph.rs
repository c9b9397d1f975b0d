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
        checked.map_err(|(field, problem, fix)| {
            format!("{side}[{index}].{field}: {problem}; {fix}")
        })?;
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
) -> Result<(), (&'static str, String, String)> {
    let Some(found) = graph.iter().find(|tensor| tensor.name == spec.name) else {
        let names: Vec<&str> = graph.iter().map(|tensor| tensor.name.as_str()).collect();
        let problem = format!("the graph has no {:?}", spec.name);
        let fix = format!("the graph's {side} are: {}", names.join(", "));
        return Err(("name", problem, fix));
    };
    let Some(datatype) = found.datatype else {
        let problem = "the graph's element type cannot be served".to_owned();
        let fix = "export with floats, BOOL, integers or strings".to_owned();
        return Err(("datatype", problem, fix));
    };
    if datatype != spec.datatype {
        let problem = format!("{} here, {datatype} in the graph", spec.datatype);
        let fix = format!("write datatype = \"{datatype}\"");
        return Err(("datatype", problem, fix));
    }
    let Some((&batch, sample)) = found.shape.split_first() else {
        let problem = "the graph's tensor is a scalar".to_owned();
        let fix = "export with a leading batch axis".to_owned();
        return Err(("shape", problem, fix));
    };
    let fits =
        |(&axis, &expected): (&i64, &usize)| axis < 0 || usize::try_from(axis) == Ok(expected);
    if sample.len() != spec.shape.len() || !sample.iter().zip(&spec.shape).all(fits) {
        let here = &spec.shape;
        let problem = format!("{here:?} here, {sample:?} after the batch axis in the graph");
        let fix = "write the graph's, without the batch axis".to_owned();
        return Err(("shape", problem, fix));
    }
    if batch >= 0 && (batch, max_rows) != (1, 1) {
        let problem = format!(
            "the graph's batch axis is fixed at {batch}, batches have up to {max_rows} rows"
        );
        let fix = match batch {
            1 => "set max-batch-size to 1 or export with a dynamic batch axis",
            _ => "export with a dynamic batch axis",
        };
        return Err(("shape", problem, fix.to_owned()));
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
