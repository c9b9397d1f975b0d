//! Networks: a list of layers that is run by libtorch and written as ONNX, so that the two cannot drift apart.

mod build;
mod export;
mod spec;

use std::path::Path;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tch::{Device, Kind, Tensor, nn, no_grad};

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
    /// `[batch, channels, height, width]` to a grid's cells, `[batch x cells, channels, height / rows, width / columns]`.
    SplitCells {
        rows: usize,
        columns: usize,
    },
    /// `[batch x count, outputs]` to `[batch, outputs]`.
    SumCells {
        count: usize,
    },
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
        let layers = build::layers(spec, input_shape, outputs, variables.root(), rng)?;
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
            network: spec.to_string(),
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
        let terms = match self.layers.last() {
            Some(Layer::SumCells { count }) => *count as f64,
            _ => 1.0,
        };
        let last = self.layers.iter_mut().rev().find_map(|layer| match layer {
            Layer::Linear { weights, bias } => Some((weights, bias)),
            _ => None,
        });
        if let Some((weights, bias)) = last {
            no_grad(|| {
                let _ = weights.g_mul_scalar_(deviation / terms.sqrt());
                let _ = bias.fill_(mean / terms);
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
            Layer::SplitCells { rows, columns } => split_cells(&value, *rows as i64, *columns as i64),
            Layer::SumCells { count } => {
                let outputs = value.size().last().copied().unwrap_or_default();
                value.view([-1, *count as i64, outputs]).sum_dim_intlist(
                    [1i64].as_slice(),
                    false,
                    Kind::Float,
                )
            }
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

fn split_cells(images: &Tensor, rows: i64, columns: i64) -> Tensor {
    let (batch, channels, height, width) = images.size4().unwrap_or_default();
    let (cell_height, cell_width) = (height / rows, width / columns);
    images
        .view([batch, channels, rows, cell_height, columns, cell_width])
        .permute([0, 2, 4, 1, 3, 5])
        .reshape([batch * rows * columns, channels, cell_height, cell_width])
}

/// A tensor `[batch, ..shape]` of whole samples.
pub(crate) fn batch(samples: &[f32], shape: &[usize]) -> Tensor {
    let dims: Vec<i64> = std::iter::once(-1).chain(shape.iter().map(|&dim| dim as i64)).collect();
    Tensor::from_slice(samples).view(dims.as_slice())
}

/// A generator for one purpose of a run: streams of one seed never overlap.
pub(crate) fn stream(seed: u64, purpose: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(purpose);
    rng
}
