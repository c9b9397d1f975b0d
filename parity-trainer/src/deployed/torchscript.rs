//! Deployed models as TorchScript, run by libtorch.

use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use tch::{CModule, Device, Kind, Tensor, no_grad};

use super::error::one_line;
use super::{BATCH, DeployedError, DeployedModel, Differentiable};

/// A scripted or traced module whose `forward` takes `[batch, ..sample]` and gives `[batch,
/// ..outputs]`.
pub struct TorchScriptModel {
    file: PathBuf,
    module: Mutex<CModule>,
    input_shape: Vec<usize>,
    /// Of one sample; not known while the module is being opened.
    output_shape: Option<Vec<usize>>,
}

impl std::fmt::Debug for TorchScriptModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TorchScriptModel")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

impl TorchScriptModel {
    /// Opens `file` for samples of `sample_shape`; a module does not say what it takes, so it is
    /// asked with one sample.
    ///
    /// # Errors
    /// If libtorch refuses the file or the module those samples.
    pub fn open(file: &Path, sample_shape: &[usize]) -> Result<Self, DeployedError> {
        let mut module = CModule::load(file).map_err(|error| DeployedError::Unusable {
            path: file.to_path_buf(),
            runtime: "libtorch",
            reason: one_line(&error),
        })?;
        module.set_eval();
        let (file, input_shape) = (file.to_path_buf(), sample_shape.to_vec());
        let mut model = Self {
            file,
            module: Mutex::new(module),
            input_shape,
            output_shape: None,
        };
        let sample_len: usize = sample_shape.iter().product();
        model.output_shape = Some(model.run(&vec![0.0; sample_len], 1)?.0);
        Ok(model)
    }

    /// Keeps gradients from the module's parameters; they still flow to its input.
    pub(super) fn freeze(&self) -> Result<(), DeployedError> {
        let parameters =
            self.module
                .lock()
                .named_parameters()
                .map_err(|error| DeployedError::Unusable {
                    path: self.file.clone(),
                    runtime: "libtorch",
                    reason: one_line(&error),
                })?;
        for (_, parameter) in parameters {
            let _ = parameter.set_requires_grad(false);
        }
        Ok(())
    }

    fn failed(&self, error: &tch::TchError) -> DeployedError {
        let text = error.to_string();
        // After the trace of where in the script it was.
        let cause = text.lines().find(|line| line.starts_with("RuntimeError: "));
        let reason = cause.map_or_else(|| one_line(error), |cause| cause.trim().to_owned());
        DeployedError::Run {
            path: self.file.clone(),
            shape: self.input_shape.clone(),
            reason,
        }
    }

    /// The shape of a sample's output, and the outputs of all `count` samples.
    fn run(&self, samples: &[f32], count: usize) -> Result<(Vec<usize>, Vec<f32>), DeployedError> {
        let failed = |error: tch::TchError| self.failed(&error);
        let dims: Vec<i64> = std::iter::once(count)
            .chain(self.input_shape.iter().copied())
            .map(|axis| axis as i64)
            .collect();
        let input = Tensor::from_slice(samples)
            .f_view(dims.as_slice())
            .map_err(failed)?;
        let output = no_grad(|| self.module.lock().forward_ts(&[input])).map_err(failed)?;
        let got = output.size();
        let flat = output
            .f_to_kind(Kind::Float)
            .and_then(|output| output.f_reshape([-1]))
            .map_err(failed)?;
        let values = Vec::<f32>::try_from(flat).map_err(failed)?;
        let rows_fit = got.first() == i64::try_from(count).ok().as_ref();
        let known = self.output_shape.is_some();
        if rows_fit && !values.is_empty() && (!known || values.len() == count * self.outputs()) {
            let shape = got
                .iter()
                .skip(1)
                .filter_map(|&axis| usize::try_from(axis).ok());
            return Ok((shape.collect(), values));
        }
        let width = if known {
            format!("{} values", self.outputs())
        } else {
            "values".to_owned()
        };
        Err(DeployedError::Output {
            path: self.file.clone(),
            got,
            samples: count,
            width,
        })
    }
}

impl Differentiable for TorchScriptModel {
    fn forward(&self, input: &Tensor) -> Result<Tensor, DeployedError> {
        // The module lies where its file has it: in the processor's memory.
        let input = input.to_device(Device::Cpu);
        let output = self.module.lock().forward_ts(&[input]).and_then(|output| {
            let output = output.f_to_kind(Kind::Float)?;
            output.f_reshape([-1, self.outputs() as i64])
        });
        output.map_err(|error| self.failed(&error))
    }
}

impl DeployedModel for TorchScriptModel {
    fn input_shape(&self) -> &[usize] {
        &self.input_shape
    }

    fn output_shape(&self) -> &[usize] {
        self.output_shape.as_deref().unwrap_or_default()
    }

    fn infer(&self, samples: &[f32]) -> Result<Vec<f32>, DeployedError> {
        let sample_len: usize = self.input_shape.iter().product();
        let mut outputs = Vec::with_capacity(samples.len() / sample_len * self.outputs());
        for chunk in samples.chunks(BATCH * sample_len) {
            outputs.extend(self.run(chunk, chunk.len() / sample_len)?.1);
        }
        Ok(outputs)
    }
}
