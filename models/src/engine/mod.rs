//! Engines that run models.

pub(crate) mod onnx;
mod provider;
#[cfg(feature = "torch")]
mod torch;

use std::num::NonZeroUsize;

use parapet_config::FileError;
use parapet_config::repository::{ModelEntry, TensorSpec};
use parapet_open_inference::{Parameters, Tensor};

pub use onnx::OnnxEngine;
pub(crate) use parapet_onnx::runtime::one_line;
pub use parapet_onnx::runtime::{OnnxRuntime, RuntimeError};
pub use provider::Provider;
#[cfg(feature = "torch")]
pub use torch::TorchEngine;

/// A loaded model. Calls block.
pub trait InferenceEngine: Send + Sync + 'static {
    /// Runs one batch: the model's inputs in the order of its `model.toml`, all with the same
    /// number of rows on axis 0. Gives the outputs in that order, with as many rows.
    fn infer(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, EngineError>;

    /// Returns true if short calls may be made by a thread that serves connections, too: they take
    /// about as long each time.
    fn may_run_anywhere(&self) -> bool {
        false
    }
}

/// So many zeros for an input; an axis of any length has 1.
pub(crate) fn zeros(spec: &TensorSpec, rows: usize) -> Tensor {
    let shape = [&[rows], spec.shape.smallest().as_slice()].concat();
    // Of BYTES, the length of an empty element.
    let size = spec.datatype.size().unwrap_or(size_of::<u32>());
    let data = vec![0; shape.iter().product::<usize>() * size].into();
    let parameters = Parameters::new();
    Tensor { name: spec.name.clone(), datatype: spec.datatype, shape, data, parameters }
}

/// Loads `version` of a TorchScript model; a build without the feature `torch` refuses.
pub(crate) fn load_torch(
    entry: &ModelEntry,
    version: u64,
    threads: NonZeroUsize,
) -> Result<Box<dyn InferenceEngine>, FileError> {
    #[cfg(feature = "torch")]
    return Ok(Box::new(TorchEngine::load(entry, version, threads)?));
    #[cfg(not(feature = "torch"))]
    {
        let _ = (version, threads);
        let problem = "this instance is built without TorchScript";
        let fix = "build parapet-instance with the feature `torch` (cargo build -p parapet-models \
                   --features torch) or export the model as ONNX";
        Err(FileError::field(&entry.toml_file(), "platform", problem, fix))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    #[error("inference failed: {reason}")]
    Run { reason: String },
    #[error("the model's output {output:?} is wrong: {problem}")]
    Output { output: String, problem: String },
    #[error("injected fault")]
    Injected,
}

impl EngineError {
    /// Returns true if one request of the batch may be to blame, so that the others are
    /// worth running without it.
    pub(crate) fn may_spare_others(&self) -> bool {
        matches!(self, Self::Run { .. })
    }
}
