//! The layers that networks are made of, run by libtorch.

use tch::{Kind, Tensor, TrainableCModule};

/// Weight of a batch's moments in the running ones, as PyTorch has it.
const MOMENTUM: f64 = 0.1;
/// Added to variances.
pub(super) const EPSILON: f64 = 1e-5;

#[derive(Debug)]
pub(super) enum Layer {
    /// Weights `[out, in, kernel, kernel]`; zeros are padded.
    Conv {
        weights: Tensor,
        /// None before a batch norm, which has its own.
        bias: Option<Tensor>,
        stride: usize,
        padding: usize,
        dilation: usize,
    },
    /// Over the channels of images; the running moments are those of inference.
    BatchNorm(BatchNorm),
    /// Weights `[out, in]`.
    Linear {
        weights: Tensor,
        bias: Tensor,
    },
    Relu,
    /// 2 x 2.
    MaxPool,
    /// `[batch, channels, height, width]` to `[batch, channels, 1, 1]`.
    GlobalAveragePool,
    Flatten,
    /// The sum of what two branches make of the same input; an empty branch hands it on.
    Residual {
        main: Vec<Layer>,
        shortcut: Vec<Layer>,
    },
    /// `[batch, channels, height, width]` to a grid's cells, `[batch x cells, channels, height /
    /// rows, width / columns]`.
    SplitCells {
        rows: usize,
        columns: usize,
    },
    /// `[batch x count, outputs]` to `[batch, outputs]`.
    SumCells {
        count: usize,
    },
    /// The user's module, which was seen to take the samples.
    Script(TrainableCModule),
}

/// Batch normalisation (Ioffe and Szegedy 2015); each `[channels]`.
#[derive(Debug)]
pub(super) struct BatchNorm {
    pub(super) scale: Tensor,
    pub(super) bias: Tensor,
    pub(super) mean: Tensor,
    pub(super) variance: Tensor,
}

/// Hands `input` through `layers`. In training, batch norms use the batch's moments and update
/// the running ones.
pub(super) fn run(layers: &[Layer], input: &Tensor, train: bool) -> Tensor {
    layers.iter().fold(input.shallow_clone(), |value, layer| {
        layer.run(&value, train)
    })
}

impl Layer {
    fn run(&self, value: &Tensor, train: bool) -> Tensor {
        match self {
            Self::Conv {
                weights,
                bias,
                stride,
                padding,
                dilation,
            } => {
                let [stride, padding, dilation] =
                    [stride, padding, dilation].map(|&pixels| [pixels as i64; 2]);
                value.conv2d(weights, bias.as_ref(), stride, padding, dilation, 1)
            }
            Self::BatchNorm(BatchNorm {
                scale,
                bias,
                mean,
                variance,
            }) => value.batch_norm(
                Some(scale),
                Some(bias),
                Some(mean),
                Some(variance),
                train,
                MOMENTUM,
                EPSILON,
                false,
            ),
            Self::Linear { weights, bias } => value.linear(weights, Some(bias)),
            Self::Relu => value.relu(),
            Self::MaxPool => value.max_pool2d([2, 2], [2, 2], [0, 0], [1, 1], false),
            Self::GlobalAveragePool => value.adaptive_avg_pool2d([1, 1]),
            Self::Flatten => value.flatten(1, -1),
            Self::Residual { main, shortcut } => {
                run(main, value, train) + run(shortcut, value, train)
            }
            Self::SplitCells { rows, columns } => split_cells(value, *rows as i64, *columns as i64),
            Self::SumCells { count } => {
                let outputs = value.size().last().copied().unwrap_or_default();
                let cells = value.view([-1, *count as i64, outputs]);
                cells.sum_dim_intlist([1i64].as_slice(), false, Kind::Float)
            }
            // Like libtorch's own operators, which all panic on a tensor that does not fit.
            #[expect(
                clippy::panic,
                reason = "the module has answered for this shape when it was loaded"
            )]
            Self::Script(module) => match module.forward_ts(&[value]) {
                Ok(output) => output,
                Err(error) => panic!("the TorchScript module failed: {error}"),
            },
        }
    }
}

fn split_cells(images: &Tensor, rows: i64, columns: i64) -> Tensor {
    let (_, channels, height, width) = images.size4().unwrap_or_default();
    let (cell_height, cell_width) = (height / rows, width / columns);
    // The batch is -1 and not a number: a traced network then takes any.
    images
        .view([-1, channels, rows, cell_height, columns, cell_width])
        .permute([0, 2, 4, 1, 3, 5])
        .reshape([-1, channels, cell_height, cell_width])
}
