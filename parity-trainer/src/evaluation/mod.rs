//! Accuracy of a deployed model and of its reconstructions (ParM section 5.1).
//!
//! The test set is cut into groups of k; every pattern of missing queries that the parity models at
//! hand can make up for is tried on every group. A_a is the deployed model's accuracy, A_d the
//! reconstructions', and A_o(f) = (1 - f) A_a + f A_d what clients see when a part f of their
//! answers is reconstructed.

mod bootstrap;
mod calibration;
mod figures;
mod judging;
mod markdown;
mod tally;

use parapet_decoder::{ClassAxis, ClassScores, Decoder, build_decoder};
use parapet_encoder::{CodeSpec, Encoder, build_encoder};
use rand::seq::SliceRandom;
use serde::Serialize;

use crate::TrainError;
use crate::data::Samples;
use crate::deployed::DeployedModel;
use crate::network::stream;

pub use bootstrap::Estimate;
pub use calibration::{Calibration, CalibrationBin};
pub use figures::{overall_plot, reliability_plot};
use judging::{Group, Judging, patterns};
pub use markdown::markdown;
use tally::Tally;
pub use tally::{ByClass, ByLosses, BySlot, Overall};

/// Groups that go through the models at once.
const CHUNK: usize = 128;
/// Values of the deployed model's outputs that are kept rather than computed again
/// for each grouping.
const KEPT_VALUES: usize = 1 << 24;

/// The models of a code.
#[derive(Debug, Clone, Copy)]
pub struct CodedModels<'a> {
    pub deployed: &'a dyn DeployedModel,
    /// Parity models, each with its row. Not all rows need be there.
    pub parity: &'a [(usize, &'a dyn DeployedModel)],
    pub code: &'a CodeSpec,
    /// Calibrations of `parity`, in its order: serving uses them if all have one. Else empty.
    pub calibrations: &'a [parapet_decoder::Calibration],
}

#[derive(Debug, Clone, Copy)]
pub struct EvaluationPlan {
    /// Shuffles of the test set into groups, all of which count.
    pub groupings: usize,
    /// Bootstrap resamples for the intervals; 0 for none.
    pub resamples: usize,
    /// Seed of the shuffles and resamples.
    pub seed: u64,
}

/// Everything about a code on a test set; accuracies are parts of 1, and absent for
/// samples without labels.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CodeEvaluation {
    pub samples: usize,
    /// Groups that were made of them; a rest smaller than k is left out.
    pub groups: usize,
    /// A_a: the deployed model's accuracy.
    pub accuracy_deployed: Option<f64>,
    /// A_d and agreement, for each number of missing queries.
    pub by_losses: Vec<ByLosses>,
    /// For each class, one query missing. The classes are the labels, or what the deployed model
    /// says where there are none.
    pub by_class: Vec<ByClass>,
    /// For each slot of a group, one query missing.
    pub by_slot: Vec<BySlot>,
    /// A_o for some parts of reconstructed answers.
    pub overall: Vec<Overall>,
    /// True if the confidence of reconstructions can be believed.
    pub calibration: Calibration,
}

/// The part of `samples` whose class `model` names.
///
/// # Errors
/// If the model fails on them.
pub fn accuracy(model: &dyn DeployedModel, samples: &Samples) -> Result<f64, TrainError> {
    let classes = classes(model, samples, &mut |_, _| {})?;
    let right = classes
        .iter()
        .zip(&samples.labels)
        .filter(|(class, label)| **class == usize::from(**label));
    Ok(right.count() as f64 / samples.len().max(1) as f64)
}

/// Evaluates a code on `samples`. Each pattern of u missing queries is made up for by each choice
/// of u of the parity models. `progress` hears how many groups are done, of how many.
///
/// Memory besides the samples is bounded: outputs of a few hundred samples at a time, and some
/// bytes for each group.
///
/// # Errors
/// If the code does not fit, there are fewer than k samples, or a model fails.
pub fn evaluate(
    models: CodedModels<'_>,
    samples: &Samples,
    plan: EvaluationPlan,
    progress: impl FnMut(usize, usize),
) -> Result<CodeEvaluation, TrainError> {
    let encoder = build_encoder(models.code, &samples.shape)?;
    let decoder = build_decoder(models.code, models.deployed.outputs())?;
    evaluate_with(
        models,
        (encoder.as_ref(), decoder.as_ref()),
        samples,
        plan,
        progress,
    )
}

/// As [`evaluate`], with an encoder and a decoder that are there: those of a learned code, whose
/// parity models are the deployed model itself.
///
/// # Errors
/// If there are fewer than k samples, the code does not fit them, or a model fails.
pub fn evaluate_with(
    models: CodedModels<'_>,
    (encoder, decoder): (&dyn Encoder, &dyn Decoder),
    samples: &Samples,
    plan: EvaluationPlan,
    mut progress: impl FnMut(usize, usize),
) -> Result<CodeEvaluation, TrainError> {
    let CodedModels {
        deployed, parity, ..
    } = models;
    let (k, outputs, sample_len) = (encoder.code().k(), deployed.outputs(), samples.sample_len());
    if let Some((_, model)) = parity.iter().find(|(_, model)| model.outputs() != outputs) {
        let got = model.outputs();
        return Err(parapet_decoder::DecodeError::UnequalLength {
            expected: outputs,
            got,
        }
        .into());
    }
    let count = samples.values.len() / sample_len.max(1);
    let groups = count / k;
    if groups == 0 {
        return Err(TrainError::TooFewSamples { found: count, k });
    }
    let labels = (samples.labels.len() == count && count > 0).then_some(samples.labels.as_slice());
    let classes = classes(deployed, samples, &mut |_, _| {})?;
    let kept = if count * outputs <= KEPT_VALUES && plan.groupings > 1 {
        Some(deployed.infer(&samples.values)?)
    } else {
        None
    };
    let patterns = patterns(k, encoder.code().r(), parity);
    let mut tally = Tally::new(k, parity.len(), outputs, labels.is_some());
    let judging = Judging {
        models,
        code: (encoder.code().k(), encoder.code().r()),
        decoder,
        axis: class_axis(deployed)?,
        outputs,
        classes: &classes,
        labels,
    };
    let mut rng = stream(plan.seed, 0);
    let mut order: Vec<usize> = (0..count).collect();
    let mut scratch = vec![0.0; outputs];
    let groupings = plan.groupings.max(1);
    for grouping in 0..groupings {
        order.shuffle(&mut rng);
        let used = order.get(..groups * k).unwrap_or_default();
        for (at, chunk) in used.chunks(CHUNK * k).enumerate() {
            let exact = match &kept {
                Some(all) => gather(all, outputs, chunk),
                None => deployed.infer(&gather(&samples.values, sample_len, chunk))?,
            };
            let answers = parity_answers(models, encoder, samples, chunk)?;
            for (group, members) in chunk.chunks_exact(k).enumerate() {
                tally.begin_group();
                let group = Group {
                    number: group,
                    members,
                    exact: &exact,
                    answers: &answers,
                };
                for pattern in &patterns {
                    judging.reconstruct(&group, pattern, &mut scratch, &mut tally)?;
                }
            }
            progress(
                grouping * groups + ((at + 1) * CHUNK).min(groups),
                groups * groupings,
            );
        }
    }
    let accuracy_deployed = labels.map(|labels| share_right(&classes, labels));
    // Groups of several groupings share samples: they are not independent, so no interval would be
    // honest.
    let resamples = if groupings == 1 { plan.resamples } else { 0 };
    Ok(tally.finish(count, groups, accuracy_deployed, resamples, plan.seed))
}

/// The classes that `model` scores.
/// Returns the share of samples whose class is their label.
fn share_right(classes: &[usize], labels: &[u8]) -> f64 {
    let pairs = classes.iter().zip(labels);
    let right = pairs.filter(|(class, label)| **class == usize::from(**label));
    right.count() as f64 / classes.len() as f64
}

fn class_axis(model: &dyn DeployedModel) -> Result<ClassAxis, TrainError> {
    Ok(ClassAxis::of(model.output_shape())?)
}

/// Returns the deployed model's class of each sample.
fn classes(
    model: &dyn DeployedModel,
    samples: &Samples,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Vec<usize>, TrainError> {
    let sample_len = samples.sample_len().max(1);
    let count = samples.values.len() / sample_len;
    let axis = class_axis(model)?;
    let mut classes = Vec::with_capacity(count);
    for chunk in samples.values.chunks(CHUNK * sample_len) {
        let outputs = model.infer(chunk)?;
        classes.extend(axis.samples(&outputs).map(ClassScores::top_class));
        progress(classes.len(), count);
    }
    Ok(classes)
}

/// Outputs of each parity model for the groups of `chunk`.
fn parity_answers(
    models: CodedModels<'_>,
    encoder: &dyn parapet_encoder::Encoder,
    samples: &Samples,
    chunk: &[usize],
) -> Result<Vec<Vec<f32>>, TrainError> {
    let (k, sample_len) = (encoder.code().k(), samples.sample_len());
    // The queries of each slot, of all groups: encoders take whole batches.
    let of_slot = |slot: usize| {
        let members: Vec<usize> = chunk.iter().skip(slot).step_by(k).copied().collect();
        gather(&samples.values, sample_len, &members)
    };
    let slots: Vec<Vec<f32>> = (0..k).map(of_slot).collect();
    let views: Vec<&[f32]> = slots.iter().map(Vec::as_slice).collect();
    let mut parity = vec![0.0; chunk.len() / k * sample_len];
    let mut answers = Vec::with_capacity(models.parity.len());
    for (row, model) in models.parity {
        encoder.encode(*row, &views, &mut parity)?;
        answers.push(model.infer(&parity)?);
    }
    Ok(answers)
}

fn gather(values: &[f32], length: usize, indices: &[usize]) -> Vec<f32> {
    let one = |&index: &usize| {
        values
            .get(index * length..(index + 1) * length)
            .unwrap_or_default()
    };
    indices.iter().flat_map(one).copied().collect()
}

#[cfg(test)]
mod tests;
