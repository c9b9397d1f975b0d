//! Fresh layers for an architecture.

use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use tch::{Tensor, nn};

use super::layer::{BatchNorm, Layer};
use super::{NetworkError, NetworkSpec, script};

/// Channels of VGG-11's convolutions (Simonyan and Zisserman 2015, table 1, A), in units of the
/// first one's; a pooling stands after each group.
const VGG11: [&[usize]; 5] = [&[1], &[2], &[4, 4], &[8, 8], &[8, 8]];

/// Dilations of a dilated network's 3 x 3 convolutions (Kosaian et al., arXiv 1806.01259, section
/// 3: after Yu and Koltun 2016).
const DILATIONS: [usize; 6] = [1, 1, 2, 4, 8, 1];

/// The layers of `spec` for samples of `shape`; their weights are variables under `root`.
pub(super) fn layers(
    spec: &NetworkSpec,
    shape: &[usize],
    outputs: usize,
    root: nn::Path<'_>,
    rng: &mut ChaCha8Rng,
) -> Result<Vec<Layer>, NetworkError> {
    let mut maker = LayerMaker {
        root,
        rng,
        layers: Vec::new(),
        made: 0,
    };
    maker.network(spec, shape, outputs)?;
    Ok(maker.layers)
}

/// The window of a convolution without stride.
#[derive(Debug, Clone, Copy)]
struct Window {
    kernel: usize,
    padding: usize,
    dilation: usize,
}

impl Window {
    const fn of(kernel: usize) -> Self {
        Self {
            kernel,
            padding: 0,
            dilation: 1,
        }
    }
}

struct LayerMaker<'a> {
    root: nn::Path<'a>,
    rng: &'a mut ChaCha8Rng,
    /// Of the network, or of the branch that is being made.
    layers: Vec<Layer>,
    /// Layers made so far, branches' included: the variables are named by it.
    made: usize,
}

impl<'a> LayerMaker<'a> {
    fn network(
        &mut self,
        spec: &NetworkSpec,
        shape: &[usize],
        outputs: usize,
    ) -> Result<(), NetworkError> {
        match spec {
            NetworkSpec::Mlp { widths } => {
                let mut inputs = spec.check_mlp_input(shape)?;
                self.push(Layer::Flatten);
                for &width in widths.iter().skip(1) {
                    self.linear(inputs, width);
                    self.push(Layer::Relu);
                    inputs = width;
                }
                self.linear(inputs, outputs);
            }
            NetworkSpec::LeNet { width, kernel } => {
                let [mut channels, mut height, mut columns] = spec.check_lenet_input(shape)?;
                let shrunk = |side: usize| (side + 1 - kernel) / 2;
                for out in [*width, 2 * width] {
                    self.conv(channels, out, Window::of(*kernel));
                    self.push(Layer::Relu);
                    self.push(Layer::MaxPool);
                    (channels, height, columns) = (out, shrunk(height), shrunk(columns));
                }
                self.push(Layer::Flatten);
                self.linear(channels * height * columns, spec.lenet_hidden());
                self.push(Layer::Relu);
                self.linear(spec.lenet_hidden(), outputs);
            }
            NetworkSpec::ResNet { depth, width } => {
                let [channels, ..] = spec.check_image_input(shape)?;
                let features = self.resnet(channels, *width, depth.blocks());
                self.classifier(features, outputs);
            }
            NetworkSpec::Vgg11 { width } => {
                let features = self.vgg11(spec.check_image_input(shape)?, *width);
                self.classifier(features, outputs);
            }
            NetworkSpec::Dilated { channels } => {
                let [inputs, height, width] = spec.check_image_input(shape)?;
                let planes = spec.check_image_output(outputs, height * width)?;
                self.dilated(inputs, *channels, planes);
            }
            NetworkSpec::Cells {
                rows,
                columns,
                inner,
            } => {
                let cell = spec.check_cells_input(shape)?;
                self.push(Layer::SplitCells {
                    rows: *rows,
                    columns: *columns,
                });
                self.network(inner, &cell, outputs)?;
                self.push(Layer::SumCells {
                    count: rows * columns,
                });
            }
            NetworkSpec::Script { path } => {
                let module = script::load(path, shape, outputs, self.path("script"))?;
                self.push(Layer::Script(module));
            }
        }
        Ok(())
    }

    /// Convolutions of growing dilation that keep the image's size, and one that mixes channels.
    fn dilated(&mut self, inputs: usize, channels: usize, planes: usize) {
        let mut before = inputs;
        for dilation in DILATIONS {
            let window = Window {
                kernel: 3,
                padding: dilation,
                dilation,
            };
            self.conv(before, channels, window);
            self.push(Layer::Relu);
            before = channels;
        }
        self.conv(before, planes, Window::of(1));
        self.push(Layer::Flatten);
    }

    /// A 3 x 3 convolution, then stages of residual blocks; each stage but the first halves the
    /// image and doubles the channels. Gives the last stage's channels.
    fn resnet(&mut self, channels: usize, width: usize, stages: &[usize]) -> usize {
        self.conv_norm(channels, width, 3, 1, 1.0);
        self.push(Layer::Relu);
        let mut inputs = width;
        for (stage, &blocks) in stages.iter().enumerate() {
            let outputs = width << stage;
            for block in 0..blocks {
                let stride = if stage > 0 && block == 0 { 2 } else { 1 };
                self.residual_block(inputs, outputs, stride);
                inputs = outputs;
            }
        }
        inputs
    }

    /// He et al. 2015 (Deep Residual Learning), figure 2; the shortcut is a 1 x 1 convolution where
    /// shapes differ (their option B). The main branch's last scale begins at zero, so that a fresh
    /// block hands its input on (Goyal et al. 2017, section 5.1).
    fn residual_block(&mut self, inputs: usize, outputs: usize, stride: usize) {
        let before = std::mem::take(&mut self.layers);
        self.conv_norm(inputs, outputs, 3, stride, 1.0);
        self.push(Layer::Relu);
        self.conv_norm(outputs, outputs, 3, 1, 0.0);
        let main = std::mem::take(&mut self.layers);
        if (inputs, stride) != (outputs, 1) {
            self.conv_norm(inputs, outputs, 1, stride, 1.0);
        }
        let shortcut = std::mem::replace(&mut self.layers, before);
        self.push(Layer::Residual { main, shortcut });
        self.push(Layer::Relu);
    }

    /// Five groups of convolutions, pooled while the image has two pixels along each axis. Gives
    /// the last one's channels.
    fn vgg11(
        &mut self,
        [mut channels, mut height, mut columns]: [usize; 3],
        width: usize,
    ) -> usize {
        for group in VGG11 {
            for &factor in group {
                self.conv_norm(channels, factor * width, 3, 1, 1.0);
                self.push(Layer::Relu);
                channels = factor * width;
            }
            if height.min(columns) > 1 {
                self.push(Layer::MaxPool);
                (height, columns) = (height / 2, columns / 2);
            }
        }
        channels
    }

    fn classifier(&mut self, features: usize, outputs: usize) {
        self.push(Layer::GlobalAveragePool);
        self.push(Layer::Flatten);
        self.linear(features, outputs);
    }

    fn conv(&mut self, inputs: usize, outputs: usize, window: Window) {
        let Window {
            kernel,
            padding,
            dilation,
        } = window;
        let path = self.path("conv");
        let weights = self.weights(&path, &[outputs, inputs, kernel, kernel]);
        let bias = Some(constant(&path, "bias", outputs, 0.0, true));
        self.push(Layer::Conv {
            weights,
            bias,
            stride: 1,
            padding,
            dilation,
        });
    }

    /// A convolution that keeps the image's size, divided by `stride`, and a batch norm whose scale
    /// begins at `scale`.
    fn conv_norm(
        &mut self,
        inputs: usize,
        outputs: usize,
        kernel: usize,
        stride: usize,
        scale: f32,
    ) {
        let path = self.path("conv");
        let weights = self.weights(&path, &[outputs, inputs, kernel, kernel]);
        self.push(Layer::Conv {
            weights,
            bias: None,
            stride,
            padding: kernel / 2,
            dilation: 1,
        });
        let path = self.path("norm");
        self.push(Layer::BatchNorm(BatchNorm {
            scale: constant(&path, "weight", outputs, scale, true),
            bias: constant(&path, "bias", outputs, 0.0, true),
            mean: constant(&path, "running_mean", outputs, 0.0, false),
            variance: constant(&path, "running_var", outputs, 1.0, false),
        }));
    }

    fn linear(&mut self, inputs: usize, outputs: usize) {
        let path = self.path("linear");
        let weights = self.weights(&path, &[outputs, inputs]);
        let bias = constant(&path, "bias", outputs, 0.0, true);
        self.push(Layer::Linear { weights, bias });
    }

    fn push(&mut self, layer: Layer) {
        self.layers.push(layer);
        self.made += 1;
    }

    fn path(&self, kind: &str) -> nn::Path<'a> {
        self.root.sub(format!("{kind}{}", self.made))
    }

    /// He et al. 2015: normal with variance 2 / fan-in. Drawn here and not by libtorch, whose
    /// generator is global to the process: a seed gives the same network whatever else runs.
    fn weights(&mut self, path: &nn::Path<'_>, dims: &[usize]) -> Tensor {
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
        path.add(
            "weight",
            Tensor::from_slice(&values)
                .view(dims.as_slice())
                .to_device(path.device()),
            true,
        )
    }
}

/// A vector variable of equal values.
fn constant(path: &nn::Path<'_>, name: &str, length: usize, value: f32, trainable: bool) -> Tensor {
    path.add(
        name,
        Tensor::from_slice(&vec![value; length]).to_device(path.device()),
        trainable,
    )
}
