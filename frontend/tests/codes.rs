//! What clients get from each code: instances in memory, paused time.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use parapet_encoder::{CodeSpec, EncoderKind, OutputTransform};
use parapet_frontend_core::PoolId;
use support::fixture::{Fixture, MS, addresses, expected, fixture};
use support::memory::{Memory, Model, SERVICE, State, id};
use support::{INPUTS, OUTPUTS, add_parity_row, close, coded_toml, linear, repository};
use tokio::time::sleep;

/// k = 2, r = 1, two deployed instances, one parity instance.
async fn transformed(transform: OutputTransform, model: Model) -> Fixture {
    let repository = repository();
    let spec = CodeSpec { transform, ..CodeSpec::new(EncoderKind::Sum, 2, 1) };
    add_parity_row(repository.path(), "linear-parity", 0, spec);
    let (deployed, parity) = (addresses(2, 7000), addresses(1, 7100));
    let text = coded_toml(repository.path(), &deployed, &parity, "slots_per_instance = 1");
    fixture(repository, &text, Memory::of(&[2, 1], model)).await
}

/// Freezes the instance that gets the first of two queries; its answer, and its parameter `output_domain`.
async fn first_of_two_late(fixture: &Fixture) -> (Vec<f32>, Option<String>) {
    fixture.memory.set(id(0, 0), State::Frozen);
    let (first, second) = (fixture.ask(1.0), fixture.ask(2.0));
    second.await.unwrap().0.unwrap();
    let (response, provenance) = first.await.unwrap().0.unwrap();
    assert_eq!(provenance.kind, "reconstructed");
    let domain = response.parameters.get("output_domain").map(|domain| domain.as_str().unwrap().to_owned());
    (response.outputs[0].f32s().unwrap(), domain)
}

#[tokio::test(start_paused = true)]
async fn standardised_outputs_come_back_in_the_deployed_models_domain() {
    let transform = OutputTransform::Standardised { mean: vec![3.0], deviation: vec![0.5] };
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
        _ => log_probabilities(1.0).iter().zip(log_probabilities(2.0)).map(|(a, b)| a + b).collect(),
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
    assert!((agreed - 1.0).abs() < 1e-9, "compared by top class: {agreed}");
    let (exact, provenance) = fixture.ask(3.0).await.unwrap().0.unwrap();
    assert_eq!((provenance.kind, exact.parameters.get("output_domain")), ("exact", None));
}
