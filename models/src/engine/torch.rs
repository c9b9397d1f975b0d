//! TorchScript modules run by libtorch.

use std::num::NonZeroUsize;

use bytes::Bytes;
use parapet_config::FileError;
use parapet_config::repository::{ModelEntry, TensorSpec};
use parapet_open_inference::{Datatype, Tensor};
use parking_lot::Mutex;
use tch::{CModule, IValue, Kind, no_grad};

use super::{EngineError, InferenceEngine};

/// A module on the CPU. Its inputs and outputs have no names: they go by the order of `model.toml`.
pub struct TorchEngine {
    /// Only one thread of the batcher's ever locks it.
    module: Mutex<CModule>,
    outputs: Vec<TensorSpec>,
}

impl TorchEngine {
    /// Loads `version` of the model. libtorch's threads are the process's: the last model's
    /// `threads` hold for all.
    ///
    /// A module says nothing about its shapes: whether `model.toml` describes it shows at the first
    /// inference, which start-up makes.
    pub fn load(
        entry: &ModelEntry,
        version: u64,
        threads: NonZeroUsize,
    ) -> Result<Self, FileError> {
        let file = entry.model_file(version)?;
        tch::set_num_threads(i32::try_from(threads.get()).unwrap_or(i32::MAX));
        let load = || {
            let mut module = CModule::load(&file)?;
            module.f_set_eval()?;
            Ok(module)
        };
        let module = load().map_err(|error| {
            let problem = "not a TorchScript module that libtorch can run";
            let reason = reason(&error);
            FileError::new(&file, format!("{problem}: {reason}; save it again with torch.jit"))
        })?;
        Ok(Self { module: Mutex::new(module), outputs: entry.outputs.clone() })
    }
}

impl InferenceEngine for TorchEngine {
    fn infer(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, EngineError> {
        let rows = inputs.first().and_then(|input| input.shape.first());
        let rows = rows.copied().unwrap_or_default();
        let inputs = inputs.iter().map(|input| Ok(IValue::Tensor(tensor(input)?)));
        let inputs = inputs.collect::<Result<Vec<_>, EngineError>>()?;
        let answer = no_grad(|| self.module.lock().forward_is(&inputs));
        let answers = tensors(answer.map_err(|error| failed(&error))?);
        let count = self.outputs.len();
        let answers = answers.filter(|answers| answers.len() == count).ok_or_else(|| {
            let reason = format!("the module does not give {count} tensors, as model.toml says");
            EngineError::Run { reason }
        })?;
        self.outputs.iter().zip(&answers).map(|(spec, answer)| output(spec, rows, answer)).collect()
    }
}

/// Returns the tensors that a module answers with: one, a tuple or a list.
fn tensors(answer: IValue) -> Option<Vec<tch::Tensor>> {
    match answer {
        IValue::Tensor(tensor) => Some(vec![tensor]),
        IValue::TensorList(tensors) => Some(tensors),
        IValue::Tuple(values) => {
            values.into_iter().map(|value: IValue| tch::Tensor::try_from(value).ok()).collect()
        }
        _ => None,
    }
}

fn tensor(input: &Tensor) -> Result<tch::Tensor, EngineError> {
    let kind = kind(input.datatype).ok_or_else(|| EngineError::Run {
        reason: format!("{} cannot be served by libtorch", input.datatype),
    })?;
    let shape: Vec<i64> = input.shape.iter().map(|&axis| axis as i64).collect();
    tch::Tensor::f_from_data_size(&input.data, &shape, kind).map_err(|error| failed(&error))
}

fn output(spec: &TensorSpec, rows: usize, answer: &tch::Tensor) -> Result<Tensor, EngineError> {
    let wrong = |problem: String| EngineError::Output { output: spec.name.clone(), problem };
    let (found, datatype) = (answer.kind(), spec.datatype);
    if kind(datatype) != Some(found) {
        return Err(wrong(format!("elements are {found:?}, model.toml says {datatype}")));
    }
    let axes = answer.size().into_iter().map(|axis| usize::try_from(axis).unwrap_or_default());
    let shape: Vec<usize> = axes.collect();
    let sample = shape.split_first().filter(|(batch, _)| **batch == rows);
    if sample.is_none_or(|(_, sample)| !spec.shape.matches(sample)) {
        return Err(wrong(format!("shape {shape:?}, expected {}", spec.shape.behind(rows))));
    }
    let mut data = vec![0; answer.numel() * answer.kind().elt_size_in_bytes()];
    let elements = answer.numel();
    answer
        .f_contiguous()
        .and_then(|answer| answer.f_copy_data_u8(&mut data, elements))
        .map_err(|error| wrong(reason(&error)))?;
    Tensor::new(spec.name.clone(), spec.datatype, shape, Bytes::from(data))
        .map_err(|error| wrong(error.to_string()))
}

fn kind(datatype: Datatype) -> Option<Kind> {
    Some(match datatype {
        Datatype::Bool => Kind::Bool,
        Datatype::Uint8 => Kind::Uint8,
        Datatype::Int8 => Kind::Int8,
        Datatype::Int16 => Kind::Int16,
        Datatype::Int32 => Kind::Int,
        Datatype::Int64 => Kind::Int64,
        Datatype::Fp32 => Kind::Float,
        Datatype::Fp64 => Kind::Double,
        _ => return None,
    })
}

fn failed(error: &tch::TchError) -> EngineError {
    EngineError::Run { reason: reason(error) }
}

/// libtorch's message without the stack trace after it; an interpreter's trace ends with the cause.
fn reason(error: &tch::TchError) -> String {
    let message = error.to_string();
    let mut lines = message.lines().map(str::trim).filter(|line| !line.is_empty());
    let last = lines.clone().find(|line| line.starts_with("RuntimeError:"));
    last.or_else(|| lines.next()).unwrap_or_default().to_owned()
}
