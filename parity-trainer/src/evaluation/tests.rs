use parapet_encoder::EncoderKind;

use super::*;
use crate::Result;

#[derive(Debug)]
enum Model {
    /// Outputs are linear in the input, so that a sum code is exact; the value spoils them.
    Linear(f32),
    /// Whatever it answers, its largest value is the same one.
    OneValue,
}

impl DeployedModel for Model {
    fn input_shape(&self) -> &[usize] {
        &[2]
    }

    fn output_shape(&self) -> &[usize] {
        match self {
            Self::Linear(_) => &[3],
            Self::OneValue => &[1],
        }
    }

    fn infer(&self, samples: &[f32]) -> Result<Vec<f32>> {
        let one = |sample: &[f32]| match self {
            Self::Linear(wrong) => linear(sample, *wrong).to_vec(),
            Self::OneValue => vec![sample[0]],
        };
        Ok(samples.chunks_exact(2).flat_map(one).collect())
    }
}

fn linear(sample: &[f32], wrong: f32) -> [f32; 3] {
    [sample[0] + wrong, sample[1], -sample[0] - sample[1]]
}

fn samples(count: usize) -> Samples {
    let value = |at: usize| (at * 37 % 101) as f32 / 10.0 - 5.0;
    let values: Vec<f32> = (0..2 * count).map(value).collect();
    let label = |sample: &[f32]| top_class(&linear(sample, 0.0)) as u8;
    let labels = values.chunks_exact(2).map(label).collect();
    Samples::new(vec![2], values, labels)
}

fn try_run(k: usize, r: usize, models: [Model; 2], samples: &Samples) -> Result<CodeEvaluation> {
    let [deployed, parity] = &models;
    let parity = (0..r).map(|row| ParityRow { row, model: parity, calibration: None });
    let models = CodedModels {
        deployed,
        agreement: Agreement::of(None, deployed.output_shape())?,
        parity: &parity.collect::<Vec<_>>(),
        code: &CodeSpec::new(EncoderKind::Sum, k, r),
        learned: None,
    };
    let (groupings, resamples, seed) = (1, 200, 1);
    let plan = EvaluationPlan { groupings, resamples, seed };
    evaluate(models, samples, plan, |_, _| {})
}

fn run(k: usize, r: usize, wrong: f32, samples: &Samples) -> CodeEvaluation {
    try_run(k, r, [Model::Linear(0.0), Model::Linear(wrong)], samples).unwrap()
}

#[test]
fn every_pattern_of_a_perfect_code_is_exact() {
    let report = run(3, 2, 0.0, &samples(300));
    assert_eq!((report.samples, report.groups), (300, 100));
    assert_eq!(report.accuracy_deployed, Some(1.0));
    // One missing: 3 slots by 2 rows; two missing: 3 pairs of 2, both rows.
    assert_eq!(report.by_losses.len(), 2);
    for losses in &report.by_losses {
        assert_eq!(losses.reconstructions, 600);
        assert_eq!(losses.agreement.value, 1.0);
        assert_eq!(losses.accuracy.unwrap().value, 1.0);
    }
    assert_eq!(report.by_slot.len(), 3);
    let of_classes = report.by_class.values().map(|class| class.reconstructions);
    assert_eq!(of_classes.sum::<usize>(), 600);
}

#[test]
fn a_bad_parity_model_shows_within_its_interval() {
    let report = run(2, 1, 6.0, &samples(400));
    let losses = &report.by_losses[0];
    let (agreement, (low, high)) = (losses.agreement.value, losses.agreement.interval.unwrap());
    assert!(low < agreement && agreement < high.min(0.9));
    assert!(high - low < 0.2);
    assert!(losses.accuracy.unwrap().value < report.accuracy_deployed.unwrap());
}

#[test]
fn a_loss_is_told_with_its_paired_interval() {
    let perfect = run(2, 1, 0.0, &samples(400)).by_losses[0].loss.unwrap();
    assert_eq!((perfect.value, perfect.interval), (0.0, Some((0.0, 0.0))));
    let report = run(2, 1, 6.0, &samples(400));
    let losses = &report.by_losses[0];
    let (loss, accuracy) = (losses.loss.unwrap(), losses.accuracy.unwrap());
    assert!((loss.value - (report.accuracy_deployed.unwrap() - accuracy.value)).abs() < 1e-12);
    let (low, high) = loss.interval.unwrap();
    assert!(0.0 < low && low < loss.value && loss.value < high);
}

#[test]
fn outputs_of_one_value_are_evaluated_by_their_kind_alone() {
    let models = [Model::OneValue, Model::OneValue];
    let refused = try_run(2, 1, models, &samples(100)).unwrap_err();
    let message = refused.to_string();
    assert!(refused.is_input());
    assert!(message.contains("output.kind: missing"), "{message}");
}

#[test]
fn without_labels_there_is_agreement_only() {
    let mut unlabelled = samples(100);
    unlabelled.labels.clear();
    let report = run(2, 1, 6.0, &unlabelled);
    assert_eq!(report.accuracy_deployed, None);
    let losses = &report.by_losses[0];
    assert!(losses.accuracy.is_none() && losses.loss.is_none());
    assert!(losses.agreement.value < 1.0);
}

#[test]
fn plots_and_text_hold_the_figures() {
    let report = run(2, 1, 6.0, &samples(400));
    let text = markdown("a code", &report, &[]);
    let reliability = reliability_plot(&report.calibration).unwrap();
    let words = "A_a|A_d|loss, A_a - A_d|agreement|ECE|slot|class";
    for word in words.split('|') {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(reliability.contains("confidence"));
}
