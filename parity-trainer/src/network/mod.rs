//! Networks: a list of layers that is run by libtorch and written as ONNX, so that the two cannot
//! drift apart.

mod build;
mod error;
mod export;
mod layer;
mod normalisation;
mod script;
mod shapes;
mod spec;
mod start;

use std::path::Path;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tch::{Device, Tensor, nn, no_grad};

use crate::device::device;

pub use error::NetworkError;
pub use export::{INPUT, OUTPUT};
use layer::Layer;
pub use normalisation::Normalisation;
pub use spec::{NetworkSpec, ResNetDepth};

/// Samples that go through a network at once when only its outputs are wanted.
const INFERENCE_BATCH: usize = 500;
/// Names of the normalisation among the variables begin so.
const NORMALISATION: &str = "normalisation";

/// A network with its weights.
#[derive(Debug)]
pub struct Network {
    spec: NetworkSpec,
    input_shape: Vec<usize>,
    outputs: usize,
    variables: nn::VarStore,
    scaling: Scaling,
    layers: Vec<Layer>,
}

/// The normalisation as variables, so that it is saved and loaded with the weights; it
/// is not trained.
#[derive(Debug)]
struct Scaling {
    mean: Tensor,
    deviation: Tensor,
    /// Nothing to do.
    identity: bool,
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
        let variables = nn::VarStore::new(device());
        let layers = build::layers(spec, input_shape, outputs, variables.root(), rng)?;
        let scaling = Scaling::new(input_shape, &variables.root().sub(NORMALISATION));
        let (spec, input_shape) = (spec.clone(), input_shape.to_vec());
        Ok(Self {
            spec,
            input_shape,
            outputs,
            variables,
            scaling,
            layers,
        })
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
        let missing =
            network
                .variables
                .load_partial(path)
                .map_err(|source| NetworkError::Load {
                    path: path.to_path_buf(),
                    network: spec.to_string(),
                    source,
                })?;
        // Weights of a network that was made before there was a normalisation need none.
        if let Some(variable) = missing
            .into_iter()
            .filter(|name| !name.starts_with(NORMALISATION))
            .min()
        {
            return Err(NetworkError::Missing {
                path: path.to_path_buf(),
                network: spec.to_string(),
                variable,
            });
        }
        network.weights_changed()?;
        network.variables.freeze();
        Ok(network)
    }

    /// Writes the weights as a safetensors file.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), NetworkError> {
        self.variables
            .save(path)
            .map_err(|source| NetworkError::Save {
                path: path.to_path_buf(),
                source,
            })
    }

    /// Writes several networks' weights as one safetensors file, the variables' names after each
    /// network's own word.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save_all(networks: &[(&str, &Self)], path: &Path) -> Result<(), NetworkError> {
        let named = networks.iter().flat_map(|(word, network)| {
            let variables = network.variables.variables().into_iter();
            variables.map(move |(name, tensor)| (format!("{word}{name}"), tensor))
        });
        let mut named: Vec<(String, Tensor)> = named.collect();
        named.sort_by(|(a, _), (b, _)| a.cmp(b));
        Tensor::write_safetensors(&named, path).map_err(|source| NetworkError::Save {
            path: path.to_path_buf(),
            source,
        })
    }

    /// Makes the network scale what it takes by `normalisation`, before its first layer.
    ///
    /// # Errors
    /// If `normalisation` is of samples of another shape.
    pub fn normalise(&mut self, normalisation: &Normalisation) -> Result<(), NetworkError> {
        let (found, wanted) = (normalisation.mean().len(), self.scaling.mean.numel());
        if found != wanted {
            return Err(NetworkError::Normalisation {
                network: self.spec.to_string(),
                found,
                wanted,
            });
        }
        self.scaling.set(normalisation);
        Ok(())
    }

    /// Returns the scaling of the network's inputs.
    ///
    /// # Errors
    /// If libtorch does not hand the values over.
    pub fn normalisation(&self) -> Result<Normalisation, NetworkError> {
        let Scaling {
            mean, deviation, ..
        } = &self.scaling;
        Ok(Normalisation::from_parts(
            export::values(mean)?,
            export::values(deviation)?,
        ))
    }

    /// To be called after the contents of [`Network::variables`] were replaced, as by a checkpoint.
    ///
    /// # Errors
    /// If libtorch does not hand the values over.
    pub fn weights_changed(&mut self) -> Result<(), NetworkError> {
        self.scaling.identity = self.normalisation()?.is_identity();
        Ok(())
    }

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

    /// Shape of one sample's output: its only axis.
    pub fn output_shape(&self) -> &[usize] {
        std::slice::from_ref(&self.outputs)
    }

    /// Ends training: the weights take no more gradients, and lie in the processor's memory.
    pub(crate) fn frozen(mut self) -> Self {
        self.variables.set_device(Device::Cpu);
        self.variables.freeze();
        self
    }

    /// Makes the fresh network's outputs spread by about `deviation` around `mean`: outputs of a
    /// deployed model may be badly scaled, and the optimiser would spend its first steps on that.
    pub(crate) fn scale_output(&mut self, deviation: f64, mean: f64) {
        let terms = match self.layers.last() {
            Some(Layer::SumCells { count }) => *count as f64,
            _ => 1.0,
        };
        let last = self.layers.iter_mut().rev().find_map(|layer| match layer {
            Layer::Linear { weights, bias }
            | Layer::Conv {
                weights,
                bias: Some(bias),
                ..
            } => Some((weights, bias)),
            _ => None,
        });
        if let Some((weights, bias)) = last {
            no_grad(|| {
                let _ = weights.g_mul_scalar_(deviation / terms.sqrt());
                let _ = bias.fill_(mean / terms);
            });
        }
    }

    /// All weights by name, those that are not trained (the normalisation, batch norms'
    /// moments) among them.
    pub fn variables(&self) -> &nn::VarStore {
        &self.variables
    }

    /// Raw outputs `[batch, outputs]` of `input`, `[batch, ..sample shape]`, as in serving.
    pub fn forward(&self, input: &Tensor) -> Tensor {
        self.forward_t(input, false)
    }

    /// Raw outputs `[batch, outputs]` of `input`, `[batch, ..sample shape]`. If `train`, batch
    /// norms use the batch's moments and update the running ones, which serving uses.
    pub fn forward_t(&self, input: &Tensor, train: bool) -> Tensor {
        layer::run(&self.layers, &self.scaling.apply(&self.here(input)), train)
    }

    /// The input where the weights are.
    fn here(&self, input: &Tensor) -> Tensor {
        input.to_device(self.variables.device())
    }

    /// The grid of a network that sums over cells: its rows and columns.
    pub fn cells(&self) -> Option<(usize, usize)> {
        match (&self.spec, self.layers.last()) {
            (NetworkSpec::Cells { rows, columns, .. }, Some(Layer::SumCells { .. })) => {
                Some((*rows, *columns))
            }
            _ => None,
        }
    }

    /// Returns the shares of the cells of [`cells`](Self::cells) in the outputs, `[batch, cells,
    /// outputs]`, in training.
    pub(crate) fn forward_cells(&self, input: &Tensor) -> Tensor {
        let (_, layers) = self.layers.split_last().unwrap_or((&Layer::Flatten, &[]));
        let cells = self.cells().map_or(1, |(rows, columns)| rows * columns);
        let outputs = layer::run(layers, &self.scaling.apply(&self.here(input)), true);
        outputs.view([-1, cells as i64, self.outputs as i64])
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
            output
                .contiguous()
                .view([-1])
                .copy_data(&mut outputs[filled..], fresh);
        }
        outputs
    }
}

impl Scaling {
    fn new(shape: &[usize], path: &nn::Path<'_>) -> Self {
        let channels = shape.first().map_or(0, |&channels| channels as i64);
        let dims: Vec<i64> = std::iter::once(channels)
            .chain(shape.iter().skip(1).map(|_| 1))
            .collect();
        let mean = path.zeros_no_train("mean", &dims);
        Self {
            mean,
            deviation: path.ones_no_train("deviation", &dims),
            identity: true,
        }
    }

    fn set(&mut self, normalisation: &Normalisation) {
        no_grad(|| {
            for (tensor, values) in [
                (&mut self.mean, normalisation.mean()),
                (&mut self.deviation, normalisation.deviation()),
            ] {
                tensor.copy_(&Tensor::from_slice(values).view_as(tensor));
            }
        });
        self.identity = normalisation.is_identity();
    }

    fn apply(&self, input: &Tensor) -> Tensor {
        if self.identity {
            input.shallow_clone()
        } else {
            (input - &self.mean) / &self.deviation
        }
    }
}

pub(crate) fn batch(samples: &[f32], shape: &[usize]) -> Tensor {
    let dims: Vec<i64> = std::iter::once(-1)
        .chain(shape.iter().map(|&dim| dim as i64))
        .collect();
    Tensor::from_slice(samples).view(dims.as_slice())
}

/// A generator for one purpose of a run: streams of one seed never overlap.
pub(crate) fn stream(seed: u64, purpose: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(purpose);
    rng
}
