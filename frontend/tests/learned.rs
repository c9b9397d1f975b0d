//! Learned codes: what clients get, and what start-up says of one that cannot be served. Instances
//! in memory, paused time.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::fs;
use std::path::Path;
use std::time::Duration;

use parapet_config::repository::{Calibration, CodeMetadata, Score};
use parapet_encoder::{CodeSpec, EncoderKind, OutputTransform};
use parapet_onnx::linear_model;
use support::fixture::{Fixture, MS, addresses, expected, fixture};
use support::memory::{Memory, SERVICE, State, id};
use support::{
    INPUTS, OUTPUTS, add_learned_code, close, config, learned_metadata, linear, repository,
    strategy_toml,
};
use tokio::time::sleep;

const HOLD_BACK: Duration = Duration::from_millis(30);
const LEARNED: &str = "kind = \"coded\"\nencoder = \"learned\"\nmodel = \"linear-code\"\nk = 2\n\
                       hold_back = { fixed_ms = 30 }\naudit_every = 1";

async fn learned(code: CodeMetadata, strategy: &str) -> Fixture {
    learned_on(3, code, strategy).await
}

async fn learned_on(deployed: u32, code: CodeMetadata, strategy: &str) -> Fixture {
    let repository = repository();
    add_learned_code(repository.path(), "linear-code", code);
    let text = strategy_toml(repository.path(), &addresses(deployed, 7000), strategy);
    let memory = Memory::of(&[deployed], |_, values| {
        values.chunks(INPUTS).flat_map(linear).collect()
    });
    fixture(repository, &text, memory).await
}

/// The metric, once it is there: coding takes place on another thread.
async fn counted(fixture: &Fixture, line: &str) -> f64 {
    for _ in 0..1000 {
        let found = fixture.metric(line);
        if found > 0.0 {
            return found;
        }
        sleep(MS).await;
        tokio::task::yield_now().await;
    }
    0.0
}

#[tokio::test(start_paused = true)]
async fn a_late_prediction_is_decoded_from_the_deployed_models_own_answer_to_the_parity_query() {
    let fixture = learned(learned_metadata(), LEARNED).await;
    fixture.memory.set(id(0, 0), State::Frozen);
    let (first, second) = (fixture.ask(1.0), fixture.ask(2.0));
    assert_eq!(second.await.unwrap().0.unwrap().1.kind, "exact");
    let (answered, took) = first.await.unwrap();
    let (response, provenance) = answered.unwrap();
    assert_eq!(
        (provenance.kind, provenance.code.as_deref()),
        ("reconstructed", Some("learned-k2-r1"))
    );
    assert!(!provenance.calibrated);
    assert!(
        close(&response.outputs[0].f32s().unwrap(), &expected(1.0)),
        "{response:?}"
    );
    assert!(took >= HOLD_BACK && took < HOLD_BACK + 5 * MS, "{took:?}");
    assert_eq!(
        fixture.memory.log.lock().as_slice(),
        [id(0, 0), id(0, 1), id(0, 2)],
        "one of its own"
    );

    fixture.memory.set(id(0, 0), State::Well(SERVICE));
    let line = r#"parapet_reconstruction_agreement_total{model="linear",code="learned-k2-r1",source="late_truth",agrees="true"}"#;
    assert!((counted(&fixture, line).await - 1.0).abs() < 1e-9);
}

#[tokio::test(start_paused = true)]
async fn with_no_instance_to_spare_the_parity_query_waits_for_one_that_is_not_late() {
    let fixture = learned_on(2, learned_metadata(), LEARNED).await;
    fixture.memory.set(id(0, 0), State::Frozen);
    let (first, second) = (fixture.ask(1.0), fixture.ask(2.0));
    assert_eq!(second.await.unwrap().0.unwrap().1.kind, "exact");
    let (answered, took) = first.await.unwrap();
    assert_eq!(answered.unwrap().1.kind, "reconstructed");
    assert!(took < HOLD_BACK + 5 * MS, "{took:?}");
    assert_eq!(
        fixture.memory.log.lock().as_slice(),
        [id(0, 0), id(0, 1), id(0, 1)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_parity_query_that_waits_holds_no_query_up() {
    let fixture = learned_on(2, learned_metadata(), LEARNED).await;
    fixture.memory.set(id(0, 0), State::Frozen);
    fixture.memory.set(id(0, 1), State::Frozen);
    let asked = [fixture.ask(1.0), fixture.ask(2.0)];
    sleep(5 * MS).await;
    // Members of the group keep both instances. One comes back and answers. A new query waits for
    // no parity query.
    fixture.memory.set(id(0, 1), State::Well(SERVICE));
    let (answered, took) = fixture.ask(3.0).await.unwrap();
    assert_eq!(answered.unwrap().1.kind, "exact");
    assert!(took <= 3 * SERVICE + 2 * MS, "CG-3: {took:?}");
    for asked in asked {
        asked.await.unwrap().0.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn groups_in_which_nobody_is_late_are_audited() {
    let fixture = learned(learned_metadata(), LEARNED).await;
    let (first, second) = (fixture.ask(1.0), fixture.ask(2.0));
    for asked in [first, second] {
        assert_eq!(asked.await.unwrap().0.unwrap().1.kind, "exact");
    }
    let line = r#"parapet_reconstruction_agreement_total{model="linear",code="learned-k2-r1",source="audit",agrees="true"}"#;
    assert!(counted(&fixture, line).await >= 1.0);
}

#[tokio::test(start_paused = true)]
async fn what_training_measured_is_the_confidence_and_its_transform_the_domain() {
    let calibration = Calibration {
        score: Score::Margin,
        edges: vec![0.5],
        agreement: vec![0.25, 0.5],
    };
    // Raw differences of log-probabilities: the linear code is exact for them no more, but they are
    // told as what they are.
    let transform = OutputTransform::LogSoftmax { floor: -20.0 };
    let spec = CodeSpec {
        transform,
        ..CodeSpec::new(EncoderKind::Learned, 2, 1)
    };
    let code = CodeMetadata {
        calibration: Some(calibration),
        ..CodeMetadata::new("linear", 0, spec)
    };
    let fixture = learned(code, LEARNED).await;
    fixture.memory.set(id(0, 0), State::Frozen);
    let (first, _second) = (fixture.ask(1.0), fixture.ask(2.0));
    let (response, provenance) = first.await.unwrap().0.unwrap();
    assert!(
        provenance.calibrated && [Some(0.25), Some(0.5)].contains(&provenance.confidence),
        "{provenance:?}"
    );
    assert_eq!(response.parameters["output_domain"], "log_probabilities");
}

#[tokio::test(start_paused = true)]
async fn queries_are_answered_while_coding_is_given_up_for_want_of_a_place() {
    let fixture = learned(
        learned_metadata(),
        &format!("{LEARNED}\nmax_coding_queue = 1"),
    )
    .await;
    let asked: Vec<_> = (0..40).map(|sample| fixture.ask(sample as f32)).collect();
    for asked in asked {
        asked.await.unwrap().0.unwrap();
    }
}

/// Checks that the configuration is refused with one line that has these parts.
fn refused(root: &Path, instances: u32, strategy: &str, parts: &[&str]) {
    let text = strategy_toml(root, &addresses(instances, 7000), strategy);
    let message = config(&text).unwrap_err().to_string();
    assert!(!message.contains('\n'), "{message}");
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
}

#[test]
fn what_cannot_be_served_is_one_line_at_the_start() {
    let root = repository();
    add_learned_code(root.path(), "linear-code", learned_metadata());
    let refused = |instances, strategy: &str, parts: &[&str]| {
        refused(root.path(), instances, strategy, parts)
    };
    refused(
        3,
        &LEARNED.replace("model = \"linear-code\"\n", ""),
        &["strategy.model: missing; name the learned code's entry"],
    );
    refused(
        3,
        &LEARNED.replace("linear-code", "gone"),
        &["strategy.model: ", "no model \"gone\""],
    );
    refused(
        3,
        &LEARNED.replace("linear-code", "linear-parity"),
        &["\"linear-parity\" is no learned code"],
    );
    refused(
        3,
        &LEARNED.replace("k = 2", "k = 3"),
        &["k = 3 here, and code.k = 2 in ", "set k = 2"],
    );
    refused(
        3,
        &format!("{LEARNED}\nr = 2"),
        &["r = 2 here, and code.r = 1 in "],
    );
    refused(
        3,
        &format!("{LEARNED}\nversion = 4"),
        &["strategy.version: ", "no version 4"],
    );
    refused(1, LEARNED, &["second instance"]);
    refused(
        3,
        &LEARNED.replace("\"learned\"", "\"sum\""),
        &["only a learned code has an entry of its own"],
    );
    refused(
        3,
        &format!("{LEARNED}\nmax_coding_queue = 0"),
        &["strategy.max_coding_queue: 0"],
    );
    let parity =
        "\n[[models.strategy.parity]]\nmodel = \"linear-parity\"\ninstances = [\"127.0.0.1:7100\"]";
    refused(
        3,
        &format!("{LEARNED}{parity}"),
        &["strategy.parity: encoder = \"learned\""],
    );

    let other = CodeMetadata::new("other", 0, CodeSpec::new(EncoderKind::Learned, 2, 1));
    add_learned_code(root.path(), "others-code", other);
    refused(
        3,
        &LEARNED.replace("linear-code", "others-code"),
        &["deployed = linear here, and code.deployed = other"],
    );
}

#[test]
fn networks_that_cannot_be_served_are_one_line_at_the_start() {
    let root = repository();
    add_learned_code(root.path(), "linear-code", learned_metadata());
    let refused = |parts: &[&str]| refused(root.path(), 3, LEARNED, parts);
    let version = root.path().join("linear-code/1");
    let narrow = linear_model(&[OUTPUTS], &[0.0; OUTPUTS * OUTPUTS], &[0.0; OUTPUTS]).unwrap();
    fs::write(version.join("decoder.onnx"), narrow).unwrap();
    refused(&["decoder.onnx: its input has 3 values a sample", "9"]);
    fs::write(version.join("decoder.onnx"), b"torn").unwrap();
    refused(&["decoder.onnx: not a network that ONNX Runtime can run"]);
    fs::remove_file(version.join("decoder.onnx")).unwrap();
    refused(&["decoder.onnx: missing"]);
}
