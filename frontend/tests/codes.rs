//! Answers that clients get from each code: instances in memory, paused time.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::time::Duration;

use parapet_config::repository::{Calibration, CodeMetadata, Score};
use parapet_decoder::ClassAxis;
use parapet_encoder::{CodeSpec, EncoderKind, OutputTransform};
use parapet_frontend_core::PoolId;
use support::fixture::{Fixture, MS, addresses, expected, fixture};
use support::memory::{Memory, Model, SERVICE, State, id};
use support::{
    INPUTS, OUTPUTS, add_model, add_parity_row, close, coded_toml, config, linear, repository,
    strategy_toml,
};
use tokio::time::sleep;

const HOLD_BACK: Duration = Duration::from_millis(30);

/// k = 2, r = 1, two deployed instances, one parity instance.
async fn transformed(transform: OutputTransform, model: Model) -> Fixture {
    let repository = repository();
    let spec = CodeSpec {
        transform,
        ..CodeSpec::new(EncoderKind::Sum, 2, 1)
    };
    add_parity_row(repository.path(), "linear-parity", 0, spec);
    let (deployed, parity) = (addresses(2, 7000), addresses(1, 7100));
    let text = coded_toml(
        repository.path(),
        &deployed,
        &parity,
        "slots_per_instance = 1",
    );
    fixture(repository, &text, Memory::of(&[2, 1], model)).await
}

/// Freezes the instance that gets the first of two queries; its answer, and its parameter
/// `output_domain`.
async fn first_of_two_late(fixture: &Fixture) -> (Vec<f32>, Option<String>) {
    fixture.memory.set(id(0, 0), State::Frozen);
    let (first, second) = (fixture.ask(1.0), fixture.ask(2.0));
    second.await.unwrap().0.unwrap();
    let (response, provenance) = first.await.unwrap().0.unwrap();
    assert_eq!(provenance.kind, "reconstructed");
    let domain = response
        .parameters
        .get("output_domain")
        .map(|domain| domain.as_str().unwrap().to_owned());
    (response.outputs[0].f32s().unwrap(), domain)
}

#[tokio::test(start_paused = true)]
async fn standardised_outputs_come_back_in_the_deployed_models_domain() {
    let transform = OutputTransform::Standardised {
        mean: vec![3.0],
        deviation: vec![0.5],
    };
    let fixture = transformed(transform, |pool, values| {
        let outputs = values.chunks(INPUTS).flat_map(linear);
        // The parity model's answer is the sum over both queries of what is standardised.
        if pool == PoolId::DEPLOYED {
            outputs.collect()
        } else {
            outputs.map(|sum| (sum - 2.0 * 3.0) / 0.5).collect()
        }
    })
    .await;
    let (answer, domain) = first_of_two_late(&fixture).await;
    assert!(close(&answer, &expected(1.0)), "{answer:?}");
    assert_eq!(domain, None, "nothing to tell the client");
}

#[tokio::test(start_paused = true)]
async fn log_probabilities_are_told_to_the_client_and_agree_with_the_late_truth() {
    const TRANSFORM: OutputTransform = OutputTransform::LogSoftmax { floor: -20.0 };
    fn log_probabilities(sample: f32) -> Vec<f32> {
        let mut outputs = expected(sample);
        TRANSFORM.apply(&mut outputs, OUTPUTS);
        outputs
    }
    let fixture = transformed(TRANSFORM, |pool, values| match pool {
        PoolId::DEPLOYED => values.chunks(INPUTS).flat_map(linear).collect(),
        _ => log_probabilities(1.0)
            .iter()
            .zip(log_probabilities(2.0))
            .map(|(a, b)| a + b)
            .collect(),
    })
    .await;
    let (answer, domain) = first_of_two_late(&fixture).await;
    assert!(close(&answer, &log_probabilities(1.0)), "{answer:?}");
    assert_eq!(domain.as_deref(), Some("log_probabilities"));

    fixture.memory.set(id(0, 0), State::Well(SERVICE));
    sleep(10 * SERVICE + MS).await;
    let agreed = fixture.metric(
        r#"parapet_reconstruction_agreement_total{model="linear",code="sum-k2-r1",source="late_truth",agrees="true"}"#,
    );
    assert!(
        (agreed - 1.0).abs() < 1e-9,
        "compared by top class: {agreed}"
    );
    let (exact, provenance) = fixture.ask(3.0).await.unwrap().0.unwrap();
    assert_eq!(
        (provenance.kind, exact.parameters.get("output_domain")),
        ("exact", None)
    );
}

const TWO_ROWS: &str = "kind = \"coded\"\nencoder = \"sum\"\nk = 3\nr = 2\nhold_back = { fixed_ms = 30 }\n\
     [[models.strategy.parity]]\nmodel = \"row-0\"\ninstances = [\"127.0.0.1:7100\"]\n\
     [[models.strategy.parity]]\nmodel = \"row-1\"\ninstances = [\"127.0.0.1:7200\"]\n";

fn two_rows_repository() -> tempfile::TempDir {
    let repository = repository();
    for row in 0..2 {
        let spec = CodeSpec::new(EncoderKind::Sum, 3, 2);
        add_parity_row(repository.path(), &format!("row-{row}"), row, spec);
    }
    repository
}

/// k = 3, r = 2, three deployed instances, a pool of one instance for each row.
async fn two_rows() -> Fixture {
    let repository = two_rows_repository();
    let text = strategy_toml(repository.path(), &addresses(3, 7000), TWO_ROWS);
    let memory = Memory::of(&[3, 1, 1], |_, values| {
        values.chunks(INPUTS).flat_map(linear).collect()
    });
    fixture(repository, &text, memory).await
}

#[tokio::test(start_paused = true)]
async fn two_rows_make_up_for_two_late_members_exactly() {
    let fixture = two_rows().await;
    fixture.memory.set(id(0, 0), State::Frozen);
    fixture.memory.set(id(0, 2), State::Well(SERVICE * 1000));
    let asked = [fixture.ask(1.0), fixture.ask(2.0), fixture.ask(3.0)];
    let mut kinds = Vec::new();
    for (asked, sample) in asked.into_iter().zip([1.0, 2.0, 3.0]) {
        let (answered, took) = asked.await.unwrap();
        let (response, provenance) = answered.unwrap();
        assert!(
            close(&response.outputs[0].f32s().unwrap(), &expected(sample)),
            "{sample}: {response:?}"
        );
        assert!(took < HOLD_BACK + 5 * MS, "{sample}: {took:?}");
        kinds.push(provenance.kind);
    }
    assert_eq!(kinds, ["reconstructed", "exact", "reconstructed"]);
}

#[tokio::test(start_paused = true)]
async fn one_row_of_two_makes_up_for_one_late_member() {
    let fixture = two_rows().await;
    fixture.memory.set(id(0, 1), State::Frozen);
    fixture.memory.set(id(1, 0), State::Frozen);
    let asked = [fixture.ask(1.0), fixture.ask(2.0), fixture.ask(3.0)];
    let [_, late, _] = asked;
    let (answered, took) = late.await.unwrap();
    let (response, provenance) = answered.unwrap();
    assert_eq!(
        (provenance.kind, provenance.code.as_deref()),
        ("reconstructed", Some("sum-k3-r2"))
    );
    assert!(
        close(&response.outputs[0].f32s().unwrap(), &expected(2.0)),
        "by row 1: {response:?}"
    );
    assert!(took < HOLD_BACK + 5 * MS, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn parity_models_of_rows_with_different_transforms_are_refused() {
    let repository = two_rows_repository();
    let transform = OutputTransform::LogSoftmax { floor: -20.0 };
    let spec = CodeSpec {
        transform,
        ..CodeSpec::new(EncoderKind::Sum, 3, 2)
    };
    add_parity_row(repository.path(), "row-1", 1, spec);
    let text = strategy_toml(repository.path(), &addresses(3, 7000), TWO_ROWS);
    let error = config(&text).unwrap_err().to_string();
    assert!(
        error.contains("parity[1].model") && error.contains("transform"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_measured_agreement_is_the_confidence_that_clients_are_told() {
    let repository = repository();
    let edges = vec![0.5, 0.9];
    let calibration = Calibration {
        score: Score::Margin,
        edges,
        agreement: vec![0.25, 0.5, 0.75],
    };
    let code = CodeMetadata {
        calibration: Some(calibration.clone()),
        ..CodeMetadata::new("linear", 0, CodeSpec::new(EncoderKind::Sum, 2, 1))
    };
    add_model(repository.path(), "linear-parity", Some(code));
    let (deployed, parity) = (addresses(2, 7000), addresses(1, 7100));
    let text = coded_toml(
        repository.path(),
        &deployed,
        &parity,
        "slots_per_instance = 1",
    );
    let fixture = fixture(repository, &text, Memory::new(2, 1)).await;
    fixture.memory.set(id(0, 0), State::Frozen);
    let (first, second) = (fixture.ask(1.0), fixture.ask(2.0));
    let (exact, _) = second.await.unwrap().0.unwrap();
    assert_eq!(exact.parameters["confidence"], 1.0);
    assert!(!exact.parameters.contains_key("confidence_calibrated"));
    let (response, _) = first.await.unwrap().0.unwrap();
    let told = response.parameters["confidence"].as_f64().unwrap() as f32;
    let answer = expected(1.0);
    let scores = ClassAxis::of(&[OUTPUTS]).unwrap().scores(&answer).unwrap();
    assert_eq!(told, calibration.confidence(scores));
    assert!(
        [0.25, 0.5, 0.75].contains(&told),
        "a measured agreement, {told}"
    );
    assert_eq!(response.parameters["confidence_calibrated"], true);
}
