//! Reconstruction of missing predictions, and what they are compared with.

use parapet_decoder::{ClassAxis, ClassScores, Decoder, Score};

use super::CodedModels;
use super::tally::{self, Tally};
use crate::TrainError;
use crate::deployed::DeployedModel;

/// Members of a group, and what models answer for the groups of its chunk.
pub(super) struct Group<'a> {
    /// Its place in the chunk.
    pub(super) number: usize,
    /// Samples of the members.
    pub(super) members: &'a [usize],
    pub(super) exact: &'a [f32],
    pub(super) answers: &'a [Vec<f32>],
}

/// Reconstruction of members, and what it is compared with.
pub(super) struct Judging<'a> {
    pub(super) models: CodedModels<'a>,
    /// k and r.
    pub(super) code: (usize, usize),
    pub(super) decoder: &'a dyn Decoder,
    pub(super) axis: ClassAxis,
    pub(super) outputs: usize,
    /// Classes by the deployed model, sample by sample.
    pub(super) classes: &'a [usize],
    pub(super) labels: Option<&'a [u8]>,
}

impl Judging<'_> {
    /// Reconstructs the predictions that are missing in a pattern.
    pub(super) fn reconstruct(
        &self,
        group: &Group<'_>,
        pattern: &Pattern,
        scratch: &mut [f32],
        tally: &mut Tally,
    ) -> Result<(), TrainError> {
        let (k, r) = self.code;
        let row = |place: usize| place * self.outputs..(place + 1) * self.outputs;
        let prediction = |slot: usize| {
            let known = !pattern.missing.contains(&slot);
            let place = group.number * k + slot;
            known.then(|| group.exact.get(row(place))).flatten()
        };
        let predictions: Vec<Option<&[f32]>> = (0..k).map(prediction).collect();
        let mut rows = vec![None; r];
        for &model in &pattern.models {
            let parity = self.models.parity.get(model);
            if let (Some((place, _)), Some(values)) = (parity, group.answers.get(model))
                && let Some(slot) = rows.get_mut(*place)
            {
                *slot = values.get(row(group.number));
            }
        }
        for &slot in &pattern.missing {
            self.decoder.decode(&predictions, &rows, slot, scratch)?;
            let Some(scores) = self.axis.scores(scratch) else {
                continue;
            };
            let sample = group.members.get(slot).copied().unwrap_or_default();
            let label = self.labels.and_then(|labels| labels.get(sample));
            tally.add(tally::Reconstruction {
                missing: pattern.missing.len(),
                slot,
                class: scores.top_class(),
                confidence: confidence(self.models.calibrations, pattern, scores),
                deployed: self.classes.get(sample).copied().unwrap_or_default(),
                label: label.map(|&label| usize::from(label)),
            });
        }
        Ok(())
    }
}

/// Returns the confidence that a client gets: by the tables of the models that answered, if
/// all have one.
fn confidence(
    tables: &[parapet_decoder::Calibration],
    pattern: &Pattern,
    scores: ClassScores<'_>,
) -> f32 {
    if tables.is_empty() {
        return Score::TopProbability.of(scores);
    }
    let used = pattern.models.iter().filter_map(|&model| tables.get(model));
    used.map(|table| table.confidence(scores))
        .fold(1.0, f32::min)
}

/// Queries that are missing, and the parity models that make up for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    pub(super) missing: Vec<usize>,
    pub(super) models: Vec<usize>,
}

pub(super) fn patterns(k: usize, r: usize, parity: &[(usize, &dyn DeployedModel)]) -> Vec<Pattern> {
    let mut patterns = Vec::new();
    for losses in 1..=parity.len().min(r) {
        for missing in subsets(k, losses) {
            for models in subsets(parity.len(), losses) {
                patterns.push(Pattern {
                    missing: missing.clone(),
                    models,
                });
            }
        }
    }
    patterns
}

/// All subsets of `0..n` with `size` members.
pub(super) fn subsets(n: usize, size: usize) -> Vec<Vec<usize>> {
    let masks = (0u32..1 << n).filter(|mask| mask.count_ones() as usize == size);
    masks
        .map(|mask| (0..n).filter(|bit| mask & (1 << bit) != 0).collect())
        .collect()
}
