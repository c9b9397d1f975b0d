//! Descriptions of ONNX models: the `model.toml` that a graph asks for.

use std::fs;
use std::path::Path;
use std::str::FromStr;

use ort::session::Session;
use ort::value::ValueType;
use parapet_config::FileError;
use parapet_config::repository::{ModelToml, Platform, Shape, TensorSpec};
use parapet_onnx::external_data;

use crate::engine::onnx::{GraphTensor, graph_tensor, open, value};
use crate::engine::{OnnxRuntime, Provider, one_line, zeros};

/// Shape of an input's samples if the graph leaves axes free: `NAME=3,224,224`. -1 leaves one free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenShape {
    pub input: String,
    pub shape: Shape,
}

impl FromStr for GivenShape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?}: give INPUT=3,224,224, the lengths of one sample's axes");
        let (input, shape) = text.rsplit_once('=').ok_or_else(wrong)?;
        let length = |axis: &str| axis.trim().parse().ok().filter(|&length: &i64| length != 0);
        let shape: Option<Vec<i64>> = shape.split(',').map(length).collect();
        let shape = shape.ok_or_else(wrong)?.try_into().map_err(|_| wrong())?;
        Ok(Self { input: input.to_owned(), shape })
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Description {
    pub model: ModelToml,
    /// True if the graph takes one row alone: instances need `max_batch_size = 1`.
    pub is_single: bool,
}

/// Describes the ONNX model in `file` as `name`. Free axes of its inputs are as `shapes` has them,
/// or stay so; those of its outputs are seen in an answer to zeros, if no input has any.
///
/// # Errors
/// If ONNX Runtime cannot run it, or an instance could not serve it.
pub fn describe(
    runtime: &OnnxRuntime,
    file: &Path,
    name: &str,
    shapes: &[GivenShape],
) -> Result<Description, FileError> {
    let mut session = open(runtime, file, Provider::Cpu, 1, true)?;
    let inputs: Vec<_> = session.inputs().iter().map(graph_tensor).collect();
    let mut outputs: Vec<_> = session.outputs().iter().map(graph_tensor).collect();
    let unknown = |given: &&GivenShape| inputs.iter().all(|input| input.name != given.input);
    if let Some(given) = shapes.iter().find(unknown) {
        let names: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
        let problem = format!("has no input {:?}; it has {}", given.input, names.join(", "));
        return Err(FileError::new(file, problem));
    }
    let specs = |tensors: &[GraphTensor]| -> Result<Vec<TensorSpec>, FileError> {
        let specs = tensors.iter().map(|tensor| spec(tensor, shapes));
        specs.collect::<Result<_, _>>().map_err(|problem| FileError::new(file, problem))
    };
    let described = specs(&inputs)?;
    let is_fixed = described.iter().all(|input| input.shape.fixed().is_some());
    let mut axes = outputs.iter().flat_map(|output| output.shape.iter().skip(1));
    if is_fixed && axes.any(|&axis| axis < 0) {
        let answered = shapes_of_answer(&mut session, &described).map_err(|error| {
            let problem = format!("answers zeros with an error: {}", one_line(&error));
            FileError::new(file, problem + "; check --shape")
        })?;
        for (output, shape) in outputs.iter_mut().zip(answered) {
            output.shape = shape;
        }
    }
    let is_single = inputs.iter().any(|input| input.shape.first() == Some(&1));
    let model = ModelToml {
        name: name.to_owned(),
        platform: Platform::OnnxRuntime,
        inputs: described,
        outputs: specs(&outputs)?,
        output: None,
        code: None,
        training: toml::Table::new(),
    };
    Ok(Description { model, is_single })
}

fn spec(tensor: &GraphTensor, shapes: &[GivenShape]) -> Result<TensorSpec, String> {
    let name = &tensor.name;
    let fix = "export with floats, BOOL, integers or strings";
    let datatype = tensor.datatype;
    let datatype = datatype.ok_or_else(|| format!("{name:?} is no tensor to serve; {fix}"))?;
    let (&batch, sample) = tensor.shape.split_first().ok_or_else(|| {
        format!("{name:?} is a scalar; export the model with the batch as the first axis")
    })?;
    if batch > 1 {
        let fix = "export with a dynamic batch axis";
        return Err(format!("the first axis of {name:?}, the batch, is fixed at {batch}; {fix}"));
    }
    let shape = match shapes.iter().find(|given| given.input == *name) {
        Some(GivenShape { shape, .. }) if !shape.fits(sample) => {
            return Err(format!("--shape {name}={shape} does not fit the graph's {sample:?}"));
        }
        Some(given) => given.shape.clone(),
        None => sample.to_vec().try_into()?,
    };
    Ok(TensorSpec { name: name.clone(), datatype, shape })
}

/// Shapes of the outputs, with the batch axis, of one sample of zeros.
fn shapes_of_answer(session: &mut Session, inputs: &[TensorSpec]) -> ort::Result<Vec<Vec<i64>>> {
    let inputs = inputs.iter().map(|input| {
        // Strings without letters are their lengths alone.
        Ok((input.name.clone(), value(&zeros(input, 1))?))
    });
    let inputs = inputs.collect::<ort::Result<Vec<_>>>()?;
    let names: Vec<String> = session.outputs().iter().map(|out| out.name().to_owned()).collect();
    let answer = session.run(inputs)?;
    let shape = |name: &String| match answer.get(name).map(|value| value.dtype()) {
        Some(ValueType::Tensor { shape, .. }) => shape.to_vec(),
        _ => Vec::new(),
    };
    Ok(names.iter().map(shape).collect())
}

/// Puts a model into the repository at `root`, as its version 1: with its file, those that its
/// graph keeps weights in, and its `model.toml`. Returns true if another model had that name.
///
/// # Errors
/// If a file cannot be read or written.
pub fn import(root: &Path, file: &Path, model: &ModelToml) -> Result<bool, FileError> {
    let folder = root.join(&model.name);
    let version = folder.join("1");
    fs::create_dir_all(&version).map_err(FileError::io("make the folder", &version))?;
    let graph = fs::read(file).map_err(FileError::io("read", file))?;
    let beside = external_data(&graph).into_iter().filter_map(|name| {
        let from = file.with_file_name(&name);
        from.is_file().then(|| (from, version.join(name)))
    });
    let copies = std::iter::once((file.to_owned(), version.join("model.onnx"))).chain(beside);
    let mut was_there = false;
    for (from, to) in copies {
        let new = fs::read(&from).map_err(FileError::io("read", &from))?;
        match fs::read(&to) {
            Ok(old) if old == new => continue,
            Ok(_) => was_there = true,
            Err(_) => {}
        }
        // Never half a file, for those who read it meanwhile.
        let partial = to.with_extension("partial");
        let written = fs::write(&partial, &new).and_then(|()| fs::rename(&partial, &to));
        written.map_err(FileError::io("write", &to))?;
    }
    model.save(&folder)?;
    Ok(was_there)
}

#[cfg(test)]
mod tests {
    use parapet_onnx::{ElementType, identity_model};
    use parapet_open_inference::Datatype;

    use super::*;

    fn tensor(shape: &[i64]) -> GraphTensor {
        let (name, datatype) = ("x".to_owned(), Some(Datatype::Fp32));
        GraphTensor { name, datatype, shape: shape.to_vec() }
    }

    #[test]
    fn a_graphs_shape_is_described_without_the_batch_and_free_axes_stay_unless_given() {
        let given = |text: &str| vec![text.parse::<GivenShape>().unwrap()];
        for (graph, shapes, found) in [
            (&[-1, 1, 28, 28][..], vec![], Ok(vec![1, 28, 28])),
            (&[1, 16], vec![], Ok(vec![16])),
            (&[-1], vec![], Ok(vec![])),
            (&[-1, -1, 8], given("x=4,8"), Ok(vec![4, 8])),
            (&[-1, -1, 8], given("x=4,9"), Err("does not fit")),
            (&[-1, -1, 8], given("x=4"), Err("does not fit")),
            (&[-1, -1, 8], given("x=-1,8"), Ok(vec![-1, 8])),
            (&[-1, -1, 8], vec![], Ok(vec![-1, 8])),
            (&[-1, 4, 8], given("x=-1,8"), Err("does not fit the graph's [4, 8]")),
            (&[4, 8], vec![], Err("fixed at 4")),
            (&[], vec![], Err("is a scalar")),
        ] {
            match (spec(&tensor(graph), &shapes), found) {
                (Ok(spec), Ok(shape)) => assert_eq!(spec.shape.axes(), shape, "{graph:?}"),
                (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
                (one, other) => panic!("{graph:?}: {one:?} is not {other:?}"),
            }
        }
        for text in ["x", "x=", "x=0", "x=-2", "x=1,,2", "x=a"] {
            assert!(text.parse::<GivenShape>().unwrap_err().contains("give INPUT="), "{text}");
        }
    }

    #[test]
    fn a_graph_is_described_and_what_is_none_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("net.onnx");
        let tensors = [("a", ElementType::Float, &[2, 3][..]), ("b", ElementType::String, &[])];
        fs::write(&file, identity_model(&tensors)).unwrap();
        let runtime = OnnxRuntime::load(None).unwrap();
        let found = describe(&runtime, &file, "net", &[]).unwrap();
        let side = |specs: &[TensorSpec]| {
            let specs = specs.iter();
            let specs =
                specs.map(|spec| (spec.name.clone(), spec.datatype, spec.shape.axes().to_vec()));
            specs.collect::<Vec<_>>()
        };
        let (float, text) = (Datatype::Fp32, Datatype::Bytes);
        let name = str::to_owned;
        let inputs = [(name("a"), float, vec![2, 3]), (name("b"), text, vec![])];
        let outputs = [(name("a_out"), float, vec![2, 3]), (name("b_out"), text, vec![])];
        assert_eq!(
            (side(&found.model.inputs), side(&found.model.outputs)),
            (inputs.into(), outputs.into())
        );
        assert!(!found.is_single);
        let given = ["c=1".parse().unwrap()];
        let error = describe(&runtime, &file, "net", &given).unwrap_err().to_string();
        assert!(error.contains("no input \"c\"; it has a, b"), "{error}");
        fs::write(&file, b"no graph").unwrap();
        let error = describe(&runtime, &file, "net", &[]).unwrap_err().to_string();
        assert!(error.contains("not a model") && !error.contains('\n'), "{error}");
        fs::remove_file(&file).unwrap();
        let error = describe(&runtime, &file, "net", &[]).unwrap_err().to_string();
        assert!(error.contains("no such file"), "{error}");
    }

    #[test]
    fn free_axes_of_outputs_stay_unless_all_inputs_are_fixed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("net.onnx");
        let tensors = [("a", ElementType::Float, &[-1, 3][..])];
        fs::write(&file, identity_model(&tensors)).unwrap();
        let runtime = OnnxRuntime::load(None).unwrap();
        for (shapes, expected) in [(vec![], [-1, 3]), (vec!["a=5,3".parse().unwrap()], [5, 3])] {
            let model = describe(&runtime, &file, "net", &shapes).unwrap().model;
            let found = [&model.inputs[0].shape, &model.outputs[0].shape];
            assert_eq!(found.map(Shape::axes), [&expected[..]; 2]);
        }
    }

    #[test]
    fn an_imported_model_is_there_with_its_weights_and_another_file_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("net.onnx");
        fs::write(&file, b"\x0a\x08location\x12\x05w.bin").unwrap();
        fs::write(folder.path().join("w.bin"), b"weights").unwrap();
        let spec =
            |name: &str| TensorSpec { name: name.into(), ..spec(&tensor(&[-1, 2]), &[]).unwrap() };
        let model = ModelToml {
            name: "net".into(),
            platform: Platform::OnnxRuntime,
            inputs: vec![spec("x")],
            outputs: vec![spec("y")],
            output: None,
            code: None,
            training: toml::Table::new(),
        };
        let root = folder.path().join("models");
        assert_eq!(import(&root, &file, &model), Ok(false));
        assert_eq!(import(&root, &file, &model), Ok(false), "the same again");
        assert_eq!(fs::read(root.join("net/1/w.bin")).unwrap(), b"weights");
        let repository = parapet_config::repository::ModelRepository::open(&root).unwrap();
        assert_eq!(repository.load("net").unwrap().inputs, [spec("x")]);
        fs::write(folder.path().join("w.bin"), b"other weights").unwrap();
        assert_eq!(import(&root, &file, &model), Ok(true));
        assert_eq!(fs::read(root.join("net/1/w.bin")).unwrap(), b"other weights");
    }
}
