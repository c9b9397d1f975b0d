//! Agreement by top class is counted for class scores, and for no other output: instances in
//! memory, paused time.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use parapet_frontend::payload::Input;
use parapet_open_inference::Tensor;
use support::fixture::{Fixture, ONE_SLOT, coded_in, fixture};
use support::memory::*;
use support::*;
use tokio::time::sleep;

const CODE: &str = "sum-k2-r1";

/// An answer of `shape` to a request of one sample, linear in it: the sum code is exact.
fn answer<const VALUES: usize>(shape: &[usize], input: &Input) -> Vec<Tensor> {
    let values = values(input);
    let answer = |at: usize| values[at % values.len()] * (at + 1) as f32;
    let answers: Vec<f32> = (0..VALUES).map(answer).collect();
    vec![Tensor::from_f32("output", [&[1], shape].concat(), &answers).unwrap()]
}

/// Shapes of one sample's output, with what answers in them.
const CLASSES: (&[usize], Model) = (&[3], |_, input| answer::<3>(&[3], input));
const WITHOUT_CLASSES: [(&[usize], Model); 4] = [
    (&[1], |_, input| answer::<1>(&[1], input)),
    (&[], |_, input| answer::<1>(&[], input)),
    (&[2, 3], |_, input| answer::<6>(&[2, 3], input)),
    (&[1, 3], |_, input| answer::<3>(&[1, 3], input)),
];

async fn coded((shape, model): (&[usize], Model)) -> Fixture {
    coded_in(repository_of(shape), Memory::of(&[2, 1], model), ONE_SLOT).await
}

fn compared(fixture: &Fixture, code: &str, source: &str) -> f64 {
    fixture.compared(code, source, true) + fixture.compared(code, source, false)
}

/// Comparisons by late truth and by audit, after one of two queries was late, its own answer came
/// after the reconstruction, and a group was audited.
async fn late_truth_and_audit(fixture: &Fixture) -> [f64; 2] {
    fixture.first_of_two_late().await;
    fixture.memory.set(id(0, 0), State::Well(SERVICE));
    sleep(10 * SERVICE).await;
    fixture.two_exact([3.0, 4.0]).await;
    sleep(10 * SERVICE).await;
    ["late_truth", "audit"].map(|source| compared(fixture, CODE, source))
}

#[tokio::test(start_paused = true)]
async fn class_scores_are_compared_by_late_truths_and_audits() {
    let counted = late_truth_and_audit(&coded(CLASSES).await).await;
    assert!(counted.iter().all(|count| *count >= 1.0), "{counted:?}");
}

#[tokio::test(start_paused = true)]
async fn outputs_without_classes_are_compared_by_nothing_and_have_no_confidence() {
    for output in WITHOUT_CLASSES {
        let counted = late_truth_and_audit(&coded(output).await).await;
        assert_eq!(counted, [0.0, 0.0], "{:?}", output.0);

        let fixture = coded(output).await;
        let (exact, _) = fixture.ask(1.0).await.unwrap().0.unwrap();
        // The model's own answer.
        assert_eq!(exact.parameters["confidence"], 1.0);
        let (response, ..) = coded(output).await.first_of_two_late().await;
        for name in ["confidence", "confidence_calibrated"] {
            assert_eq!(response.parameters.get(name), None, "{:?}", output.0);
        }
    }
}

const BACKUP: &str = "kind = \"approximate_backup\"\nmodel = \"cheap\"\ninstances = \
    [\"127.0.0.1:7200\"]\ndelay = { fixed_ms = 30 }\neager = true";

/// Late truths that were compared with a backup model's answers.
async fn backups_compared((shape, model): (&[usize], Model)) -> f64 {
    let root = repository_of(shape);
    add_model_of(root.path(), "cheap", shape, None);
    let text = strategy_toml(root.path(), &addresses(2, 7000), BACKUP);
    let fixture = fixture(root, &text, Memory::of(&[2, 1], model)).await;
    fixture.set_all([(0, 0), (0, 1)], State::Frozen);
    assert_eq!(fixture.kind(1.0).await.0, "backup");
    fixture.set_all([(0, 0), (0, 1)], State::Well(SERVICE));
    sleep(10 * SERVICE).await;
    compared(&fixture, "backup", "late_truth")
}

#[tokio::test(start_paused = true)]
async fn a_backup_of_class_scores_is_compared_and_one_of_a_value_is_not() {
    assert!(backups_compared(CLASSES).await >= 1.0);
    for output in WITHOUT_CLASSES {
        assert_eq!(backups_compared(output).await, 0.0, "{:?}", output.0);
    }
}
