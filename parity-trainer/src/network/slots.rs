//! A network that answers k samples in one query, each in a slot of its own.

use parapet_onnx::GraphBuilder;

use super::{INPUT, LENGTHS, Network, OUTPUT};
use crate::Result;
use crate::deployed::DeployedModel;

/// A parity model with slots: input `[k, ..sample]`, output `[k, ..output]`.
///
/// One network sees each sample alone, so a slot's output depends on its own sample only. The
/// samples lie one after another in memory, so libtorch runs the network as it is.
#[derive(Debug)]
pub struct SlotNetwork {
    /// For one sample.
    pub network: Network,
    /// True if the softmax of what the network gives is the output.
    has_softmax: bool,
    input_shape: Vec<usize>,
    output_shape: Vec<usize>,
}

impl SlotNetwork {
    /// `network` for k samples a query, for each of which it gives an output of `output_shape`.
    pub fn new(network: Network, k: usize, output_shape: &[usize], has_softmax: bool) -> Self {
        Self {
            has_softmax,
            input_shape: [&[k], network.input_shape.as_slice()].concat(),
            output_shape: [&[k], output_shape].concat(),
            network,
        }
    }

    /// The network as an ONNX file, as [`Network::to_onnx`] has it.
    pub fn to_onnx(&self) -> Result<Vec<u8>> {
        self.to_onnx_as(&self.input_shape, &self.output_shape)
    }

    /// The same for inputs of this shape: a sample's, or that of some samples on a new axis.
    pub(crate) fn to_onnx_as(&self, input: &[usize], output: &[usize]) -> Result<Vec<u8>> {
        let mut graph = GraphBuilder::new(INPUT, input);
        let is_of_sequences = self.network.spec.is_of_sequences();
        if is_of_sequences {
            graph = graph.sequences();
        }
        let values = |shape: &[usize]| shape.iter().product::<usize>();
        if values(input) > values(&self.network.input_shape) {
            graph = graph.unstack();
            if is_of_sequences {
                graph = graph.lengths(LENGTHS, input[0]);
            }
        } else if is_of_sequences {
            graph = graph.sequence_image();
        }
        graph = self.network.export(graph)?;
        if self.has_softmax {
            graph = graph.softmax();
        }
        Ok(graph.reshape(output).finish(OUTPUT)?)
    }
}

pub(crate) fn softmax(scores: &mut [f32], width: usize) {
    for row in scores.chunks_exact_mut(width) {
        let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        row.iter_mut().for_each(|score| *score = (*score - most).exp());
        let sum: f32 = row.iter().sum();
        row.iter_mut().for_each(|score| *score /= sum);
    }
}

impl DeployedModel for SlotNetwork {
    fn input_shape(&self) -> &[usize] {
        &self.input_shape
    }

    fn output_shape(&self) -> &[usize] {
        &self.output_shape
    }

    fn infer(&self, samples: &[f32]) -> Result<Vec<f32>> {
        let mut outputs = self.network.infer(samples);
        if self.has_softmax {
            softmax(&mut outputs, self.network.outputs);
        }
        Ok(outputs)
    }
}
