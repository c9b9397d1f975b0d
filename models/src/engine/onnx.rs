//! Models run by ONNX Runtime.

use std::num::NonZeroUsize;

use bytes::Bytes;
use half::{bf16, f16};
use ort::session::Session;
use ort::value::{DynValue, Outlet, Tensor as OrtTensor, TensorElementType, ValueType};
use parapet_config::repository::{ModelEntry, TensorSpec};
use parapet_open_inference::{Datatype, Tensor};
use parking_lot::Mutex;

use super::graph::{self, GraphTensor};
use super::{EngineError, InferenceEngine, LoadError, OnnxRuntime, one_line};

/// A session of ONNX Runtime on the CPU.
pub struct OnnxEngine {
    /// `run` wants the session for itself; only the batcher's one thread ever locks it.
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
        threads: NonZeroUsize,
        max_rows: usize,
    ) -> Result<Self, LoadError> {
        let file = entry.model_file(version)?;
        let session = runtime.session(threads.get());
        let session = session.and_then(|mut session| session.commit_from_file(&file));
        let session = session.map_err(|error| {
            let (file, reason) = (file.display(), one_line(&error));
            LoadError::Unusable(format!(
                "{file}: not a model that ONNX Runtime can run: {reason}; export it again"
            ))
        })?;
        let check = |side, specs, outlets: &[Outlet]| {
            let tensors: Vec<_> = outlets.iter().map(graph_tensor).collect();
            graph::check(side, specs, &tensors, max_rows).map_err(|mismatch| {
                let toml = entry.toml_file();
                LoadError::Unusable(format!("{}: {mismatch}", toml.display()))
            })
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

impl InferenceEngine for OnnxEngine {
    fn infer(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, EngineError> {
        let mut session = self.session.lock();
        let named = self.inputs.iter().zip(inputs);
        let named = named.map(|(spec, tensor)| Ok((spec.name.as_str(), value(tensor)?)));
        let named = named.collect::<ort::Result<Vec<_>>>().map_err(failed)?;
        let results = session.run(named).map_err(failed)?;
        let output = |spec: &TensorSpec| {
            let wrong = |problem: String| EngineError::Output {
                output: spec.name.clone(),
                problem,
            };
            let value = results
                .get(&spec.name)
                .ok_or_else(|| wrong("missing".to_owned()))?;
            let output = tensor(spec, value).map_err(|error| wrong(one_line(&error)))?;
            let (shape, sample) = (&output.shape, &spec.shape);
            match shape.get(1..) == Some(sample) {
                true => Ok(output),
                false => Err(wrong(format!(
                    "shape {shape:?}, expected a batch of {sample:?}"
                ))),
            }
        };
        self.outputs.iter().map(output).collect()
    }
}

fn failed(error: ort::Error) -> EngineError {
    EngineError::Run {
        reason: one_line(&error),
    }
}

fn graph_tensor(outlet: &Outlet) -> GraphTensor {
    let (datatype, shape) = match outlet.dtype() {
        ValueType::Tensor { ty, shape, .. } => (datatype(*ty), shape.to_vec()),
        _ => (None, Vec::new()),
    };
    GraphTensor {
        name: outlet.name().to_owned(),
        datatype,
        shape,
    }
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

/// Copies a tensor into one of ONNX Runtime's. The copy also aligns it: a slice of a
/// body begins anywhere.
fn value(tensor: &Tensor) -> ort::Result<DynValue> {
    let shape = tensor.shape.clone();
    macro_rules! numbers {
        ($type:ty) => {{
            let (elements, _) = tensor.data.as_chunks();
            let values = elements.iter().map(|bytes| <$type>::from_le_bytes(*bytes));
            let values: Vec<$type> = values.collect();
            OrtTensor::from_array((shape, values))?.into_dyn()
        }};
    }
    Ok(match tensor.datatype {
        Datatype::Bool => {
            let values: Vec<bool> = tensor.data.iter().map(|&byte| byte != 0).collect();
            OrtTensor::from_array((shape, values))?.into_dyn()
        }
        Datatype::Uint8 => numbers!(u8),
        Datatype::Uint16 => numbers!(u16),
        Datatype::Uint32 => numbers!(u32),
        Datatype::Uint64 => numbers!(u64),
        Datatype::Int8 => numbers!(i8),
        Datatype::Int16 => numbers!(i16),
        Datatype::Int32 => numbers!(i32),
        Datatype::Int64 => numbers!(i64),
        Datatype::Fp32 => numbers!(f32),
        Datatype::Fp64 => numbers!(f64),
        Datatype::Fp16 => numbers!(f16),
        Datatype::Bf16 => numbers!(bf16),
        Datatype::Bytes => {
            // ONNX's strings are text.
            let text =
                |element: &[u8]| String::from_utf8(element.to_vec()).map_err(ort::Error::wrap);
            let texts = tensor
                .byte_strings()
                .map(text)
                .collect::<ort::Result<Vec<String>>>()?;
            OrtTensor::from_string_array((shape, texts.as_slice()))?.into_dyn()
        }
    })
}

fn tensor(spec: &TensorSpec, value: &DynValue) -> ort::Result<Tensor> {
    macro_rules! numbers {
        ($type:ty) => {{
            let (shape, values) = value.try_extract_tensor::<$type>()?;
            let bytes = values.iter().flat_map(|value| value.to_le_bytes());
            (shape, bytes.collect::<Bytes>())
        }};
    }
    let (shape, data) = match spec.datatype {
        Datatype::Bool => {
            let (shape, values) = value.try_extract_tensor::<bool>()?;
            (shape, values.iter().map(|&value| u8::from(value)).collect())
        }
        Datatype::Uint8 => numbers!(u8),
        Datatype::Uint16 => numbers!(u16),
        Datatype::Uint32 => numbers!(u32),
        Datatype::Uint64 => numbers!(u64),
        Datatype::Int8 => numbers!(i8),
        Datatype::Int16 => numbers!(i16),
        Datatype::Int32 => numbers!(i32),
        Datatype::Int64 => numbers!(i64),
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
    };
    let shape = shape
        .iter()
        .map(|&axis| usize::try_from(axis).unwrap_or_default())
        .collect();
    Tensor::new(spec.name.clone(), spec.datatype, shape, data).map_err(ort::Error::wrap)
}
