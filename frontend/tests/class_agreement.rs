//! Agreement by top class is counted for class scores, and for no other output: instances in
//! memory, paused time.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use parapet_frontend::payload::Input;
use parapet_frontend_core::PoolId;
use parapet_open_inference::Tensor;
use support::fixture::{Fixture, addresses, fixture};
use support::memory::{Memory, SERVICE, State, id};
use support::{add_model_of, coded_toml, repository_of, strategy_toml};
use tokio::time::sleep;

/// An answer of `shape` to a request of one sample, linear in it: the sum code is exact.
fn answer<const VALUES: usize>(shape: &[usize], input: &Input) -> Vec<Tensor> {
    let values = input.tensors[0].f32s().unwrap();
    let answers: Vec<f32> = (0..VALUES)
        .map(|at| values[at % values.len()] * (at + 1) as f32)
        .collect();
    vec![Tensor::from_f32("output", [&[1], shape].concat(), &answers).unwrap()]
}

type Answers = fn(PoolId, &Input) -> Vec<Tensor>;

/// Shapes of one sample's output, with what answers in them.
const CLASSES: (&[usize], Answers) = (&[3], |_, input| answer::<3>(&[3], input));
const WITHOUT_CLASSES: [(&[usize], Answers); 4] = [
    (&[1], |_, input| answer::<1>(&[1], input)),
    (&[], |_, input| answer::<1>(&[], input)),
    (&[2, 3], |_, input| answer::<6>(&[2, 3], input)),
    (&[1, 3], |_, input| answer::<3>(&[1, 3], input)),
];

async fn coded((shape, answers): (&[usize], Answers)) -> Fixture {
    let root = repository_of(shape);
    let (deployed, parity) = (addresses(2, 7000), addresses(1, 7100));
    let text = coded_toml(root.path(), &deployed, &parity, "slots_per_instance = 1");
    fixture(root, &text, Memory::of_tensors(&[2, 1], answers)).await
}

/// Comparisons of this source that were counted.
fn compared(fixture: &Fixture, code: &str, source: &str) -> f64 {
    let count = |agrees: &str| {
        fixture.metric(&format!(
            "parapet_reconstruction_agreement_total{{model=\"linear\",code=\"{code}\",\
             source=\"{source}\",agrees=\"{agrees}\"}}"
        ))
    };
    count("true") + count("false")
}

/// One of two queries is late, and its own answer comes after the reconstruction; then a
/// group is audited.
async fn late_truth_and_audit(fixture: &Fixture) {
    fixture.memory.set(id(0, 0), State::Frozen);
    let (first, second) = (fixture.ask(1.0), fixture.ask(2.0));
    second.await.unwrap().0.unwrap();
    assert_eq!(first.await.unwrap().0.unwrap().1.kind, "reconstructed");
    fixture.memory.set(id(0, 0), State::Well(SERVICE));
    sleep(10 * SERVICE).await;
    for asked in [fixture.ask(3.0), fixture.ask(4.0)] {
        assert_eq!(asked.await.unwrap().0.unwrap().1.kind, "exact");
    }
    sleep(10 * SERVICE).await;
}

#[tokio::test(start_paused = true)]
async fn class_scores_are_compared_by_late_truths_and_audits() {
    let fixture = coded(CLASSES).await;
    late_truth_and_audit(&fixture).await;
    assert!(compared(&fixture, "sum-k2-r1", "late_truth") >= 1.0);
    assert!(compared(&fixture, "sum-k2-r1", "audit") >= 1.0);
}

#[tokio::test(start_paused = true)]
async fn outputs_without_classes_are_compared_by_nothing_and_have_no_confidence() {
    for output in WITHOUT_CLASSES {
        let fixture = coded(output).await;
        late_truth_and_audit(&fixture).await;
        let counted = ["late_truth", "audit"].map(|source| compared(&fixture, "sum-k2-r1", source));
        assert_eq!(counted, [0.0, 0.0], "{:?}", output.0);

        let fixture = coded(output).await;
        fixture.memory.set(id(0, 0), State::Frozen);
        let (first, second) = (fixture.ask(1.0), fixture.ask(2.0));
        let (exact, _) = second.await.unwrap().0.unwrap();
        assert_eq!(
            exact.parameters["confidence"], 1.0,
            "the model's own answer"
        );
        let (response, provenance) = first.await.unwrap().0.unwrap();
        assert_eq!(provenance.kind, "reconstructed", "{:?}", output.0);
        assert_eq!(
            response.parameters.get("confidence"),
            None,
            "{:?}",
            output.0
        );
        assert_eq!(
            response.parameters.get("confidence_calibrated"),
            None,
            "{:?}",
            output.0
        );
    }
}

const BACKUP: &str = "kind = \"approximate_backup\"\nmodel = \"cheap\"\ninstances = \
    [\"127.0.0.1:7200\"]\n\
    delay = { fixed_ms = 30 }\neager = true";

/// Late truths that were compared with a backup model's answers.
async fn backups_compared((shape, answers): (&[usize], Answers)) -> f64 {
    let root = repository_of(shape);
    add_model_of(root.path(), "cheap", shape, None);
    let text = strategy_toml(root.path(), &addresses(2, 7000), BACKUP);
    let fixture = fixture(root, &text, Memory::of_tensors(&[2, 1], answers)).await;
    for index in 0..2 {
        fixture.memory.set(id(0, index), State::Frozen);
    }
    assert_eq!(fixture.ask(1.0).await.unwrap().0.unwrap().1.kind, "backup");
    for index in 0..2 {
        fixture.memory.set(id(0, index), State::Well(SERVICE));
    }
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
