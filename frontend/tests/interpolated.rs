//! What clients get where every query is coded and none is sent itself: instances in memory, paused time.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::time::Duration;

use parapet_open_inference::Parameters;
use support::fixture::{Fixture, MS, addresses, expected, fixture};
use support::memory::{Memory, SERVICE, State, id};
use support::{INPUTS, close, config, linear, repository, strategy_toml};

const HOLD_BACK: Duration = Duration::from_millis(30);
const FILL_WITHIN: Duration = Duration::from_millis(8);
const STRATEGY: &str = "kind = \"interpolated\"\nk = 4\nspare = 1\nfill_within_ms = 8\nplain_after_ms = 60\n\
                        hold_back = { fixed_ms = 30 }\naudit_every = 0";

/// k = 4, s = 1: five instances of the deployed model, and nothing else.
async fn interpolated() -> Fixture {
    let repository = repository();
    let text = strategy_toml(repository.path(), &addresses(5, 7000), STRATEGY);
    let memory = Memory::of(&[5], |_, values| values.chunks(INPUTS).flat_map(linear).collect());
    fixture(repository, &text, memory).await
}

/// Four queries whose answers differ so little that their order and size tell whether each got its own: the interpolant of a
/// linear model through points that are evenly apart is close to it.
const ALIKE: [f32; 4] = [1.0, 1.02, 1.04, 1.06];

fn nearly(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 0.2)
}

async fn four_answers(fixture: &Fixture) -> Vec<Duration> {
    let asked = ALIKE.map(|sample| fixture.ask(sample));
    let mut times = Vec::new();
    for (asked, sample) in asked.into_iter().zip(ALIKE) {
        let (answered, took) = asked.await.unwrap();
        let (response, provenance) = answered.unwrap();
        assert_eq!((provenance.kind, provenance.code.as_deref()), ("reconstructed", Some("berrut-k4-s1")));
        let values = response.outputs[0].f32s().unwrap();
        assert!(nearly(&values, &expected(sample)), "{values:?} for {sample}, {:?}", expected(sample));
        assert!(provenance.confidence < 1.0);
        times.push(took);
    }
    times
}

#[tokio::test(start_paused = true)]
async fn five_coded_queries_answer_four_queries() {
    let fixture = interpolated().await;
    for took in four_answers(&fixture).await {
        assert!(took < SERVICE + 2 * MS, "with all outputs there, none is held back: {took:?}");
    }
    let mut log = fixture.memory.log.lock().clone();
    log.sort();
    assert_eq!(log, [0, 1, 2, 3, 4].map(|index| id(0, index)), "one coded query for each instance");
}

#[tokio::test(start_paused = true)]
async fn a_frozen_instance_costs_nobody_more_than_the_hold_back() {
    for frozen in 0..5 {
        let fixture = interpolated().await;
        fixture.memory.set(id(0, frozen), State::Frozen);
        for took in four_answers(&fixture).await {
            assert!(took >= HOLD_BACK && took < HOLD_BACK + 2 * MS, "{frozen} frozen: {took:?}");
        }
        let issued = r#"parapet_redundant_requests_total{model="linear",class="default",strategy="interpolated",fate="issued"}"#;
        assert!((fixture.metric(issued) - 5.0).abs() < 1e-9, "{}", fixture.metric(issued));
    }
}

#[tokio::test(start_paused = true)]
async fn two_frozen_instances_leave_too_few_outputs_and_queries_are_sent_themselves() {
    let fixture = interpolated().await;
    fixture.memory.set(id(0, 1), State::Frozen);
    fixture.memory.set(id(0, 3), State::Frozen);
    let asked = ALIKE.map(|sample| fixture.ask(sample));
    for (asked, sample) in asked.into_iter().zip(ALIKE) {
        let (answered, took) = asked.await.unwrap();
        let (response, provenance) = answered.unwrap();
        assert_eq!(provenance.kind, "exact");
        assert!(close(&response.outputs[0].f32s().unwrap(), &expected(sample)));
        assert!(took >= 60 * MS && took < 60 * MS + 3 * SERVICE, "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lone_query_waits_no_longer_than_it_may_and_is_exact() {
    let fixture = interpolated().await;
    let (answered, took) = fixture.ask(1.0).await.unwrap();
    let (response, provenance) = answered.unwrap();
    assert_eq!(provenance.kind, "exact");
    assert!(close(&response.outputs[0].f32s().unwrap(), &expected(1.0)));
    assert!(took >= FILL_WITHIN + SERVICE && took <= FILL_WITHIN + SERVICE + 2 * MS, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_no_approximation_is_in_no_group() {
    let fixture = interpolated().await;
    let mut parameters = Parameters::new();
    parameters.insert("allow_approximate".to_owned(), false.into());
    let asked: Vec<_> = (0..4).map(|_| fixture.ask_with(1.0, parameters.clone())).collect();
    for asked in asked {
        let (answered, took) = asked.await.unwrap();
        assert_eq!(answered.unwrap().1.kind, "exact");
        assert!(took <= SERVICE + MS, "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn log_probabilities_are_told_to_the_client() {
    let repository = repository();
    let strategy = format!("{STRATEGY}\ntransform = {{ kind = \"log_softmax\" }}");
    let text = strategy_toml(repository.path(), &addresses(5, 7000), &strategy);
    let memory = Memory::of(&[5], |_, values| values.chunks(INPUTS).flat_map(linear).collect());
    let fixture = fixture(repository, &text, memory).await;
    let asked = ALIKE.map(|sample| fixture.ask(sample));
    for asked in asked {
        let (response, _) = asked.await.unwrap().0.unwrap();
        assert_eq!(response.parameters["output_domain"], "log_probabilities");
    }
}

#[test]
fn mistakes_are_named_on_one_line() {
    let repository = repository();
    let refused = |instances: u32, strategy: &str, parts: &[&str]| {
        let text = strategy_toml(repository.path(), &addresses(instances, 7000), strategy);
        let line = config(&text).unwrap_err().to_string();
        assert!(!line.contains('\n') && parts.iter().all(|part| line.contains(part)), "{line}");
    };
    let with = |from: &str, to: &str| STRATEGY.replace(from, to);
    refused(5, &with("k = 4", "k = 1"), &["strategy", "k = 1", "2 to"]);
    refused(5, &with("spare = 1", "spare = 0"), &["strategy", "spare = 0"]);
    refused(4, STRATEGY, &["strategy.k", "5 coded queries", "4 instances", "lower k"]);
    refused(5, &with("fill_within_ms = 8", "fill_within_ms = 0"), &["strategy.fill_within_ms"]);
    refused(
        5,
        &format!("{STRATEGY}\nredundant_burst = 4"),
        &["strategy.redundant_burst", "at least k + spare = 5"],
    );
    refused(5, &format!("{STRATEGY}\nencoder = \"berrut\""), &["encoder"]);
    let toml = repository.path().join("linear/model.toml");
    let text = std::fs::read_to_string(&toml).unwrap();
    std::fs::write(&toml, text.replacen("FP32", "INT64", 1)).unwrap();
    refused(5, STRATEGY, &["strategy.kind", "FP32"]);
}
