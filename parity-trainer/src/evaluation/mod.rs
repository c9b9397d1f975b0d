//! Accuracy of a deployed model and of its reconstructions (ParM section 5.1).
//!
//! The test set is cut into groups of k; every pattern of missing queries that the parity models at
//! hand can make up for is tried on every group. A_a is the deployed model's accuracy, A_d the
//! reconstructions', and A_o(f) = (1 - f) A_a + f A_d what clients see when a part f of their
//! answers is reconstructed.

mod bootstrap;
mod calibration;
mod figures;
mod markdown;
mod tally;

use parapet_decoder::{ClassAxis, ClassScores, Decoder, Score, build_decoder};
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
    let accuracy_deployed = labels.map(|labels| {
        let right = classes
            .iter()
            .zip(labels)
            .filter(|(class, label)| **class == usize::from(**label));
        right.count() as f64 / count as f64
    });
    // Groups of several groupings share samples: they are not independent, so no interval would be
    // honest.
    let resamples = if groupings == 1 { plan.resamples } else { 0 };
    Ok(tally.finish(count, groups, accuracy_deployed, resamples, plan.seed))
}

/// Members of a group, and what models answer for the groups of its chunk.
struct Group<'a> {
    /// Its place in the chunk.
    number: usize,
    /// Samples of the members.
    members: &'a [usize],
    exact: &'a [f32],
    answers: &'a [Vec<f32>],
}

/// Reconstruction of members, and what it is compared with.
struct Judging<'a> {
    models: CodedModels<'a>,
    /// k and r.
    code: (usize, usize),
    decoder: &'a dyn Decoder,
    axis: ClassAxis,
    outputs: usize,
    /// Classes by the deployed model, sample by sample.
    classes: &'a [usize],
    labels: Option<&'a [u8]>,
}

impl Judging<'_> {
    /// Reconstructs the predictions that are missing in a pattern.
    fn reconstruct(
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

/// The classes that `model` scores.
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

/// Queries that are missing, and the parity models that make up for them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    missing: Vec<usize>,
    models: Vec<usize>,
}

fn patterns(k: usize, r: usize, parity: &[(usize, &dyn DeployedModel)]) -> Vec<Pattern> {
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
fn subsets(n: usize, size: usize) -> Vec<Vec<usize>> {
    let masks = (0u32..1 << n).filter(|mask| mask.count_ones() as usize == size);
    masks
        .map(|mask| (0..n).filter(|bit| mask & (1 << bit) != 0).collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use parapet_encoder::EncoderKind;

    use super::*;
    use crate::deployed::DeployedError;

    /// Outputs are linear in the input, so that a sum code is exact; `wrong` spoils them.
    #[derive(Debug)]
    struct Linear {
        wrong: f32,
    }

    impl DeployedModel for Linear {
        fn input_shape(&self) -> &[usize] {
            &[2]
        }

        fn output_shape(&self) -> &[usize] {
            &[3]
        }

        fn infer(&self, samples: &[f32]) -> Result<Vec<f32>, DeployedError> {
            let one = |sample: &[f32]| [sample[0] + self.wrong, sample[1], -sample[0] - sample[1]];
            Ok(samples.chunks_exact(2).flat_map(one).collect())
        }
    }

    fn samples(count: usize) -> Samples {
        let values: Vec<f32> = (0..2 * count)
            .map(|at| ((at * 37 % 101) as f32) / 10.0 - 5.0)
            .collect();
        let labels = values
            .chunks_exact(2)
            .map(|sample| {
                let outputs = [sample[0], sample[1], -sample[0] - sample[1]];
                ClassAxis::of(&[3])
                    .unwrap()
                    .scores(&outputs)
                    .unwrap()
                    .top_class() as u8
            })
            .collect();
        Samples {
            shape: vec![2],
            values,
            labels,
        }
    }

    fn run(k: usize, r: usize, wrong: f32, samples: &Samples) -> CodeEvaluation {
        let code = CodeSpec::new(EncoderKind::Sum, k, r);
        let parity = Linear { wrong };
        let rows: Vec<(usize, &dyn DeployedModel)> = (0..r)
            .map(|row| (row, &parity as &dyn DeployedModel))
            .collect();
        let models = CodedModels {
            deployed: &Linear { wrong: 0.0 },
            parity: &rows,
            code: &code,
            calibrations: &[],
        };
        evaluate(
            models,
            samples,
            EvaluationPlan {
                groupings: 1,
                resamples: 200,
                seed: 1,
            },
            |_, _| {},
        )
        .unwrap()
    }

    #[test]
    fn every_pattern_of_a_perfect_code_is_exact() {
        let report = run(3, 2, 0.0, &samples(300));
        assert_eq!((report.samples, report.groups), (300, 100));
        assert_eq!(report.accuracy_deployed, Some(1.0));
        // One missing: 3 slots by 2 rows; two missing: 3 pairs of 2, both rows.
        let made: Vec<usize> = report
            .by_losses
            .iter()
            .map(|losses| losses.reconstructions)
            .collect();
        assert_eq!(made, [600, 600]);
        for losses in &report.by_losses {
            assert_eq!(losses.agreement.value, 1.0);
            assert_eq!(losses.accuracy.unwrap().value, 1.0);
        }
        assert!(report.overall.iter().all(|overall| overall.accuracy == 1.0));
        assert_eq!(report.by_slot.len(), 3);
        assert_eq!(
            report
                .by_class
                .iter()
                .map(|class| class.reconstructions)
                .sum::<usize>(),
            600
        );
    }

    #[test]
    fn a_bad_parity_model_shows_within_its_interval() {
        let report = run(2, 1, 6.0, &samples(400));
        let agreement = report.by_losses[0].agreement;
        let (low, high) = agreement.interval.unwrap();
        assert!(
            agreement.value < 0.9 && low < agreement.value && agreement.value < high,
            "{agreement:?}"
        );
        assert!(high - low < 0.2);
        let overall = |fraction: f64| {
            report
                .overall
                .iter()
                .find(|overall| overall.fraction == fraction)
                .unwrap()
                .accuracy
        };
        assert!(
            overall(0.0) == 1.0
                && (overall(1.0) - report.by_losses[0].accuracy.unwrap().value).abs() < 1e-12
        );
    }

    #[test]
    fn a_loss_is_told_with_its_paired_interval() {
        let perfect = run(2, 1, 0.0, &samples(400)).by_losses[0].loss.unwrap();
        assert_eq!((perfect.value, perfect.interval), (0.0, Some((0.0, 0.0))));
        let report = run(2, 1, 6.0, &samples(400));
        let (loss, accuracy) = (
            report.by_losses[0].loss.unwrap(),
            report.by_losses[0].accuracy.unwrap(),
        );
        assert!((loss.value - (report.accuracy_deployed.unwrap() - accuracy.value)).abs() < 1e-12);
        let (low, high) = loss.interval.unwrap();
        assert!(
            0.0 < low && low < loss.value && loss.value < high,
            "{loss:?}"
        );
    }

    /// Whatever it answers, its largest value is the same one.
    #[derive(Debug)]
    struct OneValue;

    impl DeployedModel for OneValue {
        fn input_shape(&self) -> &[usize] {
            &[2]
        }

        fn output_shape(&self) -> &[usize] {
            &[1]
        }

        fn infer(&self, samples: &[f32]) -> Result<Vec<f32>, DeployedError> {
            Ok(samples.chunks_exact(2).map(|sample| sample[0]).collect())
        }
    }

    #[test]
    fn outputs_of_one_value_are_not_evaluated_by_their_top_class() {
        let code = CodeSpec::new(EncoderKind::Sum, 2, 1);
        let rows: [(usize, &dyn DeployedModel); 1] = [(0, &OneValue)];
        let models = CodedModels {
            deployed: &OneValue,
            parity: &rows,
            code: &code,
            calibrations: &[],
        };
        let plan = EvaluationPlan {
            groupings: 1,
            resamples: 0,
            seed: 1,
        };
        let refused = evaluate(models, &samples(100), plan, |_, _| {}).unwrap_err();
        assert!(
            refused.is_input() && refused.to_string().contains("one value a sample"),
            "{refused}"
        );
        assert!(accuracy(&OneValue, &samples(100)).is_err());
    }

    #[test]
    fn without_labels_there_is_agreement_only() {
        let mut unlabelled = samples(100);
        unlabelled.labels.clear();
        let report = run(2, 1, 6.0, &unlabelled);
        assert_eq!(report.accuracy_deployed, None);
        assert!(report.by_losses[0].accuracy.is_none() && report.overall.is_empty());
        assert!(report.by_losses[0].loss.is_none());
        assert!(report.by_losses[0].agreement.value < 1.0);
    }

    #[test]
    fn plots_and_text_hold_the_figures() {
        let report = run(2, 1, 6.0, &samples(400));
        let text = markdown("a code", &report, &report, &[]);
        for word in [
            "A_a",
            "A_d",
            "loss, A_a - A_d",
            "agreement",
            "untrained control",
            "ECE",
            "slot",
            "class",
        ] {
            assert!(text.contains(word), "{word}: {text}");
        }
        assert!(
            reliability_plot(&report.calibration)
                .unwrap()
                .contains("confidence")
        );
        assert!(
            overall_plot(&report, &report)
                .unwrap()
                .unwrap()
                .contains("part of the answers")
        );
    }
}
