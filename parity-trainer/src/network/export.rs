//! Writes a network as ONNX.

use parapet_onnx::{Conv, GraphBuilder};
use tch::Tensor;

use super::{Layer, Network, NetworkError};

/// Name of an exported model's input.
pub const INPUT: &str = "input";
/// Name of an exported model's output.
pub const OUTPUT: &str = "output";

impl Network {
    /// The network as an ONNX file: input `input`, output `output` (raw outputs), any batch.
    ///
    /// # Errors
    /// If libtorch does not hand the weights over.
    pub fn to_onnx(&self) -> Result<Vec<u8>, NetworkError> {
        let mut graph = GraphBuilder::new(INPUT, &self.input_shape);
        for layer in &self.layers {
            graph = match layer {
                Layer::Conv { weights, bias } => {
                    let kernel = weights.size().last().map_or(0, |&side| side as usize);
                    let (weights, bias) = (values(weights)?, values(bias)?);
                    graph.conv(Conv { weights: &weights, bias: &bias, kernel, stride: 1, padding: 0 })
                }
                Layer::Linear { weights, bias } => graph.gemm(&values(weights)?, &values(bias)?),
                Layer::Relu => graph.relu(),
                Layer::MaxPool => graph.max_pool(2),
                Layer::Flatten => graph.flatten(),
                Layer::SplitCells { rows, columns } => graph.split_cells(*rows, *columns),
                Layer::SumCells { count } => graph.sum_cells(*count),
            };
        }
        Ok(graph.finish(OUTPUT)?)
    }
}

fn values(tensor: &Tensor) -> Result<Vec<f32>, NetworkError> {
    Ok(Vec::<f32>::try_from(tensor.detach().contiguous().view([-1]))?)
}
