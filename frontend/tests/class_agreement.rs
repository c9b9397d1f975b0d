//! Agreement is counted by the kind of the output, and for class scores alone where no kind is
//! known: instances in memory, paused time.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use parapet_frontend::payload::Input;
use parapet_frontend_core::PoolId;
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

/// Kinds, with what answers in them; boxes whose corners are in order.
const KINDS: [(&str, &[usize], Model); 5] = [
    ("kind = \"regression\"\ntolerance = 0.1", &[1], |_, input| answer::<1>(&[1], input)),
    ("kind = \"multi_label\"", &[3], |_, input| answer::<3>(&[3], input)),
    ("kind = \"embedding\"", &[2, 2], |_, input| answer::<4>(&[2, 2], input)),
    ("kind = \"boxes\"", &[1, 4], |_, input| answer::<4>(&[1, 4], input)),
    ("kind = \"map\"", &[2, 3], |_, input| answer::<6>(&[2, 3], input)),
];

/// A repository whose deployed model has this `[output]`, and whose parity model was measured.
fn repository_of_kind(kind: &str, shape: &[usize]) -> tempfile::TempDir {
    let root = repository_of(shape);
    let append = |model: &str, table: &str| {
        let path = root.path().join(model).join("model.toml");
        let text = std::fs::read_to_string(&path).unwrap() + table;
        std::fs::write(path, text).unwrap();
    };
    append("linear", &format!("\n[output]\n{kind}\n"));
    append("linear-parity", "error = 0.25\n");
    root
}

#[tokio::test(start_paused = true)]
async fn outputs_of_a_known_kind_are_compared_by_it_and_say_their_measured_error() {
    for (kind, shape, model) in KINDS {
        let root = repository_of_kind(kind, shape);
        let fixture = coded_in(root, Memory::of(&[2, 1], model), ONE_SLOT).await;
        late_truth_and_audit(&fixture).await;
        for source in ["late_truth", "audit"] {
            assert!(fixture.compared(CODE, source, true) >= 1.0, "{kind}");
            assert_eq!(fixture.compared(CODE, source, false), 0.0, "{kind}");
        }
        let root = repository_of_kind(kind, shape);
        let fixture = coded_in(root, Memory::of(&[2, 1], model), ONE_SLOT).await;
        let (response, ..) = fixture.first_of_two_late().await;
        assert_eq!(response.parameters["confidence"], 1.0, "{kind}");
        assert_eq!(response.parameters["expected_error"], 0.25, "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_parity_model_that_is_wrong_disagrees_in_every_kind() {
    for (kind, shape, _) in KINDS {
        // The parity model answers nothing but zeros, or as large a lie.
        let lie: Model = match shape {
            [1] => |pool, input| lie::<1>(pool, &[1], input),
            [3] => |pool, input| lie::<3>(pool, &[3], input),
            [2, 2] => |pool, input| lie::<4>(pool, &[2, 2], input),
            [1, 4] => |pool, input| lie::<4>(pool, &[1, 4], input),
            _ => |pool, input| lie::<6>(pool, &[2, 3], input),
        };
        let root = repository_of_kind(kind, shape);
        let fixture = coded_in(root, Memory::of(&[2, 1], lie), ONE_SLOT).await;
        late_truth_and_audit(&fixture).await;
        assert!(fixture.compared(CODE, "late_truth", false) >= 1.0, "{kind}");
        assert_eq!(fixture.compared(CODE, "late_truth", true), 0.0, "{kind}");
    }
}

fn lie<const VALUES: usize>(pool: PoolId, shape: &[usize], input: &Input) -> Vec<Tensor> {
    if pool == PoolId::DEPLOYED {
        return answer::<VALUES>(shape, input);
    }
    let falling: Vec<f32> = (0..VALUES).map(|at| -1e4 * (at * at + 1) as f32).collect();
    vec![Tensor::from_f32("output", [&[1], shape].concat(), &falling).unwrap()]
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
