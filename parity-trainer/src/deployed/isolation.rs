//! Isolation of slots, shown on an entry's graph.

use super::DeployedModel;
use super::model::FileModel;
use crate::Result;
use crate::network::{INPUT, OUTPUT};

/// Parity queries that are tried.
const TRIALS: usize = 8;

/// Returns true if a slot's output keeps all of its bits while the others' samples are exchanged
/// for other ones, or hold no numbers: by ONNX Runtime, as in serving.
///
/// `samples` are whole samples, more than the k of a parity query's `parity_shape` `[k, ..sample]`.
pub fn is_isolated(onnx: &[u8], parity_shape: &[usize], samples: &[f32]) -> Result<bool> {
    let model = FileModel::of_graph(onnx, [INPUT, OUTPUT], parity_shape)?;
    let len = parity_shape.iter().skip(1).product();
    let samples: Vec<&[f32]> = samples.chunks_exact(len).collect();
    let (k, nothing) = (parity_shape[0], vec![f32::NAN; len]);
    for at in 0..TRIALS {
        let sample = |index: usize| samples[index % samples.len()];
        let queries: Vec<&[f32]> = (0..k).map(|slot| sample(at + slot)).collect();
        let expected = model.infer(&queries.concat())?;
        for slot in 0..k {
            for others in [sample(at + k), &nothing] {
                let mut disturbed = vec![others; k];
                disturbed[slot] = queries[slot];
                let found = model.infer(&disturbed.concat())?;
                let bits = |outputs: &[f32]| -> Vec<u32> {
                    let own = outputs.len() / k * slot..outputs.len() / k * (slot + 1);
                    outputs[own].iter().map(|output| output.to_bits()).collect()
                };
                if bits(&found) != bits(&expected) {
                    return Ok(false);
                }
            }
        }
    }
    Ok(true)
}
