//! Learned codes: what clients get, and what start-up says of one that cannot be served. Instances
//! in memory, paused time.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::fs;

use parapet_config::repository::{CodeMetadata, Score};
use parapet_encoder::{CodeSpec, EncoderKind, OutputTransform};
use parapet_onnx::linear_model;
use support::fixture::*;
use support::memory::*;
use support::*;
use tokio::time::sleep;

const LEARNED: &str = "kind = \"coded\"\nencoder = \"learned\"\nmodel = \"linear-code\"\nk = 2\n\
                       hold_back = { fixed_ms = 30 }\naudit_every = 1";
const CODE: &str = "learned-k2-r1";

async fn learned(deployed: u32, code: CodeMetadata, strategy: &str) -> Fixture {
    let repository = repository();
    add_learned_code(repository.path(), "linear-code", code);
    let text = strategy_toml(repository.path(), &addresses(deployed, 7000), strategy);
    fixture(repository, &text, Memory::linear(&[deployed])).await
}

/// Agreeing comparisons, once there are any: coding takes place on another thread.
async fn compared(fixture: &Fixture, source: &str) -> f64 {
    for _ in 0..1000 {
        let found = fixture.compared(CODE, source, true);
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
    let fixture = learned(3, learned_metadata(), LEARNED).await;
    let (response, provenance, took) = fixture.first_of_two_late().await;
    assert_eq!(provenance.code.as_deref(), Some(CODE));
    assert!(!provenance.calibrated);
    assert_close(&response.outputs[0].f32s().unwrap(), &expected(1.0));
    assert!(took >= HOLD_BACK && took < HOLD_BACK + 5 * MS, "{took:?}");
    let log = fixture.memory.log.lock().clone();
    assert_eq!(log, [id(0, 0), id(0, 1), id(0, 2)], "one of its own");

    fixture.memory.set(id(0, 0), State::Well(SERVICE));
    assert_eq!(compared(&fixture, "late_truth").await, 1.0);
}

#[tokio::test(start_paused = true)]
async fn with_no_instance_to_spare_the_parity_query_waits_for_one_that_is_not_late() {
    let fixture = learned(2, learned_metadata(), LEARNED).await;
    let (.., took) = fixture.first_of_two_late().await;
    assert!(took < HOLD_BACK + 5 * MS, "{took:?}");
    let log = fixture.memory.log.lock().clone();
    assert_eq!(log, [id(0, 0), id(0, 1), id(0, 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_parity_query_that_waits_holds_no_query_up() {
    let fixture = learned(2, learned_metadata(), LEARNED).await;
    fixture.set_all([(0, 0), (0, 1)], State::Frozen);
    let asked = [fixture.ask(1.0), fixture.ask(2.0)];
    sleep(5 * MS).await;
    // Members of the group keep both instances. One comes back and answers. A new query waits for
    // no parity query.
    fixture.memory.set(id(0, 1), State::Well(SERVICE));
    let (kind, took) = fixture.kind(3.0).await;
    assert_eq!(kind, "exact");
    assert!(took <= 3 * SERVICE + 2 * MS, "CG-3: {took:?}");
    for asked in asked {
        asked.await.unwrap().0.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn groups_without_a_late_member_are_audited() {
    let fixture = learned(3, learned_metadata(), LEARNED).await;
    fixture.two_exact([1.0, 2.0]).await;
    assert!(compared(&fixture, "audit").await >= 1.0);
}

#[tokio::test(start_paused = true)]
async fn the_measured_agreement_is_the_confidence_and_the_codes_transform_the_domain() {
    // Raw differences of log-probabilities: the linear code is exact for them no more, but they are
    // told as what they are.
    let transform = OutputTransform::LogSoftmax { floor: -20.0 };
    let mut code = learned_metadata();
    code.spec.transform = transform;
    code.calibration = Some(calibration(Score::Margin, &[0.5], &[0.25, 0.5]));
    let fixture = learned(3, code, LEARNED).await;
    let (response, provenance, _) = fixture.first_of_two_late().await;
    let measured = [Some(0.25), Some(0.5)].contains(&provenance.confidence);
    assert!(provenance.calibrated && measured, "{provenance:?}");
    assert_eq!(response.parameters["output_domain"], "log_probabilities");
}

#[tokio::test(start_paused = true)]
async fn queries_are_answered_while_coding_is_given_up_for_want_of_a_place() {
    let strategy = format!("{LEARNED}\nmax_coding_queue = 1");
    let fixture = learned(3, learned_metadata(), &strategy).await;
    let asked: Vec<_> = (0..40).map(|sample| fixture.ask(sample as f32)).collect();
    for asked in asked {
        asked.await.unwrap().0.unwrap();
    }
}

#[test]
fn a_learned_code_that_cannot_be_served_is_one_line_at_the_start() {
    let root = repository();
    add_learned_code(root.path(), "linear-code", learned_metadata());
    let other = CodeMetadata::new("other", 0, CodeSpec::new(EncoderKind::Learned, 2, 1));
    add_learned_code(root.path(), "others-code", other);
    let mistakes = r#"
        model = "linear-code" => => strategy.model: missing; name the learned code's entry
        linear-code => gone => strategy.model: & no model "gone"
        linear-code => linear-parity => "linear-parity" is no learned code
        k = 2 => k = 3 => k = 3 here, and code.k = 2 in & set k = 2
        k = 2 => k = 2\nr = 2 => r = 2 here, and code.r = 1 in
        k = 2 => k = 2\nversion = 4 => strategy.version: & no version 4
        "learned" => "sum" => only a learned code has an entry of its own
        k = 2 => k = 2\nmax_coding_queue = 0 => strategy.max_coding_queue: 0
        audit_every = 1 => [[models.strategy.parity]]\nmodel = "linear-parity"\ninstances = ["127.0.0.1:7100"] => strategy.parity: encoder = "learned"
        linear-code => others-code => deployed = linear here, and code.deployed = other
    "#;
    let text = strategy_toml(root.path(), &addresses(3, 7000), LEARNED);
    replacements_are_refused(&text, mistakes);
    let text = strategy_toml(root.path(), &addresses(1, 7000), LEARNED);
    refused(&text, &["second instance"]);
}

#[test]
fn networks_that_cannot_be_served_are_one_line_at_the_start() {
    let root = repository();
    add_learned_code(root.path(), "linear-code", learned_metadata());
    let text = strategy_toml(root.path(), &addresses(3, 7000), LEARNED);
    let decoder = root.path().join("linear-code/1/decoder.onnx");
    let narrow = linear_model(&[OUTPUTS], &[0.0; OUTPUTS * OUTPUTS], &[0.0; OUTPUTS]).unwrap();
    fs::write(&decoder, narrow).unwrap();
    let parts = ["decoder.onnx: its input has 3 values a sample", "9"];
    refused(&text, &parts);
    fs::write(&decoder, b"torn").unwrap();
    let part = "decoder.onnx: not a network that ONNX Runtime can run";
    refused(&text, &[part]);
    fs::remove_file(&decoder).unwrap();
    refused(&text, &["decoder.onnx: missing"]);
}
