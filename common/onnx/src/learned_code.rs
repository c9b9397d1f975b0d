//! Learned codes: an encoder and a decoder that are neural networks, run by ONNX Runtime.
//!
//! After *Learning a Code: Machine Learning for Approximate Non-Linear Coded Computation* (Kosaian,
//! Rashmi, Venkataraman, arXiv 1806.01259), section 3. With k queries `X_1 .. X_k` of d values and
//! a deployed model F of c outputs,
//!
//! ```text
//! P_1 .. P_r     = E(X_1 .. X_k)                                    k d values to r d
//! F^(X_1 .. X_k) = D(F(X_1) .. F(X_k), F(P_1) .. F(P_r))      (k + r) c values to k c
//!                                                             (0 for those that are missing)
//! ```
//!
//! F is trained for neither: E and D were trained through it, and its own instances answer the
//! parity queries. With an output transform T, D takes and gives outputs as T has them.
//!
//! [`LearnedCode`] is the code as its entry of a model repository has it; the frontend serves by
//! it, and the trainer judges it by the same code. Calls block for as long as the networks compute:
//! tens of microseconds to milliseconds.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use ort::session::Session;
use ort::value::{Outlet, TensorElementType, TensorRef, ValueType};
use parapet_config::FileError;
use parapet_config::repository::{ModelEntry, Platform};
use parapet_decoder::{Calibration, DecodeError, Decoder};
use parapet_encoder::{Code, CodeSpec, EncodeError, Encoder, EncoderKind};
use parking_lot::Mutex;

use crate::runtime::{OnnxRuntime, one_line};

/// A learned code with its networks; clones share them. Parity outputs are the deployed model's
/// own, as its instances give them.
#[derive(Debug, Clone)]
pub struct LearnedCode {
    code: Code,
    sample_len: usize,
    output_len: usize,
    encoder: Arc<Network>,
    decoder: Arc<Network>,
    calibration: Option<Calibration>,
}

/// Code and sizes that the networks must fit.
#[derive(Debug, Clone, Copy)]
pub struct Sizes<'a> {
    /// Specification of the code.
    pub spec: &'a CodeSpec,
    /// d: values of one sample.
    pub sample_len: usize,
    /// c: outputs of the deployed model for one sample.
    pub output_len: usize,
}

impl LearnedCode {
    /// Loads `version` of an entry with `platform = "parapet_learned_code"`, and tries it on zeros.
    ///
    /// # Errors
    /// If the entry is no learned code, or its networks do not fit it.
    pub fn load(
        runtime: &OnnxRuntime,
        entry: &ModelEntry,
        version: u64,
    ) -> Result<Self, FileError> {
        let (Platform::LearnedCode, Some(code), [input], [output]) =
            (&entry.platform, &entry.code, entry.inputs.as_slice(), entry.outputs.as_slice())
        else {
            return Err(not_learned(&entry.toml_file()));
        };
        let folder = entry.version_folder(version)?;
        let (Some(sample_len), Some(output_len)) = (input.sample_len(), output.sample_len()) else {
            return Err(not_learned(&entry.toml_file()));
        };
        let sizes = Sizes { spec: &code.spec, sample_len, output_len };
        let read = |name: &str| {
            let file = folder.join(name);
            fs::read(&file).map_err(FileError::io("read", &file))
        };
        let networks = (read(Platform::ENCODER_FILE)?, read(Platform::DECODER_FILE)?);
        let loaded = Self::from_onnx(runtime, sizes, &folder, (&networks.0, &networks.1))?;
        Ok(Self { calibration: code.calibration.clone(), ..loaded })
    }

    /// The code whose encoder and decoder are these ONNX files' contents, tried on zeros; `place`
    /// is where messages say they are.
    ///
    /// # Errors
    /// If the code is not valid or no learned one, or its networks do not fit it.
    pub fn from_onnx(
        runtime: &OnnxRuntime,
        sizes: Sizes<'_>,
        place: &Path,
        (encoder, decoder): (&[u8], &[u8]),
    ) -> Result<Self, FileError> {
        let Sizes { spec, sample_len, output_len } = sizes;
        let invalid = |error| FileError::new(place, error);
        let code = Code::try_from(spec).map_err(invalid)?;
        if code.encoder() != EncoderKind::Learned {
            return Err(not_learned(place));
        }
        code.transform().validate(output_len).map_err(invalid)?;
        let (k, r) = (code.k(), code.r());
        let network = |name, onnx: &[u8], inputs, outputs| {
            Network::open(runtime, &place.join(name), onnx, inputs, outputs).map(Arc::new)
        };
        let (queries, rows) = (k * sample_len, r * sample_len);
        let (given, made) = ((k + r) * output_len, k * output_len);
        Ok(Self {
            encoder: network(Platform::ENCODER_FILE, encoder, queries, rows)?,
            decoder: network(Platform::DECODER_FILE, decoder, given, made)?,
            code,
            sample_len,
            output_len,
            calibration: None,
        })
    }

    /// The code, with its output transform.
    pub fn code(&self) -> &Code {
        &self.code
    }

    /// Returns the measured agreement for each score, where it was measured.
    pub fn calibration(&self) -> Option<&Calibration> {
        self.calibration.as_ref()
    }

    /// Its encoder. Encoding one of several rows runs the network for all.
    pub fn encoder(&self) -> &(dyn Encoder + 'static) {
        self
    }

    /// Returns the code's decoder.
    pub fn decoder(&self) -> &(dyn Decoder + 'static) {
        self
    }

    /// The encoder and decoder, owned.
    pub fn into_coders(self) -> (Box<dyn Encoder>, Box<dyn Decoder>) {
        (Box::new(self.clone()), Box::new(self))
    }
}

impl Encoder for LearnedCode {
    fn code(&self) -> &Code {
        &self.code
    }

    fn encode(
        &self,
        row: usize,
        queries: &[&[f32]],
        parity: &mut [f32],
    ) -> Result<(), EncodeError> {
        let length = self.sample_len;
        parapet_encoder::check_group(&self.code, length, row, queries, parity)?;
        let samples = parity.len() / length;
        let mut inputs = Vec::with_capacity(samples * self.code.k() * length);
        for sample in 0..samples {
            for query in queries {
                let values = query.get(sample * length..(sample + 1) * length);
                inputs.extend_from_slice(values.unwrap_or_default());
            }
        }
        let rows = self.encoder.run(samples, &inputs);
        let rows = rows.map_err(|reason| EncodeError::Network { reason })?;
        copy_each(&rows, row, self.code.r(), length, parity);
        Ok(())
    }
}

impl Decoder for LearnedCode {
    fn code(&self) -> &Code {
        &self.code
    }

    fn decode(
        &self,
        predictions: &[Option<&[f32]>],
        parity: &[Option<&[f32]>],
        slot: usize,
        out: &mut [f32],
    ) -> Result<(), DecodeError> {
        parapet_decoder::check_group(&self.code, predictions, parity, slot, out.len())?;
        let (length, k) = (self.output_len, self.code.k());
        if !out.len().is_multiple_of(length) {
            return Err(DecodeError::UnequalLength { expected: length, got: out.len() });
        }
        let transform = self.code.transform();
        let (samples, group) = (out.len() / length, (k + self.code.r()) * length);
        let mut inputs = vec![0.0; samples * group];
        // Sample by sample, each with all outputs of its group; what is missing stays zero.
        for (place, sample) in inputs.chunks_exact_mut(group).enumerate() {
            let of_sample = place * length..(place + 1) * length;
            let outputs = predictions.iter().chain(parity);
            for (to, output) in sample.chunks_exact_mut(length).zip(outputs) {
                if let Some(values) = output.and_then(|output| output.get(of_sample.clone())) {
                    to.copy_from_slice(values);
                    transform.apply(to, length);
                }
            }
        }
        let decoded = self.decoder.run(samples, &inputs);
        let decoded = decoded.map_err(|reason| DecodeError::Network { reason })?;
        copy_each(&decoded, slot, k, length, out);
        transform.invert(out);
        Ok(())
    }
}

/// Copies row `first` of each `count` rows of `length` values, one after another.
fn copy_each(rows: &[f32], first: usize, count: usize, length: usize, out: &mut [f32]) {
    let rows = rows.chunks_exact(length).skip(first).step_by(count);
    for (out, values) in out.chunks_exact_mut(length).zip(rows) {
        out.copy_from_slice(values);
    }
}

fn not_learned(path: &Path) -> FileError {
    let problem = "is no learned code of one input and one output; name an entry with encoder = \
        \"learned\"";
    FileError::new(path, problem)
}

/// A session of ONNX Runtime on one thread: these networks are small, and no request waits.
struct Network {
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
        f.debug_struct("Network").field("input_shape", &self.input_shape).finish_non_exhaustive()
    }
}

impl Network {
    /// The network `onnx`, which must take `inputs` values a sample, and give `outputs`, in batches
    /// of any length; tried on zeros. Messages name `file`.
    fn open(
        runtime: &OnnxRuntime,
        file: &Path,
        onnx: &[u8],
        inputs: usize,
        outputs: usize,
    ) -> Result<Self, FileError> {
        let session = runtime.session(1).and_then(|mut session| session.commit_from_memory(onnx));
        let session = session.map_err(|error| {
            let reason = one_line(&error);
            train_again(file, format!("not a network that ONNX Runtime can run: {reason}"))
        })?;
        let (input, input_shape) = tensor(file, "input", session.inputs(), inputs)?;
        let (output, _) = tensor(file, "output", session.outputs(), outputs)?;
        let network =
            Self { session: Mutex::new(session), input, output, input_shape, output_len: outputs };
        // Other batches than one sample's show a batch axis that is fixed within.
        for rows in [1, 3] {
            let broken = |reason| train_again(file, format!("does not work: {reason}"));
            let values = network.run(rows, &vec![0.0; rows * inputs]).map_err(broken)?;
            if values.iter().any(|value| !value.is_finite()) {
                return Err(broken("it answers zeros with numbers that are not finite".to_owned()));
            }
        }
        Ok(network)
    }

    /// The network's answer to `rows` samples; says why there is none.
    fn run(&self, rows: usize, values: &[f32]) -> Result<Vec<f32>, String> {
        let failed = |error: ort::Error| one_line(&error);
        let dims = [&[rows], &self.input_shape[..]].concat();
        let input = TensorRef::from_array_view((dims, values)).map_err(failed)?;
        let mut session = self.session.lock();
        let answer = session.run(ort::inputs![self.input.as_str() => input]).map_err(failed)?;
        let output = answer.get(&self.output);
        let output = output.ok_or_else(|| format!("no output {:?}", self.output))?;
        let (shape, values) = output.try_extract_tensor::<f32>().map_err(failed)?;
        let wanted = rows * self.output_len;
        if values.len() == wanted {
            return Ok(values.to_vec());
        }
        Err(format!("an output of shape {shape:?} for {rows} samples, {wanted} values expected"))
    }
}

/// Name and sample shape of a side's only tensor, which must have `wanted` 32-bit floats a sample.
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
    let ValueType::Tensor { ty: TensorElementType::Float32, shape, .. } = outlet.dtype() else {
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
