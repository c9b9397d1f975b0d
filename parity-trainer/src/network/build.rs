//! Fresh layers for an architecture.

use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use tch::{Tensor, nn};

use super::{Layer, NetworkError, NetworkSpec};

/// The layers of `spec` for samples of `shape`; their weights are variables under `root`.
pub(super) fn layers(
    spec: &NetworkSpec,
    shape: &[usize],
    outputs: usize,
    root: nn::Path<'_>,
    rng: &mut ChaCha8Rng,
) -> Result<Vec<Layer>, NetworkError> {
    let mut maker = LayerMaker { root, rng, layers: Vec::new() };
    maker.network(spec, shape, outputs)?;
    Ok(maker.layers)
}

struct LayerMaker<'a> {
    root: nn::Path<'a>,
    rng: &'a mut ChaCha8Rng,
    layers: Vec<Layer>,
}

impl LayerMaker<'_> {
    fn network(&mut self, spec: &NetworkSpec, shape: &[usize], outputs: usize) -> Result<(), NetworkError> {
        match spec {
            NetworkSpec::Mlp { widths } => {
                let mut inputs = spec.check_mlp_input(shape)?;
                self.layers.push(Layer::Flatten);
                for &width in widths.iter().skip(1) {
                    self.linear(inputs, width);
                    self.layers.push(Layer::Relu);
                    inputs = width;
                }
                self.linear(inputs, outputs);
            }
            NetworkSpec::LeNet { width, kernel } => {
                let [mut channels, mut height, mut columns] = spec.check_lenet_input(shape)?;
                let shrunk = |side: usize| (side + 1 - kernel) / 2;
                for out in [*width, 2 * width] {
                    self.conv(channels, out, *kernel);
                    self.layers.extend([Layer::Relu, Layer::MaxPool]);
                    (channels, height, columns) = (out, shrunk(height), shrunk(columns));
                }
                self.layers.push(Layer::Flatten);
                self.linear(channels * height * columns, spec.lenet_hidden());
                self.layers.push(Layer::Relu);
                self.linear(spec.lenet_hidden(), outputs);
            }
            NetworkSpec::Cells { rows, columns, inner } => {
                let cell = spec.check_cells_input(shape)?;
                self.layers.push(Layer::SplitCells { rows: *rows, columns: *columns });
                self.network(inner, &cell, outputs)?;
                self.layers.push(Layer::SumCells { count: rows * columns });
            }
        }
        Ok(())
    }

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
        let values: Vec<f32> = (0..outputs * fan_in)
            .map(|_| {
                let draw: f32 = StandardNormal.sample(&mut *self.rng);
                deviation * draw
            })
            .collect();
        let dims: Vec<i64> = dims.iter().map(|&dim| dim as i64).collect();
        let path = self.root.sub(format!("{kind}{}", self.layers.len()));
        let weights = path.add("weight", Tensor::from_slice(&values).view(dims.as_slice()), true);
        let bias = path.add("bias", Tensor::from_slice(&vec![0.0f32; outputs]), true);
        (weights, bias)
    }
}
