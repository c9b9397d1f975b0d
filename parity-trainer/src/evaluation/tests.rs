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
