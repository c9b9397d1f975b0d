//! Writes a network as ONNX.

use parapet_onnx::{BatchNorm, Conv, GraphBuilder};
use tch::Tensor;

use super::layer::{self, EPSILON, Layer};
use super::{Network, NetworkError};

/// Name of an exported model's input.
pub const INPUT: &str = "input";
/// Name of an exported model's output.
pub const OUTPUT: &str = "output";

impl Network {
    /// The network as an ONNX file: input `input` (values as the data have them: the normalisation
    /// is in the file), output `output` (raw outputs), any batch.
    ///
    /// # Errors
    /// If libtorch does not hand the weights over, or the network is a user's TorchScript module
    /// ([`NetworkSpec::exports_onnx`](super::NetworkSpec::exports_onnx) tells beforehand).
    pub fn to_onnx(&self) -> Result<Vec<u8>, NetworkError> {
        if !self.spec.exports_onnx() {
            return Err(NetworkError::NoOnnx {
                network: self.spec.to_string(),
            });
        }
        let mut graph = GraphBuilder::new(INPUT, &self.input_shape);
        let normalisation = self.normalisation()?;
        if !normalisation.is_identity() {
            graph = graph.normalise(normalisation.mean(), normalisation.deviation());
        }
        Ok(append(graph, &self.layers)?.finish(OUTPUT)?)
    }
}

fn append(graph: GraphBuilder, layers: &[Layer]) -> Result<GraphBuilder, NetworkError> {
    layers.iter().try_fold(graph, |graph, layer| {
        Ok(match layer {
            Layer::Conv {
                weights,
                bias,
                stride,
                padding,
                dilation,
            } => {
                let &[outputs, .., kernel] = weights.size().as_slice() else {
                    return Ok(graph);
                };
                let bias = match bias {
                    Some(bias) => values(bias)?,
                    None => vec![0.0; outputs as usize],
                };
                let (weights, kernel) = (values(weights)?, kernel as usize);
                let (stride, padding, dilation) = (*stride, *padding, *dilation);
                graph.conv(Conv {
                    weights: &weights,
                    bias: &bias,
                    kernel,
                    stride,
                    padding,
                    dilation,
                })
            }
            Layer::BatchNorm(layer::BatchNorm {
                scale,
                bias,
                mean,
                variance,
            }) => graph.batch_norm(BatchNorm {
                scale: &values(scale)?,
                bias: &values(bias)?,
                mean: &values(mean)?,
                variance: &values(variance)?,
                epsilon: EPSILON as f32,
            }),
            Layer::Linear { weights, bias } => graph.gemm(&values(weights)?, &values(bias)?),
            Layer::Relu => graph.relu(),
            Layer::MaxPool => graph.max_pool(2),
            Layer::GlobalAveragePool => graph.global_average_pool(),
            Layer::Flatten => graph.flatten(),
            Layer::Residual { main, shortcut } => {
                graph.try_residual(|graph| append(graph, main), |graph| append(graph, shortcut))?
            }
            Layer::SplitCells { rows, columns } => graph.split_cells(*rows, *columns),
            Layer::SumCells { count } => graph.sum_cells(*count),
            Layer::Script(_) => {
                return Err(NetworkError::NoOnnx {
                    network: "script".to_owned(),
                });
            }
        })
    })
}

/// A tensor's elements, row-major.
pub(super) fn values(tensor: &Tensor) -> Result<Vec<f32>, NetworkError> {
    Ok(Vec::<f32>::try_from(
        tensor.detach().contiguous().view([-1]),
    )?)
}
