//! Networks: a list of layers that is run by libtorch and written as ONNX, so that the two cannot drift apart.

mod export;
mod spec;

use std::path::Path;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use tch::{Device, Tensor, nn, no_grad};

pub use export::{INPUT, OUTPUT};
pub use spec::{NetworkError, NetworkSpec};

/// Samples that go through a network at once when only its outputs are wanted.
const INFERENCE_BATCH: usize = 500;

/// A network with its weights.
#[derive(Debug)]
pub struct Network {
    spec: NetworkSpec,
    input_shape: Vec<usize>,
    outputs: usize,
    variables: nn::VarStore,
    layers: Vec<Layer>,
}

#[derive(Debug)]
enum Layer {
    /// Stride 1, no padding; weights `[out, in, kernel, kernel]`.
    Conv {
        weights: Tensor,
        bias: Tensor,
    },
    /// Weights `[out, in]`.
    Linear {
        weights: Tensor,
        bias: Tensor,
    },
    Relu,
    /// 2 x 2.
    MaxPool,
    Flatten,
}

impl Network {
    /// A fresh network for samples of `input_shape`, with He initialisation drawn from `rng`.
    ///
    /// # Errors
    /// If the network cannot take that shape.
    pub fn new(
        spec: &NetworkSpec,
        input_shape: &[usize],
        outputs: usize,
        rng: &mut ChaCha8Rng,
    ) -> Result<Self, NetworkError> {
        let variables = nn::VarStore::new(Device::Cpu);
        let mut maker = LayerMaker { root: variables.root(), rng, layers: Vec::new() };
        match spec {
            NetworkSpec::Mlp { widths } => {
                let mut inputs = spec.check_mlp_input(input_shape)?;
                maker.layers.push(Layer::Flatten);
                for &width in widths.iter().skip(1) {
                    maker.linear(inputs, width);
                    maker.layers.push(Layer::Relu);
                    inputs = width;
                }
                maker.linear(inputs, outputs);
            }
            NetworkSpec::LeNet { width, kernel } => {
                let [mut channels, mut height, mut columns] = spec.check_lenet_input(input_shape)?;
                let shrunk = |side: usize| (side + 1 - kernel) / 2;
                for out in [*width, 2 * width] {
                    maker.conv(channels, out, *kernel);
                    maker.layers.extend([Layer::Relu, Layer::MaxPool]);
                    (channels, height, columns) = (out, shrunk(height), shrunk(columns));
                }
                maker.layers.push(Layer::Flatten);
                maker.linear(channels * height * columns, spec.lenet_hidden());
                maker.layers.push(Layer::Relu);
                maker.linear(spec.lenet_hidden(), outputs);
            }
        }
        let layers = maker.layers;
        Ok(Self { spec: spec.clone(), input_shape: input_shape.to_vec(), outputs, variables, layers })
    }

    /// A network with the weights of the safetensors file `path`.
    ///
    /// # Errors
    /// If the file cannot be read or holds another network's weights.
    pub fn load(
        spec: &NetworkSpec,
        input_shape: &[usize],
        outputs: usize,
        path: &Path,
    ) -> Result<Self, NetworkError> {
        let mut any = ChaCha8Rng::seed_from_u64(0);
        let mut network = Self::new(spec, input_shape, outputs, &mut any)?;
        network.variables.load(path).map_err(|source| NetworkError::Load {
            path: path.to_path_buf(),
            network: spec.clone(),
            source,
        })?;
        network.variables.freeze();
        Ok(network)
    }

    /// Writes the weights as a safetensors file.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), NetworkError> {
        self.variables.save(path).map_err(|source| NetworkError::Save { path: path.to_path_buf(), source })
    }

    /// What the network is.
    pub fn spec(&self) -> &NetworkSpec {
        &self.spec
    }

    /// Shape of one sample.
    pub fn input_shape(&self) -> &[usize] {
        &self.input_shape
    }

    /// Length of one output.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Ends training: the weights take no more gradients.
    pub(crate) fn freeze(&mut self) {
        self.variables.freeze();
    }

    /// Makes the fresh network's outputs spread by about `deviation` around `mean`: outputs of a deployed model may be
    /// badly scaled, and the optimiser would spend its first steps on that.
    pub(crate) fn scale_output(&mut self, deviation: f64, mean: f64) {
        if let Some(Layer::Linear { weights, bias }) = self.layers.last_mut() {
            no_grad(|| {
                let _ = weights.g_mul_scalar_(deviation);
                let _ = bias.fill_(mean);
            });
        }
    }

    pub(crate) fn variables(&self) -> &nn::VarStore {
        &self.variables
    }

    /// Raw outputs `[batch, outputs]` of `input`, `[batch, ..sample shape]`.
    pub fn forward(&self, input: &Tensor) -> Tensor {
        self.layers.iter().fold(input.shallow_clone(), |value, layer| match layer {
            Layer::Conv { weights, bias } => value.conv2d(weights, Some(bias), [1, 1], [0, 0], [1, 1], 1),
            Layer::Linear { weights, bias } => value.linear(weights, Some(bias)),
            Layer::Relu => value.relu(),
            Layer::MaxPool => value.max_pool2d([2, 2], [2, 2], [0, 0], [1, 1], false),
            Layer::Flatten => value.flatten(1, -1),
        })
    }

    /// Raw outputs of whole samples, row-major in and out.
    pub fn infer(&self, samples: &[f32]) -> Vec<f32> {
        let sample_len = self.input_shape.iter().product::<usize>();
        let mut outputs = Vec::with_capacity(samples.len() / sample_len * self.outputs);
        for chunk in samples.chunks(INFERENCE_BATCH * sample_len) {
            let output = no_grad(|| self.forward(&batch(chunk, &self.input_shape)));
            let filled = outputs.len();
            let fresh = chunk.len() / sample_len * self.outputs;
            outputs.resize(filled + fresh, 0.0);
            output.contiguous().view([-1]).copy_data(&mut outputs[filled..], fresh);
        }
        outputs
    }
}

/// A tensor `[batch, ..shape]` of whole samples.
pub(crate) fn batch(samples: &[f32], shape: &[usize]) -> Tensor {
    let dims: Vec<i64> = std::iter::once(-1).chain(shape.iter().map(|&dim| dim as i64)).collect();
    Tensor::from_slice(samples).view(dims.as_slice())
}

struct LayerMaker<'a> {
    root: nn::Path<'a>,
    rng: &'a mut ChaCha8Rng,
    layers: Vec<Layer>,
}

impl LayerMaker<'_> {
    fn conv(&mut self, inputs: usize, outputs: usize, kernel: usize) {
        let (weights, bias) = self.weights("conv", &[outputs, inputs, kernel, kernel]);
        self.layers.push(Layer::Conv { weights, bias });
    }

    fn linear(&mut self, inputs: usize, outputs: usize) {
        let (weights, bias) = self.weights("linear", &[outputs, inputs]);
        self.layers.push(Layer::Linear { weights, bias });
    }

    /// He et al. 2015: normal with variance 2 / fan-in; biases zero. Drawn here and not by libtorch, whose generator is
    /// global to the process: a seed gives the same network whatever else runs.
    fn weights(&mut self, kind: &str, dims: &[usize]) -> (Tensor, Tensor) {
        let outputs = dims.first().copied().unwrap_or_default();
        let fan_in = dims.iter().skip(1).product::<usize>();
        let deviation = (2.0 / fan_in as f32).sqrt();
        let draw = |rng: &mut ChaCha8Rng| -> f32 { StandardNormal.sample(rng) };
        let values: Vec<f32> = (0..outputs * fan_in).map(|_| deviation * draw(self.rng)).collect();
        let dims: Vec<i64> = dims.iter().map(|&dim| dim as i64).collect();
        let path = self.root.sub(format!("{kind}{}", self.layers.len()));
        let weights = path.add("weight", Tensor::from_slice(&values).view(dims.as_slice()), true);
        let bias = path.add("bias", Tensor::from_slice(&vec![0.0f32; outputs]), true);
        (weights, bias)
    }
}

/// A generator for one purpose of a run: streams of one seed never overlap.
pub(crate) fn stream(seed: u64, purpose: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(purpose);
    rng
}
