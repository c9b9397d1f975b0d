//! How good a deployed model is, and how good its reconstructions are.

use parapet_decoder::{LinearDecoder, top_class};
use parapet_encoder::{CodeSpec, build_encoder};
use rand::seq::SliceRandom;
use serde::Serialize;

use crate::TrainError;
use crate::data::Samples;
use crate::deployed::DeployedModel;
use crate::network::stream;

/// Accuracies on a test set, parts of 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Evaluation {
    /// Test samples.
    pub samples: usize,
    /// A_a: the deployed model's accuracy.
    pub accuracy_deployed: f64,
    /// A_d: the reconstructions' accuracy.
    pub accuracy_reconstructed: f64,
    /// The part of the reconstructions that name the class the deployed model names.
    pub agreement: f64,
    /// Reconstructions made: every erasure of one query of every group.
    pub reconstructions: usize,
}

/// The part of `samples` whose class `model` names.
///
/// # Errors
/// If the model fails on them.
pub fn accuracy(model: &dyn DeployedModel, samples: &Samples) -> Result<f64, TrainError> {
    let outputs = model.infer(&samples.values)?;
    let right = outputs
        .chunks_exact(model.outputs())
        .zip(&samples.labels)
        .filter(|(output, label)| top_class(output) == Some(usize::from(**label)));
    Ok(right.count() as f64 / samples.len().max(1) as f64)
}

/// Evaluates the parity model of `code`'s row `row` on `samples`: each query of each group is taken away in turn and
/// reconstructed from the others and the parity model's answer (ParM section 5.1).
///
/// Groups are k consecutive samples of a shuffle; `groupings` shuffles are averaged, because which samples meet in a group
/// moves the result of a small test set. Samples left over at the end of a shuffle are not used.
///
/// # Errors
/// If the code does not fit, or there are fewer than k samples.
pub fn evaluate(
    deployed: &dyn DeployedModel,
    parity: &dyn DeployedModel,
    code: &CodeSpec,
    row: usize,
    samples: &Samples,
    groupings: usize,
) -> Result<Evaluation, TrainError> {
    let encoder = build_encoder(code, &samples.shape)?;
    let decoder = LinearDecoder::new(encoder.code().clone(), deployed.outputs())?;
    let (k, r, classes) = (encoder.code().k(), encoder.code().r(), deployed.outputs());
    let groups = samples.len() / k;
    if groups == 0 {
        return Err(TrainError::TooFewSamples { found: samples.len(), k });
    }
    let exact = deployed.infer(&samples.values)?;
    let exact = |index: usize| &exact[index * classes..(index + 1) * classes];
    let sample_len = samples.sample_len();
    let mut rng = stream(0, 0);
    let mut order: Vec<usize> = (0..samples.len()).collect();
    let (mut right, mut agreeing, mut reconstructions) = (0, 0, 0);
    let mut reconstructed = vec![0.0; classes];
    let mut queries = vec![0.0; groups * sample_len];
    for _ in 0..groupings.max(1) {
        order.shuffle(&mut rng);
        for (group, query) in order.chunks_exact(k).zip(queries.chunks_exact_mut(sample_len)) {
            let members: Vec<&[f32]> = group.iter().map(|&index| samples.sample(index)).collect();
            encoder.encode(row, &members, query)?;
        }
        let parity_outputs = parity.infer(&queries)?;
        for (group, parity_output) in order.chunks_exact(k).zip(parity_outputs.chunks_exact(classes)) {
            let mut rows = vec![None; r];
            rows[row] = Some(parity_output);
            for (slot, &index) in group.iter().enumerate() {
                let mut predictions: Vec<_> = group.iter().map(|&index| Some(exact(index))).collect();
                predictions[slot] = None;
                decoder.decode(&predictions, &rows, slot, &mut reconstructed)?;
                let class = top_class(&reconstructed);
                let label = samples.labels.get(index).copied().map(usize::from);
                right += usize::from(class == label);
                agreeing += usize::from(class == top_class(exact(index)));
                reconstructions += 1;
            }
        }
    }
    let part = |count: usize| count as f64 / reconstructions as f64;
    Ok(Evaluation {
        samples: samples.len(),
        accuracy_deployed: accuracy(deployed, samples)?,
        accuracy_reconstructed: part(right),
        agreement: part(agreeing),
        reconstructions,
    })
}
