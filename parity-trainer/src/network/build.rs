//! Fresh layers for an architecture, after a check that it fits the samples.

use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use tch::{Tensor, nn};

use super::NetworkSpec;
use super::layer::Layer;
use super::spec::Family;
use crate::{Result, TrainError};

/// Channels of VGG-11's convolutions (Simonyan and Zisserman 2015, table 1, A), in units of the
/// first one's; a pooling stands after each group.
const VGG11: [&[usize]; 5] = [&[1], &[2], &[4, 4], &[8, 8], &[8, 8]];
/// Dilations of a dilated network's 3 x 3 convolutions (Kosaian et al., arXiv 1806.01259, section
/// 3: after Yu and Koltun 2016).
const DILATIONS: [usize; 6] = [1, 1, 2, 4, 8, 1];
/// Hidden units of a LeNet for each channel of the first convolution.
const LENET_HIDDEN: usize = 8;

pub(super) fn layers(
    spec: &NetworkSpec,
    shape: &[usize],
    outputs: usize,
    root: nn::Path<'_>,
    rng: &mut ChaCha8Rng,
) -> Result<Vec<Layer>> {
    let mut maker = LayerMaker { root, rng, layers: Vec::new(), made: 0 };
    maker.network(spec, shape, outputs)?;
    Ok(maker.layers)
}

/// The number of the layer that a variable belongs to, by the variable's name.
pub(super) fn layer(variable: &str) -> Option<usize> {
    let (layer, _) = variable.rsplit_once('.')?;
    layer.trim_start_matches(|letter: char| !letter.is_ascii_digit()).parse().ok()
}

fn unfit(spec: &NetworkSpec, wanted: &str, shape: &[usize], fix: &str) -> TrainError {
    TrainError::Input(format!(
        "network `{spec}` takes samples of {wanted}, the data's have shape {shape:?}; {fix}"
    ))
}

fn image_shape(spec: &NetworkSpec, family: Family, shape: &[usize]) -> Result<[usize; 3]> {
    // Two rounds of a convolution without padding and a halving must leave a pixel.
    let (least, limit) = match family {
        Family::LeNet(kernel) => {
            let least = 2 * (2 + kernel - 1) + kernel - 1;
            (least, format!(", height and width at least {least}"))
        }
        _ => (1, String::new()),
    };
    let fits = !matches!(family, Family::Sequence(_)) || matches!(shape, [1, ..]);
    let fix = "use a network for images, such as `resnet8`";
    ensure!(fits, unfit(spec, "[1, steps, features]", shape, fix));
    match *shape {
        [channels, height, width] if channels > 0 && height.min(width) >= least => {
            Ok([channels, height, width])
        }
        _ => {
            let length: usize = shape.iter().product();
            let fix = format!("use an MLP such as `mlp:{length},200,100`");
            Err(unfit(spec, &format!("[channels, height, width]{limit}"), shape, &fix))
        }
    }
}

/// Channels of images of the input's size that `outputs` values make.
fn planes(spec: &NetworkSpec, image: [usize; 3], outputs: usize) -> Result<usize> {
    let plane = image[1] * image[2];
    if outputs > 0 && outputs.is_multiple_of(plane) {
        return Ok(outputs / plane);
    }
    Err(TrainError::Input(format!(
        "network `{spec}` gives images of {plane} pixels a channel, not {outputs} values; it is \
            for learned encoders"
    )))
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
    fn network(&mut self, spec: &NetworkSpec, shape: &[usize], outputs: usize) -> Result<()> {
        match *spec {
            NetworkSpec::Mlp { ref widths } => {
                let (length, inputs) = (shape.iter().product::<usize>(), widths[0]);
                let fix = format!("write `mlp:{length},...`");
                ensure!(inputs == length, unfit(spec, &format!("{inputs} values"), shape, &fix));
                self.push(Layer::Flatten);
                for pair in widths.windows(2) {
                    self.linear(pair[0], pair[1]);
                    self.push(Layer::Relu);
                }
                self.linear(widths[widths.len() - 1], outputs);
            }
            NetworkSpec::Convolutional { family, width } => {
                let image = image_shape(spec, family, shape)?;
                match family {
                    Family::LeNet(kernel) => self.lenet(image, width, kernel, outputs),
                    Family::ResNet(stages) | Family::Sequence(stages) => {
                        self.resnet(image[0], width, stages, outputs);
                    }
                    Family::Vgg11 => self.vgg11(image, width, outputs),
                    Family::Dilated => {
                        self.dilated(image[0], width, planes(spec, image, outputs)?);
                    }
                }
            }
        }
        Ok(())
    }

    fn lenet(&mut self, image: [usize; 3], width: usize, kernel: usize, outputs: usize) {
        let [mut channels, mut height, mut columns] = image;
        for out in [width, 2 * width] {
            self.conv([out, channels, kernel], 0, 1);
            self.push(Layer::Relu);
            self.push(Layer::MaxPool);
            [height, columns] = [height, columns].map(|side| (side + 1 - kernel) / 2);
            channels = out;
        }
        self.push(Layer::Flatten);
        self.linear(channels * height * columns, LENET_HIDDEN * width);
        self.push(Layer::Relu);
        self.linear(LENET_HIDDEN * width, outputs);
    }

    /// Convolutions of growing dilation that keep the image's size, and one that mixes channels.
    fn dilated(&mut self, mut before: usize, channels: usize, planes: usize) {
        for dilation in DILATIONS {
            self.conv([channels, before, 3], dilation, dilation);
            self.push(Layer::Relu);
            before = channels;
        }
        self.conv([planes, before, 1], 0, 1);
        self.push(Layer::Flatten);
    }

    /// A 3 x 3 convolution, then stages of residual blocks; each stage but the first halves the
    /// image and doubles the channels.
    fn resnet(&mut self, channels: usize, width: usize, stages: &[usize], outputs: usize) {
        self.conv_norm([width, channels, 3], 1, 1.0);
        self.push(Layer::Relu);
        let mut inputs = width;
        for (stage, &blocks) in stages.iter().enumerate() {
            for block in 0..blocks {
                let stride = if stage > 0 && block == 0 { 2 } else { 1 };
                self.residual_block(inputs, width << stage, stride);
                inputs = width << stage;
            }
        }
        self.classifier(inputs, outputs);
    }

    /// He et al. 2015 (Deep Residual Learning), figure 2; the shortcut is a 1 x 1 convolution where
    /// shapes differ (their option B). The main branch's last scale begins at zero, so that a fresh
    /// block hands its input on (Goyal et al. 2017, section 5.1).
    fn residual_block(&mut self, inputs: usize, outputs: usize, stride: usize) {
        let before = std::mem::take(&mut self.layers);
        self.conv_norm([outputs, inputs, 3], stride, 1.0);
        self.push(Layer::Relu);
        self.conv_norm([outputs, outputs, 3], 1, 0.0);
        let main = std::mem::take(&mut self.layers);
        if (inputs, stride) != (outputs, 1) {
            self.conv_norm([outputs, inputs, 1], stride, 1.0);
        }
        let shortcut = std::mem::replace(&mut self.layers, before);
        self.push(Layer::Residual(main, shortcut));
        self.push(Layer::Relu);
    }

    /// Five groups of convolutions, pooled while the image has two pixels along each axis.
    fn vgg11(&mut self, image: [usize; 3], width: usize, outputs: usize) {
        let [mut channels, height, columns] = image;
        let mut side = height.min(columns);
        for group in VGG11 {
            for factor in group {
                self.conv_norm([factor * width, channels, 3], 1, 1.0);
                self.push(Layer::Relu);
                channels = factor * width;
            }
            if side > 1 {
                self.push(Layer::MaxPool);
                side /= 2;
            }
        }
        self.classifier(channels, outputs);
    }

    fn classifier(&mut self, features: usize, outputs: usize) {
        self.push(Layer::GlobalAveragePool);
        self.push(Layer::Flatten);
        self.linear(features, outputs);
    }

    /// A convolution with a bias and without stride, for `[outputs, inputs, kernel]`.
    fn conv(&mut self, dims: [usize; 3], padding: usize, dilation: usize) {
        let [outputs, inputs, kernel] = dims;
        let path = self.path("conv");
        let weights = self.weights(&path, &[outputs, inputs, kernel, kernel]);
        let bias = constant(&path, "bias", outputs, 0.0, true);
        self.push(Layer::Conv(weights, Some(bias), [1, padding, dilation]));
    }

    /// A convolution that keeps the image's size, divided by `stride`, and a batch norm whose scale
    /// begins at `scale`, for `[outputs, inputs, kernel]`.
    fn conv_norm(&mut self, dims: [usize; 3], stride: usize, scale: f32) {
        let [outputs, inputs, kernel] = dims;
        let path = self.path("conv");
        let weights = self.weights(&path, &[outputs, inputs, kernel, kernel]);
        self.push(Layer::Conv(weights, None, [stride, kernel / 2, 1]));
        let path = self.path("norm");
        self.push(Layer::BatchNorm([
            constant(&path, "weight", outputs, scale, true),
            constant(&path, "bias", outputs, 0.0, true),
            constant(&path, "running_mean", outputs, 0.0, false),
            constant(&path, "running_var", outputs, 1.0, false),
        ]));
    }

    fn linear(&mut self, inputs: usize, outputs: usize) {
        let path = self.path("linear");
        let weights = self.weights(&path, &[outputs, inputs]);
        self.push(Layer::Linear(weights, constant(&path, "bias", outputs, 0.0, true)));
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
        let fan_in: usize = dims[1..].iter().product();
        let deviation = (2.0 / fan_in as f32).sqrt();
        let mut value = || {
            let draw: f32 = StandardNormal.sample(&mut *self.rng);
            deviation * draw
        };
        let values: Vec<f32> = (0..dims[0] * fan_in).map(|_| value()).collect();
        let dims: Vec<i64> = dims.iter().map(|&dim| dim as i64).collect();
        let weights = Tensor::from_slice(&values).view(dims.as_slice());
        path.add("weight", weights.to_device(path.device()), true)
    }
}

fn constant(path: &nn::Path<'_>, name: &str, length: usize, value: f32, trainable: bool) -> Tensor {
    path.add(name, Tensor::from_slice(&vec![value; length]).to_device(path.device()), trainable)
}
