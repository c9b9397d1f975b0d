//! Networks: a list of layers, run by libtorch and written as ONNX: the two cannot drift apart.

mod build;
mod layer;
mod normalisation;
mod segments;
mod slots;
mod spec;

use std::path::Path;
use std::sync::OnceLock;

use parapet_onnx::GraphBuilder;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tch::{Device, Tensor, nn, no_grad};

use crate::device::device;
use crate::{Result, TrainError};

use layer::Layer;
pub use normalisation::Normalisation;
pub(crate) use segments::{LinearPass, Pass};
pub use slots::SlotNetwork;
pub(crate) use slots::softmax;
pub use spec::{Family, NetworkSpec};

pub const INPUT: &str = "input";
pub const OUTPUT: &str = "output";
/// Lengths of a parity query's sequences.
pub const LENGTHS: &str = "lengths";
/// Samples that go through a network at once when only its outputs are wanted.
const INFERENCE_BATCH: usize = 500;
/// Names of the normalisation among the variables begin so.
const NORMALISATION: &str = "normalisation";

#[derive(Debug)]
pub struct Network {
    spec: NetworkSpec,
    pub(crate) input_shape: Vec<usize>,
    pub(crate) outputs: usize,
    variables: nn::VarStore,
    /// The normalisation as variables that are not trained: saved and loaded with the weights.
    mean: Tensor,
    deviation: Tensor,
    is_normalised: bool,
    layers: Vec<Layer>,
    /// Layers before which the network is cut into segments; see [`Self::cut`].
    cuts: OnceLock<Vec<usize>>,
    /// Layers whose gradients are told as factors; see [`Self::factor`].
    factored: OnceLock<Vec<usize>>,
}

impl Network {
    /// A fresh network for samples of `input_shape`, with He initialisation drawn from `rng`.
    pub fn new(
        spec: &NetworkSpec,
        input_shape: &[usize],
        outputs: usize,
        rng: &mut ChaCha8Rng,
    ) -> Result<Self> {
        let variables = nn::VarStore::new(device());
        let layers = build::layers(spec, input_shape, outputs, variables.root(), rng)?;
        let mut dims = vec![1; input_shape.len().max(1)];
        dims[0] = input_shape.first().map_or(0, |&channels| channels as i64);
        let normalisation = variables.root().sub(NORMALISATION);
        Ok(Self {
            spec: spec.clone(),
            input_shape: input_shape.to_vec(),
            outputs,
            mean: normalisation.zeros_no_train("mean", &dims),
            deviation: normalisation.ones_no_train("deviation", &dims),
            is_normalised: false,
            variables,
            layers,
            cuts: OnceLock::new(),
            factored: OnceLock::new(),
        })
    }

    pub fn load(
        spec: &NetworkSpec,
        input_shape: &[usize],
        outputs: usize,
        path: &Path,
    ) -> Result<Self> {
        let mut network = Self::new(spec, input_shape, outputs, &mut ChaCha8Rng::seed_from_u64(0))?;
        let missing = network.variables.load_partial(path);
        let missing = missing.map_err(|source| network.no_weights(path, &source.to_string()))?;
        if let Some(variable) = missing.into_iter().min() {
            return Err(network.no_weights(path, &format!("{variable} is missing")));
        }
        network.weights_changed()?;
        network.variables.freeze();
        Ok(network)
    }

    fn no_weights(&self, path: &Path, problem: &str) -> TrainError {
        let problem = format!("no weights of a `{}`: {problem}", self.spec);
        TrainError::input(path, problem + "; train the model again")
    }

    /// Writes networks' weights as one safetensors file, names after each network's own word.
    pub fn save_all(networks: &[(&str, &Self)], path: &Path) -> Result<()> {
        Tensor::write_safetensors(&Self::all_variables(networks), path).map_err(|source| {
            let path = path.display();
            TrainError::Failed(format!("{path}: cannot write the weights: {source}"))
        })
    }

    /// All networks' variables by name, each after its network's own word: network by network, and
    /// in the order of the layers, so that those of neighbours lie beside each other.
    pub(crate) fn all_variables(networks: &[(&str, &Self)]) -> Vec<(String, Tensor)> {
        let mut all = Vec::new();
        for (word, network) in networks {
            let mut own = Vec::from_iter(network.variables.variables());
            own.sort_by(|(a, _), (b, _)| (build::layer(a), a).cmp(&(build::layer(b), b)));
            all.extend(own.into_iter().map(|(name, tensor)| (format!("{word}{name}"), tensor)));
        }
        all
    }

    /// The network as an ONNX file: input `input` (values as the data have them: the normalisation
    /// is in the file), output `output` (raw outputs), any batch.
    pub fn to_onnx(&self) -> Result<Vec<u8>> {
        self.to_onnx_as(&[self.outputs])
    }

    /// The same with outputs of `shape`, of as many values.
    pub(crate) fn to_onnx_as(&self, shape: &[usize]) -> Result<Vec<u8>> {
        let mut graph = GraphBuilder::new(INPUT, &self.input_shape);
        if self.spec.is_of_sequences() {
            graph = graph.sequences();
        }
        graph = self.export(graph)?;
        if graph.shape() != shape {
            graph = graph.reshape(shape);
        }
        Ok(graph.finish(OUTPUT)?)
    }

    /// The normalisation becomes part of the first layer's weights where that is exact.
    fn export(&self, mut graph: GraphBuilder) -> Result<GraphBuilder> {
        let normalisation = self.normalisation()?;
        if normalisation.is_identity() {
            return layer::export(graph, &self.layers);
        }
        let fold = |weights, bias| layer::fold(weights, bias, [&self.mean, &self.deviation]);
        let (first, rest) = match self.layers.as_slice() {
            [Layer::Flatten, Layer::Linear(weights, bias), rest @ ..] => {
                let (weights, bias) = fold(weights, bias);
                (vec![Layer::Flatten, Layer::Linear(weights, bias)], rest)
            }
            // Zeros of a padding would have to be normalised, too.
            [Layer::Conv(weights, Some(bias), window @ [_, 0, _]), rest @ ..] => {
                let (weights, bias) = fold(weights, bias);
                (vec![Layer::Conv(weights, Some(bias), *window)], rest)
            }
            layers => {
                graph = graph.normalise(&normalisation.mean, &normalisation.deviation);
                (Vec::new(), layers)
            }
        };
        layer::export(layer::export(graph, &first)?, rest)
    }

    /// Multiply-adds of one sample, in convolutions and fully connected layers.
    pub fn multiply_adds(&self) -> u64 {
        let sample = vec![0.0; self.input_shape.iter().product()];
        let input = self.normalised(&batch(&sample, &self.input_shape));
        no_grad(|| layer::multiply_adds(&self.layers, &input).1)
    }

    /// Makes the network scale what it takes as `samples`, whole ones, ask for.
    pub fn normalise(&mut self, samples: &[f32]) -> Result<()> {
        let Normalisation { mean, deviation } = Normalisation::of(samples, &self.input_shape);
        for (tensor, values) in [(&mut self.mean, &mean), (&mut self.deviation, &deviation)] {
            no_grad(|| tensor.copy_(&Tensor::from_slice(values).view_as(tensor)));
        }
        self.weights_changed()
    }

    pub fn normalisation(&self) -> Result<Normalisation> {
        Ok(Normalisation { mean: values(&self.mean)?, deviation: values(&self.deviation)? })
    }

    fn weights_changed(&mut self) -> Result<()> {
        self.is_normalised = !self.normalisation()?.is_identity();
        Ok(())
    }

    pub fn spec(&self) -> &NetworkSpec {
        &self.spec
    }

    /// Ends training: the weights take no more gradients, and lie in the processor's memory.
    pub(crate) fn frozen(mut self) -> Self {
        self.variables.set_device(Device::Cpu);
        self.variables.freeze();
        self
    }

    /// Takes over the weights of a network of the same kind, as far as both are wide and deep:
    /// those of its first channels, or of its `last`. A channel has the same place in all layers,
    /// so that what is taken over fits together, and a residual block that the other does not have
    /// hands on what it is given.
    pub fn start_from(&mut self, other: &Self, last: bool) {
        layer::copy(&other.layers, &self.layers, last);
    }

    /// Makes the fresh network's outputs spread by about `deviation` around `mean`: outputs of a
    /// deployed model may be badly scaled, and the optimiser would spend its first steps on that.
    pub(crate) fn scale_output(&mut self, deviation: f64, mean: f64) {
        // Its biases are zeros.
        self.fold_output(deviation, mean);
    }

    /// All weights by name, also untrained ones (the normalisation, batch norms' moments).
    pub fn variables(&self) -> &nn::VarStore {
        &self.variables
    }

    /// Makes the outputs `factor * y + shift`, by the weights of the last layer.
    pub(crate) fn fold_output(&mut self, factor: f64, shift: f64) {
        for layer in self.layers.iter_mut().rev() {
            if let Layer::Linear(weights, bias) | Layer::Conv(weights, Some(bias), _) = layer {
                no_grad(|| {
                    let _ = weights.g_mul_scalar_(factor);
                    bias.copy_(&(&*bias * factor + shift));
                });
                return;
            }
        }
    }

    /// Raw outputs `[batch, outputs]` of `input`, `[batch, ..sample shape]`, as in serving.
    pub fn forward(&self, input: &Tensor) -> Tensor {
        self.forward_t(input, false)
    }

    /// Raw outputs `[batch, outputs]` of `input`, `[batch, ..sample shape]`. If `train`, batch
    /// norms use the batch's moments and update the running ones, which serving uses.
    pub fn forward_t(&self, input: &Tensor, train: bool) -> Tensor {
        layer::run(&self.layers, &self.normalised(input), train, self.mask(input).as_ref())
    }

    /// Of a network for sequences: 1 for each step up to the last that is not all zeros, and for
    /// the first.
    fn mask(&self, input: &Tensor) -> Option<Tensor> {
        self.spec.is_of_sequences().then(|| {
            let input = input.to_device(self.variables.device());
            let used = input.abs().amax([1, 3].as_slice(), true).sign();
            let mask = used.flip([2]).cummax(2).0.flip([2]);
            let _ = mask.narrow(2, 0, 1).fill_(1.0);
            mask
        })
    }

    /// The input as the first layer takes it, where the weights are.
    fn normalised(&self, input: &Tensor) -> Tensor {
        let input = input.to_device(self.variables.device());
        if self.is_normalised { (input - &self.mean) / &self.deviation } else { input }
    }

    /// Raw outputs of whole samples, row-major in and out.
    pub fn infer(&self, samples: &[f32]) -> Vec<f32> {
        let sample_len = self.input_shape.iter().product::<usize>();
        let mut outputs = vec![0.0; samples.len() / sample_len * self.outputs];
        let chunks = samples.chunks(INFERENCE_BATCH * sample_len);
        for (chunk, out) in chunks.zip(outputs.chunks_mut(INFERENCE_BATCH * self.outputs)) {
            let output = no_grad(|| self.forward(&batch(chunk, &self.input_shape)));
            output.contiguous().view([-1]).copy_data(out, out.len());
        }
        outputs
    }
}

pub(crate) fn values(tensor: &Tensor) -> Result<Vec<f32>> {
    Ok(Vec::try_from(tensor.detach().contiguous().view([-1]))?)
}

pub(crate) fn batch(samples: &[f32], shape: &[usize]) -> Tensor {
    let mut dims = vec![-1];
    dims.extend(shape.iter().map(|&dim| dim as i64));
    Tensor::from_slice(samples).view(dims.as_slice())
}

/// A generator for one purpose of a run: streams of one seed never overlap.
pub(crate) fn stream(seed: u64, purpose: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(purpose);
    rng
}
