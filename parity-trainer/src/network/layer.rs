//! The layers that networks are made of: run by libtorch, and written as ONNX.

use std::collections::HashMap;

use parapet_onnx::GraphBuilder;
use tch::{Kind, Tensor, no_grad};

use super::values;
use crate::Result;

/// Weight of a batch's moments in the running ones, as PyTorch has it.
const MOMENTUM: f64 = 0.1;
const EPSILON: f64 = 1e-5;

#[derive(Debug)]
pub(super) enum Layer {
    /// Weights `[out, in, kernel, kernel]`, a bias unless a batch norm follows, which has its own;
    /// stride, padding with zeros, and dilation.
    Conv(Tensor, Option<Tensor>, [usize; 3]),
    /// Batch normalisation over the channels of images (Ioffe and Szegedy 2015): scale, bias, and
    /// the running mean and variance, which are those of inference.
    BatchNorm([Tensor; 4]),
    /// Weights `[out, in]`, and the bias.
    Linear(Tensor, Tensor),
    Relu,
    /// 2 x 2.
    MaxPool,
    /// `[batch, channels, height, width]` to `[batch, channels, 1, 1]`.
    GlobalAveragePool,
    Flatten,
    /// The sum of what two branches make of the same input; an empty branch hands it on.
    Residual(Vec<Layer>, Vec<Layer>),
}

/// Layers by their place: the number of halvings by residual blocks before, and that among the
/// layers since. After global pooling the latter is as in no network before it.
fn places(layers: &[Layer]) -> HashMap<(usize, usize), &Layer> {
    let (mut place, mut places) = ((0, 0), HashMap::new());
    for layer in layers {
        match layer {
            Layer::Residual(_, shortcut) if !shortcut.is_empty() => place = (place.0 + 1, 0),
            Layer::GlobalAveragePool => place.1 = usize::MAX / 2,
            _ => place.1 += 1,
        }
        places.insert(place, layer);
    }
    places
}

/// Copies the weights of layers in the same place, as far as both are wide: those of their first
/// channels, or of their `last`.
pub(super) fn copy(from: &[Layer], to: &[Layer], last: bool) {
    let from = places(from);
    for (place, own) in places(to) {
        let Some(other) = from.get(&place) else { continue };
        let (own, other) = (own.tensors(), other.tensors());
        let are_like = own.len() == other.len();
        for (own, other) in own.into_iter().zip(other).filter(|_| are_like) {
            let (mut own, mut other) = (own.shallow_clone(), other.shallow_clone());
            for axis in 0..own.dim() {
                let sizes = [own.size()[axis], other.size()[axis]];
                let both = sizes[0].min(sizes[1]);
                let [to, from] = sizes.map(|size| if last { size - both } else { 0 });
                own = own.narrow(axis as i64, to, both);
                other = other.narrow(axis as i64, from, both);
            }
            no_grad(|| own.copy_(&other));
        }
    }
}

/// Hands `input` through `layers`. In training, batch norms use the batch's moments and update
/// the running ones. `mask`, `[batch, 1, steps, 1]`, is 1 for the steps of sequences and 0 behind.
pub(super) fn run(layers: &[Layer], input: &Tensor, train: bool, mask: Option<&Tensor>) -> Tensor {
    let mut value = input.shallow_clone();
    for layer in layers {
        value = layer.run(&value, train, mask);
    }
    value
}

/// The mask where steps have been halved since the input, as `value`'s have.
fn mask_at(mask: &Tensor, value: &Tensor) -> Tensor {
    let mut mask = mask.shallow_clone();
    while mask.size()[2] > value.size()[2] {
        mask = mask.slice(2, None, None, 2);
    }
    mask
}

/// Weights `[out, channels, ..]` and the bias of a layer that does to an input what these do to the
/// normalised one; mean and deviation have an entry for each channel.
pub(super) fn fold(weights: &Tensor, bias: &Tensor, moments: [&Tensor; 2]) -> (Tensor, Tensor) {
    no_grad(|| {
        let [mean, deviation] = moments.map(|values| values.reshape([1, -1, 1]));
        let folded = weights.reshape([weights.size()[0], mean.numel() as i64, -1]) / deviation;
        let shift = (&folded * mean).sum_dim_intlist([1i64, 2].as_slice(), false, Kind::Float);
        (folded.reshape(weights.size()), bias - shift)
    })
}

/// Hands one sample through `layers`; returns what it became, and the multiplications of
/// convolutions and fully connected layers on the way.
pub(super) fn multiply_adds(layers: &[Layer], input: &Tensor) -> (Tensor, u64) {
    let (mut value, mut count) = (input.shallow_clone(), 0);
    for layer in layers {
        let output = layer.run(&value, false, None);
        count += match layer {
            Layer::Conv(weights, ..) | Layer::Linear(weights, _) => {
                let channels = weights.size()[0].max(1) as usize;
                (output.numel() * weights.numel() / channels) as u64
            }
            Layer::Residual(main, shortcut) => {
                multiply_adds(main, &value).1 + multiply_adds(shortcut, &value).1
            }
            _ => 0,
        };
        value = output;
    }
    (value, count)
}

impl Layer {
    pub(super) fn trained(&self) -> (usize, usize) {
        let all = self.tensors().into_iter().filter(|tensor| tensor.requires_grad());
        all.fold((0, 0), |(tensors, numbers), one| (tensors + 1, numbers + one.numel()))
    }

    fn tensors(&self) -> Vec<&Tensor> {
        match self {
            Self::Conv(weights, bias, _) => std::iter::once(weights).chain(bias).collect(),
            Self::BatchNorm(norm) => norm.iter().collect(),
            Self::Linear(weights, bias) => vec![weights, bias],
            Self::Residual(main, shortcut) => {
                main.iter().chain(shortcut).flat_map(Self::tensors).collect()
            }
            _ => Vec::new(),
        }
    }

    fn run(&self, value: &Tensor, train: bool, mask: Option<&Tensor>) -> Tensor {
        match self {
            Self::Conv(weights, bias, window) => {
                let masked = mask.map(|mask| value * mask_at(mask, value));
                let value = masked.as_ref().unwrap_or(value);
                let [stride, padding, dilation] = window.map(|pixels| [pixels as i64; 2]);
                value.conv2d(weights, bias.as_ref(), stride, padding, dilation, 1)
            }
            Self::BatchNorm(norm) => {
                let [scale, bias, mean, variance] = norm.each_ref().map(Some);
                value.batch_norm(scale, bias, mean, variance, train, MOMENTUM, EPSILON, false)
            }
            Self::Linear(weights, bias) => value.linear(weights, Some(bias)),
            Self::Relu => value.relu(),
            Self::MaxPool => value.max_pool2d([2, 2], [2, 2], [0, 0], [1, 1], false),
            Self::GlobalAveragePool => match mask.map(|mask| mask_at(mask, value)) {
                Some(mask) => {
                    let share = mask.mean_dim([2, 3].as_slice(), true, Kind::Float);
                    (value * mask).adaptive_avg_pool2d([1, 1]) / share
                }
                None => value.adaptive_avg_pool2d([1, 1]),
            },
            Self::Flatten => value.flatten(1, -1),
            Self::Residual(main, shortcut) => {
                run(main, value, train, mask) + run(shortcut, value, train, mask)
            }
        }
    }
}

pub(super) fn export(mut graph: GraphBuilder, layers: &[Layer]) -> Result<GraphBuilder> {
    for layer in layers {
        graph = match layer {
            Layer::Conv(weights, bias, [stride, padding, dilation]) => {
                let size = weights.size();
                graph.masked().conv(parapet_onnx::Conv {
                    weights: &values(weights)?,
                    bias: &bias.as_ref().map_or_else(|| Ok(vec![0.0; size[0] as usize]), values)?,
                    kernel: size[3] as usize,
                    stride: *stride,
                    padding: *padding,
                    dilation: *dilation,
                })
            }
            Layer::BatchNorm([scale, bias, mean, variance]) => {
                graph.batch_norm(parapet_onnx::BatchNorm {
                    scale: &values(scale)?,
                    bias: &values(bias)?,
                    mean: &values(mean)?,
                    variance: &values(variance)?,
                    epsilon: EPSILON as f32,
                })
            }
            Layer::Linear(weights, bias) => graph.gemm(&values(weights)?, &values(bias)?),
            Layer::Relu => graph.relu(),
            Layer::MaxPool => graph.max_pool(2),
            Layer::GlobalAveragePool => graph.global_average_pool(),
            Layer::Flatten if graph.shape().len() == 1 => graph,
            Layer::Flatten => graph.flatten(),
            Layer::Residual(main, shortcut) => {
                graph.residual(|graph| export(graph, main), |graph| export(graph, shortcut))?
            }
        };
    }
    Ok(graph)
}
