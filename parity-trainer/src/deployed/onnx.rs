//! Deployed models as ONNX, run by ONNX Runtime as `parapet-instance` runs them.

use std::path::{Path, PathBuf};

use ort::session::Session;
use ort::value::{Outlet, TensorElementType, TensorRef, ValueType};
use parapet_onnx::runtime::OnnxRuntime;
use parking_lot::Mutex;

use super::error::one_line;
use super::{BATCH, DeployedError, DeployedModel, OpenOptions, shape};

/// A session of ONNX Runtime on the processor.
pub struct OnnxModel {
    file: PathBuf,
    /// `run` wants the session for itself.
    session: Mutex<Session>,
    input: String,
    output: String,
    /// As the graph has it.
    input_shape: Vec<usize>,
    /// Of one sample; not known while the model is being opened.
    output_shape: Option<Vec<usize>>,
    /// True if there are other inputs, and other outputs.
    others: (bool, bool),
}

impl std::fmt::Debug for OnnxModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OnnxModel")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

impl OnnxModel {
    /// Opens `file` for samples of `sample_shape`.
    ///
    /// # Errors
    /// If ONNX Runtime is missing or refuses the file, or the model does not take those
    /// samples in batches.
    pub fn open(
        file: &Path,
        options: &OpenOptions,
        sample_shape: &[usize],
    ) -> Result<Self, DeployedError> {
        let runtime = OnnxRuntime::load(options.onnxruntime.as_deref())?;
        let threads = match options.threads {
            0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            threads => threads,
        };
        let path = || file.to_path_buf();
        let session = runtime
            .session(threads)
            .and_then(|mut session| session.commit_from_file(file));
        let session = session.map_err(|error| DeployedError::Unusable {
            path: path(),
            runtime: "ONNX Runtime",
            reason: one_line(&error),
        })?;
        let (input, input_axes) =
            choose(file, "input", session.inputs(), options.input.as_deref())?;
        let (output, output_axes) =
            choose(file, "output", session.outputs(), options.output.as_deref())?;
        let (batch, axes) = input_axes.split_first().unwrap_or((&1, &[]));
        let fitting = shape::fit(axes, sample_shape);
        if *batch >= 0 {
            // A model without a batch axis has the sample's axes only.
            let unbatched = shape::fit(&input_axes, sample_shape).is_some() && fitting.is_none();
            let batch = if unbatched { 1 } else { *batch };
            return Err(DeployedError::FixedBatch {
                path: path(),
                batch,
            });
        }
        let Some(input_shape) = fitting else {
            let (model, data) = (shape::describe(axes), sample_shape.to_vec());
            return Err(DeployedError::Shape {
                path: path(),
                model,
                data,
            });
        };
        let others = (session.inputs().len() > 1, session.outputs().len() > 1);
        let mut model = Self {
            file: path(),
            session: Mutex::new(session),
            input,
            output,
            input_shape,
            output_shape: None,
            others,
        };
        let known: Option<Vec<usize>> = output_axes
            .iter()
            .skip(1)
            .map(|&axis| usize::try_from(axis).ok())
            .collect();
        let known = known.filter(|shape| !shape.is_empty() && !shape.contains(&0));
        model.output_shape = Some(match known {
            Some(shape) => shape,
            // The graph does not say: the answer to one sample does.
            None => model.run(&vec![0.0; model.sample_len()], 1)?.0,
        });
        Ok(model)
    }

    fn sample_len(&self) -> usize {
        self.input_shape.iter().product()
    }

    /// The shape of a sample's output, and the outputs of all `count` samples.
    fn run(&self, samples: &[f32], count: usize) -> Result<(Vec<usize>, Vec<f32>), DeployedError> {
        let failed = |error: ort::Error| DeployedError::Run {
            path: self.file.clone(),
            shape: self.input_shape.clone(),
            reason: one_line(&error),
        };
        let dims: Vec<usize> = std::iter::once(count)
            .chain(self.input_shape.iter().copied())
            .collect();
        let input = TensorRef::from_array_view((dims, samples)).map_err(failed)?;
        let mut session = self.session.lock();
        let answer = session
            .run(ort::inputs![self.input.as_str() => input])
            .map_err(failed)?;
        let wrong = |got: Vec<i64>| {
            let known = self.output_shape.is_some();
            let width = if known {
                format!("{} values", self.outputs())
            } else {
                "values".to_owned()
            };
            DeployedError::Output {
                path: self.file.clone(),
                got,
                samples: count,
                width,
            }
        };
        let output = answer.get(&self.output).ok_or_else(|| wrong(Vec::new()))?;
        let (got, values) = output.try_extract_tensor::<f32>().map_err(failed)?;
        let rows_fit = got.first() == i64::try_from(count).ok().as_ref();
        let width_fits = self.output_shape.is_none() || values.len() == count * self.outputs();
        if rows_fit && width_fits && !values.is_empty() {
            let shape = got
                .iter()
                .skip(1)
                .filter_map(|&axis| usize::try_from(axis).ok());
            return Ok((shape.collect(), values.to_vec()));
        }
        Err(wrong(got.to_vec()))
    }
}

impl DeployedModel for OnnxModel {
    fn input_shape(&self) -> &[usize] {
        &self.input_shape
    }

    fn output_shape(&self) -> &[usize] {
        self.output_shape.as_deref().unwrap_or_default()
    }

    fn chosen_input(&self) -> Option<&str> {
        self.others.0.then_some(&self.input)
    }

    fn chosen_output(&self) -> Option<&str> {
        self.others.1.then_some(&self.output)
    }

    fn infer(&self, samples: &[f32]) -> Result<Vec<f32>, DeployedError> {
        let sample_len = self.sample_len();
        let mut outputs = Vec::with_capacity(samples.len() / sample_len * self.outputs());
        for chunk in samples.chunks(BATCH * sample_len) {
            outputs.extend(self.run(chunk, chunk.len() / sample_len)?.1);
        }
        Ok(outputs)
    }
}

/// The tensor of one side to use, with its axes.
fn choose(
    file: &Path,
    side: &'static str,
    outlets: &[Outlet],
    wanted: Option<&str>,
) -> Result<(String, Vec<i64>), DeployedError> {
    let path = || file.to_path_buf();
    let names = || {
        outlets
            .iter()
            .map(|outlet| outlet.name().to_owned())
            .collect::<Vec<_>>()
    };
    let outlet = match (wanted, outlets) {
        (None, [only]) => only,
        (None, _) => {
            return Err(DeployedError::Ambiguous {
                path: path(),
                side,
                names: names(),
            });
        }
        (Some(wanted), _) => outlets
            .iter()
            .find(|outlet| outlet.name() == wanted)
            .ok_or_else(|| DeployedError::NoTensor {
                path: path(),
                side,
                wanted: wanted.to_owned(),
                names: names(),
            })?,
    };
    match outlet.dtype() {
        ValueType::Tensor {
            ty: TensorElementType::Float32,
            shape,
            ..
        } => Ok((outlet.name().to_owned(), shape.to_vec())),
        other => Err(DeployedError::Datatype {
            path: path(),
            side,
            name: outlet.name().to_owned(),
            datatype: format!("{other}"),
        }),
    }
}
