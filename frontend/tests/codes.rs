//! Answers that clients get from each code: instances in memory, paused time.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use parapet_config::repository::{CodeMetadata, Score};
use parapet_encoder::OutputTransform;
use parapet_frontend_core::PoolId;
use parapet_open_inference::InferResponse;
use support::fixture::*;
use support::memory::*;
use support::*;
use tokio::time::sleep;

/// k = 2, r = 1, two deployed instances, one parity instance.
async fn transformed(transform: OutputTransform, model: Model) -> Fixture {
    let repository = repository();
    let mut spec = sum(2, 1);
    spec.transform = transform;
    add_parity_row(repository.path(), "linear-parity", 0, spec);
    coded_in(repository, Memory::of(&[2, 1], model), ONE_SLOT).await
}

fn of_response(response: &InferResponse) -> (Vec<f32>, Option<&str>) {
    let domain = response.parameters.get("output_domain");
    (response.outputs[0].f32s().unwrap(), domain.map(|domain| domain.as_str().unwrap()))
}

#[tokio::test(start_paused = true)]
async fn standardised_outputs_come_back_in_the_deployed_models_domain() {
    let (mean, deviation) = (vec![3.0], vec![0.5]);
    let transform = OutputTransform::Standardised { mean, deviation };
    let fixture = transformed(transform, |pool, input| {
        let mut outputs = linear_all(&values(input));
        // The parity model's answer is the sum over both queries of what is standardised.
        if pool != PoolId::DEPLOYED {
            for sum in &mut outputs {
                *sum = (*sum - 2.0 * 3.0) / 0.5;
            }
        }
        output(&outputs)
    });
    let (response, ..) = fixture.await.first_of_two_late().await;
    let (answer, domain) = of_response(&response);
    assert_close(&answer, &expected(1.0));
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
    let fixture = transformed(TRANSFORM, |pool, input| {
        if pool == PoolId::DEPLOYED {
            return output(&linear_all(&values(input)));
        }
        let (one, two) = (log_probabilities(1.0), log_probabilities(2.0));
        output(&one.iter().zip(two).map(|(a, b)| a + b).collect::<Vec<_>>())
    })
    .await;
    let (response, ..) = fixture.first_of_two_late().await;
    let (answer, domain) = of_response(&response);
    assert_close(&answer, &log_probabilities(1.0));
    assert_eq!(domain, Some("log_probabilities"));

    fixture.memory.set(id(0, 0), State::Well(SERVICE));
    sleep(10 * SERVICE + MS).await;
    // Compared by top class.
    assert_eq!(fixture.compared("sum-k2-r1", "late_truth", true), 1.0);
    let (exact, provenance) = fixture.ask(3.0).await.unwrap().0.unwrap();
    assert_eq!((provenance.kind, of_response(&exact).1), ("exact", None));
}

const TWO_ROWS: &str = "kind = \"coded\"\nencoder = \"sum\"\nk = 3\nr = 2\n\
     hold_back = { fixed_ms = 30 }\n\
     [[models.strategy.parity]]\nmodel = \"row-0\"\ninstances = [\"127.0.0.1:7100\"]\n\
     [[models.strategy.parity]]\nmodel = \"row-1\"\ninstances = [\"127.0.0.1:7200\"]\n";

fn two_rows_repository() -> (tempfile::TempDir, String) {
    let repository = repository();
    for row in 0..2 {
        add_parity_row(repository.path(), &format!("row-{row}"), row, sum(3, 2));
    }
    let text = strategy_toml(repository.path(), &addresses(3, 7000), TWO_ROWS);
    (repository, text)
}

/// k = 3, r = 2, three deployed instances, a pool of one instance for each row.
async fn two_rows() -> Fixture {
    let (repository, text) = two_rows_repository();
    fixture(repository, &text, Memory::linear(&[3, 1, 1])).await
}

/// The kinds of the answers to three queries at the same time, which must be exact in value.
async fn three(fixture: &Fixture) -> Vec<(&'static str, Option<String>)> {
    let mut kinds = Vec::new();
    for (sample, asked) in [1.0, 2.0, 3.0].map(|sample| (sample, fixture.ask(sample))) {
        let (answered, took) = asked.await.unwrap();
        let (response, provenance) = answered.unwrap();
        assert_close(&response.outputs[0].f32s().unwrap(), &expected(sample));
        assert!(took < HOLD_BACK + 5 * MS, "{sample}: {took:?}");
        kinds.push((provenance.kind, provenance.code));
    }
    kinds
}

#[tokio::test(start_paused = true)]
async fn two_rows_make_up_for_two_late_members_exactly() {
    let fixture = two_rows().await;
    fixture.memory.set(id(0, 0), State::Frozen);
    fixture.memory.set(id(0, 2), State::Well(SERVICE * 1000));
    let answers = three(&fixture).await.into_iter();
    let kinds: Vec<_> = answers.map(|(kind, _)| kind).collect();
    assert_eq!(kinds, ["reconstructed", "exact", "reconstructed"]);
}

#[tokio::test(start_paused = true)]
async fn one_row_of_two_makes_up_for_one_late_member() {
    let fixture = two_rows().await;
    fixture.set_all([(0, 1), (1, 0)], State::Frozen);
    let by_row_1 = ("reconstructed", Some("sum-k3-r2".to_owned()));
    assert_eq!(three(&fixture).await[1], by_row_1);
}

#[test]
fn parity_models_of_rows_with_different_transforms_are_refused() {
    let (repository, text) = two_rows_repository();
    let mut spec = sum(3, 2);
    spec.transform = OutputTransform::LogSoftmax { floor: -20.0 };
    add_parity_row(repository.path(), "row-1", 1, spec);
    refused(&text, &["parity[1].model", "transform"]);
}

#[tokio::test(start_paused = true)]
async fn a_measured_agreement_is_the_confidence_that_clients_are_told() {
    let repository = repository();
    let calibration = calibration(Score::Margin, &[0.5, 0.9], &[0.25, 0.5, 0.75]);
    let mut code = CodeMetadata::new("linear", 0, sum(2, 1));
    code.calibration = Some(calibration.clone());
    add_model(repository.path(), "linear-parity", Some(code));
    let fixture = coded_in(repository, Memory::new(2, 1), ONE_SLOT).await;
    let (response, ..) = fixture.first_of_two_late().await;
    let told = response.parameters["confidence"].as_f64().unwrap() as f32;
    let answer = expected(1.0);
    assert_eq!(told, calibration.look_up(Score::Margin.of(&answer)));
    assert!(calibration.agreement.contains(&told), "{told}");
    assert_eq!(response.parameters["confidence_calibrated"], true);

    fixture.memory.set(id(0, 0), State::Well(SERVICE));
    let (exact, _) = fixture.ask(3.0).await.unwrap().0.unwrap();
    assert_eq!(exact.parameters["confidence"], 1.0);
    assert!(!exact.parameters.contains_key("confidence_calibrated"));
}
