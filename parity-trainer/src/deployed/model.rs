//! Models in files: ONNX, run by ONNX Runtime as in `parapet-instance`; TorchScript, by libtorch.

mod sequences;

use std::path::{Path, PathBuf};
use std::rc::Rc;

use ort::session::Session;
use ort::value::{Outlet, Tensor as OrtTensor, TensorElementType, TensorRef, ValueType};
use parapet_onnx::runtime::OnnxRuntime;
use parking_lot::Mutex;
use tch::{CModule, Device, Kind, Tensor, no_grad};

pub use self::sequences::check_padding;
use super::{BATCH, Deployed, DeployedModel, OpenOptions, entry, fixed_batch, wrong_shape};
use crate::network::{LENGTHS, Network, NetworkSpec, batch};
use crate::{Result, TrainError, first_line};

/// Limit of the difference between a network's outputs and its ONNX file's, a share of their size.
const TOLERANCE: f32 = 1e-3;

#[derive(Debug)]
pub(super) struct FileModel {
    file: PathBuf,
    engine: Engine,
    input_shape: Vec<usize>,
    /// Of one sample.
    output_shape: Vec<usize>,
    /// True if samples are sequences, padded with zeros, which it is asked about without padding.
    pub(super) is_of_sequences: bool,
    /// Name of the input for the lengths of padded sequences, if it takes them.
    lengths: Option<String>,
}

/// Runs want the session or the module for themselves.
#[derive(Debug)]
enum Engine {
    /// The session, and the names of the input and the output in use.
    Onnx(Mutex<Session>, String, String),
    /// `forward` takes `[batch, ..sample]` and gives `[batch, ..outputs]`.
    TorchScript(Mutex<CModule>),
}

impl FileModel {
    /// Opens an ONNX file; names the input and the output in use where there are others.
    pub(super) fn open_onnx(
        file: &Path,
        options: &OpenOptions,
        sample_shape: &[usize],
    ) -> Result<(Self, [Option<String>; 2])> {
        let runtime = OnnxRuntime::load(None)?;
        let threads = match options.threads {
            0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            threads => threads,
        };
        let session = runtime.session(threads);
        let session = session.and_then(|mut session| session.commit_from_file(file));
        let session = session.map_err(|error| unusable(file, "ONNX Runtime", &error))?;
        let (inputs, outputs) = (session.inputs(), session.outputs());
        let (input, axes) = choose(file, "input", inputs, options.input.as_deref())?;
        let (output, _) = choose(file, "output", outputs, options.output.as_deref())?;
        let chosen = [(inputs, &input), (outputs, &output)];
        let chosen = chosen.map(|(all, name)| (all.len() > 1).then(|| name.clone()));
        let (&length, sample_axes) = axes.split_first().unwrap_or((&1, &[]));
        let fitting = fit(sample_axes, sample_shape);
        // A model without a batch axis has the sample's axes only.
        let is_unbatched = fitting.is_none() && fit(&axes, sample_shape).is_some();
        ensure!(length < 0, fixed_batch(file, if is_unbatched { 1 } else { length }));
        let Some(input_shape) = fitting else {
            return Err(wrong_shape(file, &describe(sample_axes), sample_shape));
        };
        let lengths = options.lengths.clone();
        let engine = Engine::Onnx(Mutex::new(session), input, output);
        Ok((Self::open(file, engine, input_shape, lengths)?, chosen))
    }

    /// A graph in memory, which has an input and an output by these names.
    pub(super) fn of_graph(
        onnx: &[u8],
        [input, output]: [&str; 2],
        input_shape: &[usize],
    ) -> Result<Self> {
        let file = Path::new("the network's graph");
        let session = OnnxRuntime::load(None)?.session(1);
        let session = session.and_then(|mut session| session.commit_from_memory(onnx));
        let session = session.map_err(|error| unusable(file, "ONNX Runtime", &error))?;
        let has_lengths = session.inputs().iter().any(|input| input.name() == LENGTHS);
        let engine = Engine::Onnx(Mutex::new(session), input.to_owned(), output.to_owned());
        Self::open(file, engine, input_shape.to_vec(), has_lengths.then(|| LENGTHS.to_owned()))
    }

    pub(super) fn open_script(file: &Path, sample_shape: &[usize]) -> Result<Self> {
        let mut module = CModule::load(file).map_err(|error| unusable(file, "libtorch", &error))?;
        module.set_eval();
        Self::open(file, Engine::TorchScript(Mutex::new(module)), sample_shape.to_vec(), None)
    }

    /// Asks the model about one sample, whose answer tells the shape of outputs.
    fn open(
        file: &Path,
        engine: Engine,
        input_shape: Vec<usize>,
        lengths: Option<String>,
    ) -> Result<Self> {
        let sample = vec![0.0; input_shape.iter().product()];
        let mut model = Self {
            file: file.to_path_buf(),
            engine,
            input_shape,
            output_shape: Vec::new(),
            is_of_sequences: false,
            lengths,
        };
        model.output_shape = model.run(&sample, 1, &model.input_shape)?.0;
        Ok(model)
    }

    /// Keeps gradients from a module's parameters; they still flow to its input.
    pub(super) fn freeze(&self) -> Result<()> {
        if let Engine::TorchScript(module) = &self.engine {
            let parameters = module.lock().named_parameters();
            for (_, parameter) in parameters.map_err(|error| self.failed(&error))? {
                let _ = parameter.set_requires_grad(false);
            }
        }
        Ok(())
    }

    /// The shape of a sample's output, and the outputs of all `count` samples.
    fn run(
        &self,
        samples: &[f32],
        count: usize,
        shape: &[usize],
    ) -> Result<(Vec<usize>, Vec<f32>)> {
        let (got, values) = match &self.engine {
            Engine::Onnx(session, input, output) => {
                let dims: Vec<usize> = [&[count], shape].concat();
                let lengths =
                    self.lengths.as_ref().map(|name| (name.clone(), self.lengths_of(samples)));
                let mut session = session.lock();
                let answer = TensorRef::from_array_view((dims, samples)).and_then(|samples| {
                    let mut inputs = ort::inputs![input.as_str() => samples];
                    if let Some((name, lengths)) = lengths {
                        let dims = [count, lengths.len() / count.max(1)];
                        inputs.push((name.into(), OrtTensor::from_array((dims, lengths))?.into()));
                    }
                    let answer = session.run(inputs)?;
                    let (got, values) = answer[output.as_str()].try_extract_tensor::<f32>()?;
                    Ok((got.to_vec(), values.to_vec()))
                });
                answer.map_err(|error| self.failed(&error))?
            }
            Engine::TorchScript(module) => {
                let input = batch(samples, shape);
                let answer = no_grad(|| module.lock().forward_ts(&[input])).and_then(|output| {
                    let flat = output.f_to_kind(Kind::Float)?.f_reshape([-1])?;
                    Ok((output.size(), Vec::<f32>::try_from(flat)?))
                });
                answer.map_err(|error| self.failed(&error))?
            }
        };
        let shape = got.iter().skip(1).map(|&axis| axis.unsigned_abs() as usize);
        let is_whole = got.first() == Some(&(count as i64)) && !values.is_empty();
        ensure!(is_whole, self.unexpected(&got, count));
        Ok((shape.collect(), values))
    }

    fn unexpected(&self, shape: &impl std::fmt::Debug, count: usize) -> TrainError {
        let problem = format!(
            "gave outputs of shape {shape:?} for {count} samples, expected one row for each, of \
                one shape {:?}",
            self.output_shape
        );
        TrainError::input(&self.file, problem)
    }

    fn failed(&self, error: &impl std::fmt::Display) -> TrainError {
        let text = error.to_string();
        // Of a module, after the trace of where in the script it was.
        let cause = text.lines().find(|line| line.starts_with("RuntimeError: "));
        let reason = cause.map_or_else(|| first_line(error), |cause| cause.trim().to_owned());
        let shape = &self.input_shape;
        let problem = format!("the model failed on samples of shape {shape:?}: {reason}");
        TrainError::input(&self.file, problem)
    }
}

impl Differentiable for FileModel {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let Engine::TorchScript(module) = &self.engine else {
            return Err(no_gradient(&self.file, "it is ONNX"));
        };
        // The module lies where its file has it: in the processor's memory.
        let output = module.lock().forward_ts(&[input.to_device(Device::Cpu)]);
        let output = output.and_then(|output| {
            output.f_to_kind(Kind::Float)?.f_reshape([-1, self.outputs() as i64])
        });
        output.map_err(|error| self.failed(&error))
    }
}

impl DeployedModel for FileModel {
    fn input_shape(&self) -> &[usize] {
        &self.input_shape
    }

    fn output_shape(&self) -> &[usize] {
        &self.output_shape
    }

    fn infer(&self, samples: &[f32]) -> Result<Vec<f32>> {
        if self.is_of_sequences {
            return self.infer_sequences(samples);
        }
        let sample_len: usize = self.input_shape.iter().product();
        let mut outputs = Vec::with_capacity(samples.len() / sample_len * self.outputs());
        for chunk in samples.chunks(BATCH * sample_len) {
            let count = chunk.len() / sample_len;
            let (shape, values) = self.run(chunk, count, &self.input_shape)?;
            ensure!(values.len() == count * self.outputs(), self.unexpected(&shape, count));
            outputs.extend(values);
        }
        Ok(outputs)
    }
}

/// A model whose weights stay as they are, and whose outputs' gradients go on to its input.
///
/// A learned code is trained through it. libtorch does that for TorchScript modules and for this
/// trainer's own networks, ONNX Runtime for none.
pub trait Differentiable: std::fmt::Debug {
    /// Raw outputs `[batch, outputs]` of `input`, `[batch, ..sample shape]`.
    fn forward(&self, input: &Tensor) -> Result<Tensor>;
}

impl Differentiable for Network {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        Ok(Self::forward(self, input))
    }
}

/// `deployed` as gradients can flow through it: its TorchScript module, or the network that this
/// trainer made its ONNX file of, if the weights lie beside it. `samples` are a few whole samples,
/// on which the two are compared.
pub fn differentiable(deployed: &Deployed, samples: &[f32]) -> Result<Rc<dyn Differentiable>> {
    let file = &deployed.file;
    if file.extension().is_none_or(|extension| extension != "onnx") {
        let module = FileModel::open_script(file, deployed.model.input_shape())?;
        module.freeze()?;
        return Ok(Rc::new(module));
    }
    match own_network(deployed, samples) {
        Ok(Some(network)) => Ok(Rc::new(network)),
        Ok(None) => Err(no_gradient(file, "it was not made by this trainer")),
        Err(error) => Err(no_gradient(file, &first_line(&error))),
    }
}

/// The network that this trainer made the ONNX file of, if it did and the weights lie beside it.
/// `samples` are a few whole samples, on which the two are compared.
pub fn own_network(deployed: &Deployed, samples: &[f32]) -> Result<Option<Network>> {
    let (file, model) = (&deployed.file, &deployed.model);
    let weights = file.with_file_name(crate::entry::WEIGHTS);
    let spec = deployed.network.clone().or_else(|| {
        let entry = entry::read_entry(file.parent()?.parent()?).ok()?;
        entry::network_of(&entry)
    });
    let Some(spec) = spec.filter(|_| weights.is_file()) else { return Ok(None) };
    let spec = spec.parse::<NetworkSpec>()?;
    let network = Network::load(&spec, model.input_shape(), model.outputs(), &weights)?;
    let (own, answers) = (network.infer(samples), model.infer(samples)?);
    let mut pairs = own.iter().zip(&answers);
    let is_close =
        |(own, answer): (&f32, &f32)| (own - answer).abs() <= TOLERANCE * (1.0 + answer.abs());
    let problem = format!("{} holds other weights than its graph", weights.display());
    ensure!(own.len() == answers.len() && pairs.all(is_close), TrainError::Input(problem));
    Ok(Some(network))
}

fn no_gradient(path: &Path, reason: &str) -> TrainError {
    let problem = format!(
        "{reason}, and gradients cannot flow through ONNX Runtime, as a learned code needs; give \
            the model as TorchScript (.pt), or use another encoder"
    );
    TrainError::input(path, problem)
}

/// The tensor of one `side`, input or output, to use, with its axes.
fn choose(
    file: &Path,
    side: &str,
    outlets: &[Outlet],
    wanted: Option<&str>,
) -> Result<(String, Vec<i64>)> {
    let names: Vec<&str> = outlets.iter().map(Outlet::name).collect();
    let (count, names) = (names.len(), names.join(", "));
    let outlet = match wanted {
        Some(wanted) => outlets.iter().find(|outlet| outlet.name() == wanted),
        None => outlets.first().filter(|_| count == 1),
    };
    let Some(outlet) = outlet else {
        let problem = match wanted {
            Some(wanted) => format!("has no {side} `{wanted}`; --{side} can be: {names}"),
            None => format!("has {count} {side}s: {names}; name one with --{side}"),
        };
        return Err(TrainError::input(file, problem));
    };
    let name = outlet.name();
    match outlet.dtype() {
        ValueType::Tensor { ty: TensorElementType::Float32, shape, .. } => {
            Ok((name.to_owned(), shape.to_vec()))
        }
        other => {
            let problem = format!("its {side} `{name}` is of type {other}");
            let fix = "only 32-bit floats can be coded, export it with them";
            Err(TrainError::input(file, format!("{problem}; {fix}")))
        }
    }
}

/// The shape of samples of shape `data` for a model that wants `model` (-1 for a free axis).
///
/// Axes of length 1 move no value in memory, and neither does a flat view, so `[28, 28]`, `[1, 28,
/// 28]`, `[28, 28, 1]` and `[784]` are the same samples.
fn fit(model: &[i64], data: &[usize]) -> Option<Vec<usize>> {
    let length: usize = data.iter().product();
    let fixed = model.iter().map(|&axis| usize::try_from(axis).ok());
    if let Some(shape) = fixed.collect::<Option<Vec<usize>>>() {
        let long = |shape: &[usize]| -> Vec<usize> {
            shape.iter().copied().filter(|&axis| axis != 1).collect()
        };
        let is_flat = shape == [length] || data == [shape.iter().product::<usize>()];
        return (long(&shape) == long(data) || is_flat).then_some(shape);
    }
    let like = |data: &[usize]| {
        let is_same = |(&axis, &own): (&i64, &usize)| axis < 0 || usize::try_from(axis) == Ok(own);
        let fits = model.len() == data.len() && model.iter().zip(data).all(is_same);
        fits.then(|| data.to_vec())
    };
    like(data)
        .or_else(|| like(&[&[1], data].concat()))
        .or_else(|| like(data.strip_prefix(&[1])?))
        .or_else(|| like(&data.iter().copied().filter(|&axis| axis != 1).collect::<Vec<_>>()))
        .or_else(|| like(&[length]))
}

fn describe(axes: &[i64]) -> String {
    // Free axes are -1.
    format!("{axes:?}").replace("-1", "?")
}

fn unusable(path: &Path, runtime: &str, error: &impl std::fmt::Display) -> TrainError {
    let problem = format!("{runtime} cannot use it: {}", first_line(error));
    TrainError::input(path, problem + "; export the model again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_that_hold_the_same_samples_fit_and_others_do_not() {
        let image = [1, 28, 28];
        let fitting = [
            (vec![28, 28], &image[..], vec![28, 28]),
            (vec![28, 28, 1], &image, vec![28, 28, 1]),
            (vec![784], &image, vec![784]),
            (vec![1, -1, -1], &image, vec![1, 28, 28]),
            (vec![-1, -1], &image, vec![28, 28]),
            (vec![1, -1, -1], &[28, 28], vec![1, 28, 28]),
            (vec![-1], &image, vec![784]),
        ];
        for (model, data, shape) in fitting {
            assert_eq!(fit(&model, data), Some(shape), "{model:?}");
        }
        for model in [&[3, 28, 28][..], &[28, 29], &[3, -1, -1]] {
            assert_eq!(fit(model, &image), None, "{model:?}");
        }
        assert_eq!(fit(&[28, 3, 32], &[3, 28, 32]), None);
    }
}
