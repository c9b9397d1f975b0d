//! Models run by ONNX Runtime.

use std::num::NonZeroUsize;
use std::path::Path;

use bytes::Bytes;
use half::{bf16, f16};
use ort::session::Session;
use ort::value::{DynValue, Outlet, Tensor as OrtTensor, TensorElementType, ValueType};
use parapet_config::FileError;
use parapet_config::repository::{ModelEntry, TensorSpec};
use parapet_open_inference::{Datatype, Tensor, match_integers};
use parking_lot::Mutex;

use super::{EngineError, InferenceEngine, OnnxRuntime, Provider, one_line};

pub struct OnnxEngine {
    /// `run` wants the session for itself; the batcher makes one call at a time.
    session: Mutex<Session>,
    inputs: Vec<TensorSpec>,
    outputs: Vec<TensorSpec>,
}

impl OnnxEngine {
    /// Loads `version` of the model and holds its graph against `model.toml`. Operators use
    /// `threads` threads, the caller's among them; batches will have up to `max_rows` rows.
    pub fn load(
        runtime: &OnnxRuntime,
        entry: &ModelEntry,
        version: u64,
        provider: Provider,
        threads: NonZeroUsize,
        max_rows: usize,
    ) -> Result<Self, FileError> {
        let (file, is_free) = (entry.model_file(version)?, entry.free_tensor().is_some());
        let session = open(runtime, &file, provider, threads.get(), is_free)?;
        let check = |side, specs, outlets: &[Outlet]| {
            let tensors: Vec<_> = outlets.iter().map(graph_tensor).collect();
            check_graph(side, specs, &tensors, max_rows)
                .map_err(|mismatch| FileError::new(&entry.toml_file(), mismatch))
        };
        check("inputs", &entry.inputs, session.inputs())?;
        check("outputs", &entry.outputs, session.outputs())?;
        Ok(Self {
            session: Mutex::new(session),
            inputs: entry.inputs.clone(),
            outputs: entry.outputs.clone(),
        })
    }
}

/// Loads `file`'s graph; its operators use `threads` threads. `is_free`: samples of any length.
pub(crate) fn open(
    runtime: &OnnxRuntime,
    file: &Path,
    provider: Provider,
    threads: usize,
    is_free: bool,
) -> Result<Session, FileError> {
    if !file.is_file() {
        return Err(FileError::new(file, "no such file; give the path of an ONNX model"));
    }
    // The runtime would keep a pattern for each shape that it has seen, and clients choose those.
    let session = provider.session(runtime, threads)?.with_memory_pattern(!is_free);
    let session = session.map_err(ort::Error::from);
    session.and_then(|mut session| session.commit_from_file(file)).map_err(|error| {
        let (with, fix) = match provider {
            Provider::Cpu => (String::new(), ""),
            _ => (format!(" with the provider {provider}"), ", or try --provider cpu"),
        };
        let (problem, reason) = ("not a model that ONNX Runtime can run", one_line(&error));
        FileError::new(file, format!("{problem}{with}: {reason}; export it again{fix}"))
    })
}

impl InferenceEngine for OnnxEngine {
    fn infer(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, EngineError> {
        let mut session = self.session.lock();
        let named = self.inputs.iter().zip(inputs);
        let named = named.map(|(spec, tensor)| Ok((spec.name.as_str(), value(tensor)?)));
        let named = named.collect::<ort::Result<Vec<_>>>().map_err(failed)?;
        let results = session.run(named).map_err(failed)?;
        let output = |spec: &TensorSpec| {
            let wrong =
                |problem: String| EngineError::Output { output: spec.name.clone(), problem };
            let value = results.get(&spec.name).ok_or_else(|| wrong("missing".to_owned()))?;
            let output = tensor(spec, value).map_err(|error| wrong(one_line(&error)))?;
            let (shape, expected) = (&output.shape, &spec.shape);
            match shape.get(1..).is_some_and(|sample| expected.matches(sample)) {
                true => Ok(output),
                false => Err(wrong(format!("shape {shape:?}, expected a batch of {expected}"))),
            }
        };
        self.outputs.iter().map(output).collect()
    }

    fn may_run_anywhere(&self) -> bool {
        true
    }
}

fn failed(error: ort::Error) -> EngineError {
    EngineError::Run { reason: one_line(&error) }
}

pub(crate) fn graph_tensor(outlet: &Outlet) -> GraphTensor {
    let (datatype, shape) = match outlet.dtype() {
        ValueType::Tensor { ty, shape, .. } => (datatype(*ty), shape.to_vec()),
        _ => (None, Vec::new()),
    };
    GraphTensor { name: outlet.name().to_owned(), datatype, shape }
}

fn datatype(element: TensorElementType) -> Option<Datatype> {
    Some(match element {
        TensorElementType::Bool => Datatype::Bool,
        TensorElementType::Uint8 => Datatype::Uint8,
        TensorElementType::Uint16 => Datatype::Uint16,
        TensorElementType::Uint32 => Datatype::Uint32,
        TensorElementType::Uint64 => Datatype::Uint64,
        TensorElementType::Int8 => Datatype::Int8,
        TensorElementType::Int16 => Datatype::Int16,
        TensorElementType::Int32 => Datatype::Int32,
        TensorElementType::Int64 => Datatype::Int64,
        TensorElementType::Float32 => Datatype::Fp32,
        TensorElementType::Float64 => Datatype::Fp64,
        TensorElementType::Float16 => Datatype::Fp16,
        TensorElementType::Bfloat16 => Datatype::Bf16,
        TensorElementType::String => Datatype::Bytes,
        _ => return None,
    })
}

/// Copies a tensor into one of ONNX Runtime's, aligned: a slice of a body begins anywhere.
pub(crate) fn value(tensor: &Tensor) -> ort::Result<DynValue> {
    let shape = tensor.shape.clone();
    macro_rules! numbers {
        ($type:ty) => {{
            let (elements, _) = tensor.data.as_chunks();
            let values = elements.iter().map(|bytes| <$type>::from_le_bytes(*bytes));
            let values: Vec<$type> = values.collect();
            OrtTensor::from_array((shape, values))?.into_dyn()
        }};
    }
    Ok(match_integers!(tensor.datatype, numbers, {
        Datatype::Bool => {
            let values: Vec<bool> = tensor.data.iter().map(|&byte| byte != 0).collect();
            OrtTensor::from_array((shape, values))?.into_dyn()
        }
        Datatype::Fp32 => numbers!(f32),
        Datatype::Fp64 => numbers!(f64),
        Datatype::Fp16 => numbers!(f16),
        Datatype::Bf16 => numbers!(bf16),
        Datatype::Bytes => {
            // ONNX's strings are text.
            let text =
                |element: &[u8]| String::from_utf8(element.to_vec()).map_err(ort::Error::wrap);
            let texts = tensor.byte_strings().map(text).collect::<ort::Result<Vec<String>>>()?;
            OrtTensor::from_string_array((shape, texts.as_slice()))?.into_dyn()
        }
    }))
}

fn tensor(spec: &TensorSpec, value: &DynValue) -> ort::Result<Tensor> {
    macro_rules! numbers {
        ($type:ty) => {{
            let (shape, values) = value.try_extract_tensor::<$type>()?;
            (shape, values.iter().flat_map(|value| value.to_le_bytes()).collect::<Bytes>())
        }};
    }
    let (shape, data) = match_integers!(spec.datatype, numbers, {
        Datatype::Bool => {
            let (shape, values) = value.try_extract_tensor::<bool>()?;
            (shape, values.iter().map(|&value| u8::from(value)).collect())
        }
        Datatype::Fp32 => numbers!(f32),
        Datatype::Fp64 => numbers!(f64),
        Datatype::Fp16 => numbers!(f16),
        Datatype::Bf16 => numbers!(bf16),
        Datatype::Bytes => {
            let (shape, texts) = value.try_extract_strings()?;
            let mut data = Vec::new();
            for text in &texts {
                let length = u32::try_from(text.len()).map_err(ort::Error::wrap)?;
                data.extend_from_slice(&length.to_le_bytes());
                data.extend_from_slice(text.as_bytes());
            }
            (shape, data.into())
        }
    });
    let shape = shape.iter().map(|&axis: &i64| usize::try_from(axis).unwrap_or_default()).collect();
    Tensor::new(spec.name.clone(), spec.datatype, shape, data).map_err(ort::Error::wrap)
}

#[derive(Debug, Clone)]
pub(crate) struct GraphTensor {
    pub(crate) name: String,
    /// `None` for a type that the protocol or this engine has no word for.
    pub(crate) datatype: Option<Datatype>,
    /// -1 for an axis of any length; the batch axis first.
    pub(crate) shape: Vec<i64>,
}

/// Finds the field of one side that the graph contradicts, with the problem and the fix; `side` is
/// `inputs` or `outputs`, as the file has it. Batches have up to `max_rows` rows.
fn check_graph(
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
    if !here.fits(sample) {
        return wrong_shape(format!(
            "{here} here, {sample:?} after the batch axis in the graph; write the graph's, \
             without the batch axis"
        ));
    }
    if batch >= 0 && (batch, max_rows) != (1, 1) {
        let single = "set max-batch-size to 1 or ";
        let or = if batch == 1 { single } else { "" };
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
        vec![GraphTensor { name: name.to_owned(), datatype: Some(datatype), shape: shape.to_vec() }]
    }

    #[test]
    fn each_field_is_compared() {
        let specs = [TensorSpec {
            name: "x".to_owned(),
            datatype: Datatype::Fp32,
            shape: vec![1, 28, 28].into(),
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
            let found = check_graph("inputs", &specs, &graph, max_rows);
            let found = found.map_or_else(|mismatch| mismatch, |()| "fits: ".to_owned());
            assert!(found.starts_with(&format!("{field}: ")), "{graph:?}: {found}");
        }
    }
}
