//! A network of one input and one output, values in and values out.

use std::path::Path;

use crate::runtime::{OnnxRuntime, one_line};
use ort::session::Session;
use ort::value::{Outlet, TensorElementType, TensorRef, ValueType};
use parking_lot::Mutex;

use parapet_config::FileError;

/// A session of ONNX Runtime on one thread: these networks are small, and requests wait for none
/// of its threads.
pub(crate) struct Network {
    /// `run` wants the session for itself.
    session: Mutex<Session>,
    input: String,
    output: String,
    /// Of one sample.
    input_shape: Vec<usize>,
    output_len: usize,
}

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Network")
            .field("input_shape", &self.input_shape)
            .finish_non_exhaustive()
    }
}

impl Network {
    /// The network `onnx`, which must take `inputs` values a sample, and give `outputs`, in batches
    /// of any length; tried on zeros. Messages name `file`.
    pub(crate) fn open(
        runtime: &OnnxRuntime,
        file: &Path,
        onnx: &[u8],
        inputs: usize,
        outputs: usize,
    ) -> Result<Self, FileError> {
        let session = runtime
            .session(1)
            .and_then(|mut session| session.commit_from_memory(onnx));
        let session = session.map_err(|error| {
            let reason = one_line(&error);
            let problem = format!("not a network that ONNX Runtime can run: {reason}");
            train_again(file, problem)
        })?;
        let (input, input_shape) = tensor(file, "input", session.inputs(), inputs)?;
        let (output, _) = tensor(file, "output", session.outputs(), outputs)?;
        let network = Self {
            session: Mutex::new(session),
            input,
            output,
            input_shape,
            output_len: outputs,
        };
        // Other batches than one sample's show a batch axis that is fixed within.
        for rows in [1, 3] {
            let broken = |reason| train_again(file, format!("does not work: {reason}"));
            let values = network
                .run(rows, &vec![0.0; rows * inputs])
                .map_err(broken)?;
            if values.iter().any(|value| !value.is_finite()) {
                let reason = "it answers zeros with numbers that are not finite";
                return Err(broken(reason.to_owned()));
            }
        }
        Ok(network)
    }

    /// The network's answer to `rows` samples; says why there is none.
    pub(crate) fn run(&self, rows: usize, values: &[f32]) -> Result<Vec<f32>, String> {
        let failed = |error: ort::Error| one_line(&error);
        let dims: Vec<usize> = std::iter::once(rows)
            .chain(self.input_shape.iter().copied())
            .collect();
        let input = TensorRef::from_array_view((dims, values)).map_err(failed)?;
        let mut session = self.session.lock();
        let answer = session
            .run(ort::inputs![self.input.as_str() => input])
            .map_err(failed)?;
        let output = answer
            .get(&self.output)
            .ok_or_else(|| format!("no output {:?}", self.output))?;
        let (shape, values) = output.try_extract_tensor::<f32>().map_err(failed)?;
        let wanted = rows * self.output_len;
        if values.len() == wanted {
            return Ok(values.to_vec());
        }
        Err(format!(
            "an output of shape {shape:?} for {rows} samples, {wanted} values expected"
        ))
    }
}

/// Name and sample shape of the only tensor of one side, which must have `wanted` 32-bit
/// floats a sample.
fn tensor(
    file: &Path,
    side: &'static str,
    outlets: &[Outlet],
    wanted: usize,
) -> Result<(String, Vec<usize>), FileError> {
    let wrong = |found: String| {
        let problem = format!(
            "its {side} has {found} values a sample, k, r and the shapes in model.toml make it \
                {wanted}"
        );
        train_again(file, problem)
    };
    let [outlet] = outlets else {
        let count = outlets.len();
        return Err(wrong(format!("{count} tensors instead of one of so many")));
    };
    let ValueType::Tensor {
        ty: TensorElementType::Float32,
        shape,
        ..
    } = outlet.dtype()
    else {
        let found = outlet.dtype();
        return Err(wrong(format!("{found} instead of 32-bit floats")));
    };
    let (batch, axes) = shape.split_first().unwrap_or((&1, &[]));
    let fixed = axes.iter().map(|&axis| usize::try_from(axis).ok());
    let axes = fixed.collect::<Option<Vec<usize>>>();
    let Some(axes) = axes.filter(|_| *batch < 0) else {
        return Err(wrong(format!(
            "shape {shape:?} instead of a free batch axis and fixed others, so not known how many"
        )));
    };
    match axes.iter().product::<usize>() {
        values if values == wanted => Ok((outlet.name().to_owned(), axes)),
        values => Err(wrong(values.to_string())),
    }
}

fn train_again(file: &Path, problem: String) -> FileError {
    FileError::new(file, problem + "; train the code again")
}
