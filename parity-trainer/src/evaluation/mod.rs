//! Accuracy of a deployed model and of its reconstructions (ParM section 5.1).
//!
//! The test set is cut into groups of k; each pattern of missing queries that the parity models at
//! hand can make up for is tried on each group. A_a is the deployed model's accuracy, A_d the
//! reconstructions'; clients see (1 - f) A_a + f A_d when part f of their answers is reconstructed.

mod counts;
mod report;
mod tally;

use std::collections::BTreeMap;

use parapet_decoder::{Agreement, DecodeError, Decoder, OutputKind, build_decoder, top_class};
use parapet_encoder::{Code, CodeSpec, Encoder, build_encoder, subsets};
use parapet_onnx::learned_code::LearnedCode;
use rand::seq::SliceRandom;
use serde::Serialize;

use crate::data::{Samples, row};
use crate::deployed::DeployedModel;
use crate::network::stream;
use crate::{Result, TrainError};

pub use counts::{Calibration, CalibrationBin, Estimate, percent};
pub use report::{markdown, reliability_plot};
pub use tally::{ByLosses, Figures};
use tally::{Reconstruction, Tally};

const CHUNK: usize = 128;
/// Values of the deployed model's outputs kept rather than computed again for each grouping.
const KEPT_VALUES: usize = 1 << 24;

#[derive(Debug, Clone, Copy)]
pub struct CodedModels<'a> {
    pub deployed: &'a dyn DeployedModel,
    /// The comparison of its outputs. Labels count where they are class scores.
    pub agreement: Agreement,
    /// Parity models; not all rows need be there.
    pub parity: &'a [ParityRow<'a>],
    pub code: &'a CodeSpec,
    /// The networks of a learned code, whose parity models are the deployed model itself.
    pub learned: Option<&'a LearnedCode>,
}

#[derive(Debug, Clone, Copy)]
pub struct ParityRow<'a> {
    pub row: usize,
    pub model: &'a dyn DeployedModel,
    /// Serving uses calibrations if all rows have one.
    pub calibration: Option<&'a parapet_decoder::Calibration>,
}

#[derive(Debug, Clone, Copy)]
pub struct EvaluationPlan {
    /// Shuffles of the test set into groups, all of which count.
    pub groupings: usize,
    /// Bootstrap resamples for the intervals; 0 for none.
    pub resamples: usize,
    pub seed: u64,
}

/// Everything about a code on a test set; accuracies are parts of 1, absent without labels.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CodeEvaluation {
    pub samples: usize,
    /// Groups that were made of them; a rest smaller than k is left out.
    pub groups: usize,
    pub accuracy_deployed: Option<f64>,
    pub by_losses: Vec<ByLosses>,
    /// For each class, one query missing. The classes are the labels, or what the deployed model
    /// says where there are none.
    pub by_class: BTreeMap<usize, Figures>,
    /// For each slot of the groups, from 0.
    pub by_slot: BTreeMap<usize, Figures>,
    pub calibration: Calibration,
}

/// The part of `samples` that `model` is right about: whose class it names, or with whose target it
/// agrees.
pub fn accuracy(
    model: &dyn DeployedModel,
    samples: &Samples,
    agreement: &Agreement,
) -> Result<f64> {
    let (mut right, mut index) = (0, 0);
    for chunk in samples.values.chunks(CHUNK * samples.sample_len().max(1)) {
        for output in model.infer(chunk)?.chunks_exact(model.outputs().max(1)) {
            right += usize::from(is_right(samples, index, agreement, output));
            index += 1;
        }
    }
    Ok(right as f64 / index.max(1) as f64)
}

/// Returns true if an output is what the data want of sample `index`.
fn is_right(samples: &Samples, index: usize, agreement: &Agreement, output: &[f32]) -> bool {
    match agreement.kind() {
        OutputKind::Classes => {
            samples.labels.get(index).is_some_and(|&label| usize::from(label) == top_class(output))
        }
        _ => agreement.agrees(output, row(&samples.targets, index, agreement.output_len())),
    }
}

/// Evaluates a code on `samples`. Each pattern of u missing queries is made up for by each choice
/// of u of the parity models. `progress` hears how many groups are done, of how many.
pub fn evaluate(
    models: CodedModels<'_>,
    samples: &Samples,
    plan: EvaluationPlan,
    mut progress: impl FnMut(usize, usize),
) -> Result<CodeEvaluation> {
    let (deployed, outputs) = (models.deployed, models.deployed.outputs());
    let built;
    let (encoder, decoder): (&dyn Encoder, &dyn Decoder) = match models.learned {
        Some(learned) => (learned.encoder(), learned.decoder()),
        None => {
            let encoder = build_encoder(models.code, &samples.shape)?;
            built = (encoder, build_decoder(models.code, outputs)?);
            (built.0.as_ref(), built.1.as_ref())
        }
    };
    let (k, r, sample_len) = (encoder.code().k(), encoder.code().r(), samples.sample_len());
    let mut lengths = models.parity.iter().map(|row| row.model.outputs());
    let expected = outputs * encoder.code().slots();
    if let Some(got) = lengths.find(|&length| length != expected) {
        return Err(DecodeError::UnequalLength { expected, got }.into());
    }
    let count = samples.len();
    let groups = count / k;
    ensure!(groups != 0, TrainError::TooFewSamples { found: count, k });
    let has_classes = models.agreement.kind() == OutputKind::Classes;
    let is_labelled = match has_classes {
        true => samples.labels.len() == count,
        false => samples.targets.len() == count * outputs,
    };
    let known = is_labelled.then_some(samples);
    let agreement = &models.agreement;
    let accuracy_deployed = known.map(|of| accuracy(deployed, of, agreement)).transpose()?;
    let kept = match plan.groupings > 1 && count * outputs <= KEPT_VALUES {
        true => Some(deployed.infer(&samples.values)?),
        false => None,
    };
    let judge = Judge {
        parity: models.parity,
        is_calibrated: models.parity.iter().all(|row| row.calibration.is_some()),
        decoder,
        agreement: models.agreement,
        known,
        patterns: patterns(encoder.code(), models.parity.len()),
        rows: r,
    };
    let most = judge.patterns.iter().map(|pattern| pattern.missing.len()).max().unwrap_or_default();
    let mut tally = Tally::new(k, most, if has_classes { outputs } else { 0 }, is_labelled);
    let mut rng = stream(plan.seed, 0);
    let mut order: Vec<usize> = (0..count).collect();
    let groupings = plan.groupings.max(1);
    for grouping in 0..groupings {
        order.shuffle(&mut rng);
        for (at, chunk) in order[..groups * k].chunks(CHUNK * k).enumerate() {
            let exact = match &kept {
                Some(all) => gather(all, outputs, chunk.iter()),
                None => deployed.infer(&gather(&samples.values, sample_len, chunk.iter()))?,
            };
            let answers = parity_answers(models, encoder, samples, chunk)?;
            for (place, members) in chunk.chunks_exact(k).enumerate() {
                judge.group(place, members, &exact, &answers, &mut tally)?;
            }
            progress(grouping * groups + ((at + 1) * CHUNK).min(groups), groups * groupings);
        }
    }
    // Several groupings share samples and are not independent: no interval would be honest.
    let resamples = if groupings == 1 { plan.resamples } else { 0 };
    Ok(tally.finish((count, groups), accuracy_deployed, resamples, plan.seed))
}

/// Outputs of each parity model for the groups of `chunk`.
fn parity_answers(
    models: CodedModels<'_>,
    encoder: &dyn Encoder,
    samples: &Samples,
    chunk: &[usize],
) -> Result<Vec<Vec<f32>>> {
    let (k, sample_len) = (encoder.code().k(), samples.sample_len());
    // The queries of each slot, of all groups: encoders take whole batches.
    let members = |slot: usize| chunk.iter().skip(slot).step_by(k);
    let slot = |slot: usize| gather(&samples.values, sample_len, members(slot));
    let slots: Vec<Vec<f32>> = (0..k).map(slot).collect();
    let slots: Vec<&[f32]> = slots.iter().map(Vec::as_slice).collect();
    let mut parity = vec![0.0; chunk.len() / k * sample_len * encoder.code().stacked()];
    let mut answers = Vec::with_capacity(models.parity.len());
    for ParityRow { row, model, .. } in models.parity {
        encoder.encode(*row, &slots, &mut parity)?;
        answers.push(model.infer(&parity)?);
    }
    Ok(answers)
}

fn gather<'a>(values: &[f32], length: usize, rows: impl Iterator<Item = &'a usize>) -> Vec<f32> {
    rows.flat_map(|&at| row(values, at, length)).copied().collect()
}

/// Queries that are missing, and the parity models that make up for them.
struct Pattern {
    missing: Vec<usize>,
    models: Vec<usize>,
}

/// Patterns of missing queries, each with every choice of as few models as make up for it.
fn patterns(code: &Code, models: usize) -> Vec<Pattern> {
    let mut patterns = Vec::new();
    for losses in 1..=code.k() {
        let mut counts = 1..=models;
        let enough = counts.find(|&models| code.decoding().can_recover(losses, models));
        let Some(enough) = enough else { break };
        for missing in subsets(code.k(), losses) {
            for models in subsets(models, enough) {
                patterns.push(Pattern { missing: missing.clone(), models });
            }
        }
    }
    patterns
}

/// Reconstruction of missing predictions, and what they are compared with.
struct Judge<'a> {
    parity: &'a [ParityRow<'a>],
    is_calibrated: bool,
    decoder: &'a dyn Decoder,
    agreement: Agreement,
    /// The samples, if it is known what outputs they should have.
    known: Option<&'a Samples>,
    patterns: Vec<Pattern>,
    rows: usize,
}

impl Judge<'_> {
    /// Reconstructs what each pattern takes away of the group at `place` in a chunk, for which the
    /// deployed model answers `exact` and the parity models `answers`.
    fn group(
        &self,
        place: usize,
        members: &[usize],
        exact: &[f32],
        answers: &[Vec<f32>],
        tally: &mut Tally,
    ) -> Result<()> {
        let (k, outputs) = (members.len(), self.agreement.output_len());
        let mut scratch = vec![0.0; outputs];
        tally.groups.begin();
        for Pattern { missing, models } in &self.patterns {
            let prediction = |slot: usize| {
                let is_there = !missing.contains(&slot);
                is_there.then(|| row(exact, place * k + slot, outputs))
            };
            let predictions: Vec<Option<&[f32]>> = (0..k).map(prediction).collect();
            let mut parity = vec![None; self.rows];
            for &model in models {
                let len = self.parity[model].model.outputs();
                parity[self.parity[model].row] = Some(row(&answers[model], place, len));
            }
            for &slot in missing {
                self.decoder.decode(&predictions, &parity, slot, &mut scratch)?;
                let deployed = row(exact, place * k + slot, outputs);
                tally.add(&Reconstruction {
                    missing: missing.len(),
                    slot,
                    agrees: self.agreement.agrees(&scratch, deployed),
                    is_right: self.is_right(members[slot], &scratch),
                    confidence: self.confidence(models, &scratch),
                    is_deployed_right: self.is_right(members[slot], deployed),
                    class: self
                        .known
                        .and_then(|known| known.labels.get(members[slot]))
                        .map_or_else(|| top_class(deployed), |&label| usize::from(label)),
                });
            }
        }
        Ok(())
    }

    fn is_right(&self, index: usize, output: &[f32]) -> bool {
        self.known.is_some_and(|known| is_right(known, index, &self.agreement, output))
    }

    /// Returns a client's confidence: by the tables of the models that answered, if all have one.
    fn confidence(&self, models: &[usize], made: &[f32]) -> f32 {
        let measured = |table| self.agreement.confidence(table, made).unwrap_or_default();
        if !self.is_calibrated {
            return measured(None);
        }
        models.iter().map(|&model| self.parity[model].calibration).map(measured).fold(1.0, f32::min)
    }
}

#[cfg(test)]
mod tests;
