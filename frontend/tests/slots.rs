//! Codes with slots: a parity output holds an approximation of every member's prediction.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::path::Path;
use std::time::Duration;

use parapet_config::repository::{CodeMetadata, Platform};
use parapet_encoder::{CodeSpec, EncoderKind};
use parapet_frontend::tenants::MixingDomain;
use parapet_frontend_core::PoolId;
use parapet_open_inference::{Datatype, Tensor};
use support::fixture::*;
use support::memory::*;
use support::*;
use tokio::time::sleep;

const SECOND: Duration = Duration::from_secs(1);
const STRATEGY: &str = "kind = \"coded\"\nencoder = \"stack\"\ndecoding = \"slots\"\nk = 2\n\
     hold_back = { fixed_ms = 30 }\naudit_every = 1\n\
     [[models.strategy.parity]]\nmodel = \"linear-parity\"\ninstances = [\"127.0.0.1:7100\"]\n";

fn slots(is_isolated: bool) -> CodeMetadata {
    CodeMetadata {
        isolated: is_isolated,
        ..CodeMetadata::new("linear", 0, CodeSpec::new(EncoderKind::Stack, 2, 1))
    }
}

/// An entry of a parity model with inputs and outputs of these shapes.
fn add_parity(root: &Path, code: CodeMetadata, input: &[usize], output: &[usize]) {
    let tensors = (vec![spec_of("input", input)], vec![spec_of("output", output)]);
    let platform = Platform::OnnxRuntime;
    add_entry(root, "linear-parity", platform, tensors, Some(code));
}

fn spec_of(name: &str, shape: &[usize]) -> parapet_config::repository::TensorSpec {
    spec(name, Datatype::Fp32, shape)
}

fn stacked(is_isolated: bool) -> (tempfile::TempDir, String) {
    let repository = repository();
    let code = slots(is_isolated);
    add_parity(repository.path(), code, &[2, INPUTS], &[2, OUTPUTS]);
    let text = strategy_toml(repository.path(), &addresses(3, 7000), STRATEGY);
    (repository, text)
}

/// The parity model answers this sample with NaN.
const ODD: f32 = 13.0;

/// Three deployed instances and a parity instance, which gives each slot's own prediction.
async fn served() -> Fixture {
    served_as(false, "").await
}

async fn served_as(is_isolated: bool, extra: &str) -> Fixture {
    served_from(State::Well(SERVICE), is_isolated, extra).await
}

/// The same with the deployed instances in this state at the start.
async fn served_from(start: State, is_isolated: bool, extra: &str) -> Fixture {
    let (repository, text) = stacked(is_isolated);
    let mut memory = Memory::of(&[3, 1], |pool, input| {
        let mut predictions = linear_all(&values(input));
        if pool == PoolId::DEPLOYED {
            return output(&predictions);
        }
        assert_eq!(input.tensors[0].shape, [1, 2, INPUTS]);
        let slots = predictions.chunks_mut(OUTPUTS);
        for (slot, sample) in slots.zip(values(input).chunks(INPUTS)) {
            if sample == sample_of(ODD) {
                slot.fill(f32::NAN);
            }
        }
        vec![Tensor::from_f32("output", [1, 2, OUTPUTS], &predictions).unwrap()]
    });
    memory.has_slots = true;
    (0..3).for_each(|index| memory.set(id(0, index), start));
    // The decoding that goes with stacks.
    let text = text.replace("decoding = \"slots\"\n", extra);
    fixture(repository, &text, memory).await
}

#[tokio::test(start_paused = true)]
async fn a_group_whose_members_are_all_late_is_answered_from_one_parity_output() {
    let fixture = served().await;
    fixture.set_all((0..3).map(|index| (0, index)), State::Frozen);
    for (sample, asked) in [1.0, 2.0].map(|sample| (sample, fixture.ask(sample))) {
        let (answered, took) = asked.await.unwrap();
        let (response, provenance) = answered.unwrap();
        assert_eq!(provenance.kind, "reconstructed");
        assert_eq!(provenance.code.as_deref(), Some("stack-slots-k2-r1"));
        assert_eq!(response.outputs[0].shape, [1, OUTPUTS]);
        assert_close(&response.outputs[0].f32s().unwrap(), &expected(sample));
        assert!(took < HOLD_BACK + 5 * MS, "{took:?}");
    }
    fixture.set_all((0..3).map(|index| (0, index)), State::Well(SERVICE));
    sleep(10 * SERVICE).await;
    let agreed = fixture.compared("stack-slots-k2-r1", "late_truth", true);
    assert_eq!(agreed, 2.0);
}

#[tokio::test(start_paused = true)]
async fn parity_instances_stand_in_once_the_deployed_ones_were_up() {
    let deployed = [0, 1, 2].map(|index| (0, index));
    let fixture = served_from(State::Dead, false, "").await;
    sleep(2 * SECOND).await;
    assert!(!fixture.model.driver.is_ready(), "not at a start");
    // Nothing asks for readiness meanwhile.
    fixture.set_all(deployed, State::Well(SERVICE));
    sleep(SECOND).await;
    fixture.set_all(deployed, State::Dead);
    sleep(2 * SECOND).await;
    assert!(fixture.model.driver.is_ready());
    let mut asked = Vec::new();
    for number in 0..400_u16 {
        asked.push(fixture.ask(f32::from(number % 10)));
        sleep(3 * MS).await;
    }
    for asked in asked {
        let (answered, took) = asked.await.unwrap();
        let provenance = answered.unwrap().1;
        assert_eq!(provenance.kind, "reconstructed");
        assert!(provenance.confidence.unwrap() < 1.0);
        assert!(took < 3 * SERVICE, "nothing is waited for: {took:?}");
    }
    fixture.set_all([(1, 0)], State::Dead);
    sleep(2 * SECOND).await;
    assert!(!fixture.model.driver.is_ready());
}

#[tokio::test(start_paused = true)]
async fn late_queries_alone_are_grouped_when_late() {
    let fixture = served_as(false, "send_parity = \"when_late\"\n").await;
    fixture.two_exact([1.0, 2.0]).await;
    fixture.set_all((0..3).map(|index| (0, index)), State::Frozen);
    for (sample, asked) in [3.0, 4.0].map(|sample| (sample, fixture.ask(sample))) {
        let (answered, took) = asked.await.unwrap();
        let (response, provenance) = answered.unwrap();
        assert_eq!(provenance.kind, "reconstructed");
        assert_close(&response.outputs[0].f32s().unwrap(), &expected(sample));
        assert!(took > HOLD_BACK && took < HOLD_BACK + SERVICE + 5 * MS, "{took:?}");
    }
    let stats = fixture.model.driver.stats();
    assert_eq!((stats.groups_encoded, stats.redundant.issued), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_is_not_finite_spoils_no_other() {
    let fixture = served().await;
    fixture.set_all((0..3).map(|index| (0, index)), State::Frozen);
    let spoilt = fixture.ask_with(ODD, &[("timeout", 100_000.into())]);
    let (answered, took) = fixture.ask(2.0).await.unwrap();
    let (response, provenance) = answered.unwrap();
    assert_eq!(provenance.kind, "reconstructed");
    assert_close(&response.outputs[0].f32s().unwrap(), &expected(2.0));
    assert!(took < HOLD_BACK + 5 * MS, "{took:?}");
    assert!(spoilt.await.unwrap().0.is_err(), "its own slot is refused");
}

#[tokio::test(start_paused = true)]
async fn tenants_that_do_not_mix_share_groups_only_where_slots_are_isolated() {
    for (is_isolated, groups) in [(true, 1), (false, 2)] {
        let fixture = served_as(is_isolated, "").await;
        fixture.set_all((0..3).map(|index| (0, index)), State::Well(4 * HOLD_BACK));
        let ask = |tenant| fixture.ask_as(MixingDomain::of_tenant(tenant), 1.0, &[]);
        for asked in ["a", "b"].map(ask) {
            assert_eq!(asked.await.unwrap().0.unwrap().1.kind, "reconstructed");
        }
        assert_eq!(fixture.model.driver.stats().groups_encoded, groups);
    }
}

#[tokio::test(start_paused = true)]
async fn undisturbed_groups_are_audited_slot_by_slot() {
    let fixture = served().await;
    fixture.two_exact([1.0, 2.0]).await;
    sleep(10 * SERVICE).await;
    assert_eq!(fixture.compared("stack-slots-k2-r1", "audit", true), 1.0);
}

#[test]
fn a_code_that_does_not_fit_its_entry_is_refused() {
    let (repository, text) = stacked(false);
    let mistakes = r#"
        decoding = "slots" => decoding = "linear" => decoding = "linear" here & code.decoding = "slots"
        decoding = "slots" => decoding = "slot" => unknown variant `slot`
        encoder = "stack" => encoder = "concat" => encoder = "concat" here & code.encoder = "stack"
        k = 2 => k = 3 => k = 3 here & code.k = 2
    "#;
    replacements_are_refused(&text, mistakes);
    let code = slots(false);
    add_parity(repository.path(), code, &[2, INPUTS + 1], &[2, OUTPUTS]);
    let parts = "parity[0].model & [2, 5], not [2, 4] & model.toml & name a parity model";
    refused_with(&text, parts);
    add_parity_row(repository.path(), "linear-parity", 0, sum(2, 1));
    let linear = "decoding = \"linear\"\nsend_parity = \"when_late\"";
    let parts =
        "strategy.send_parity & \"when_late\" with decoding = \"linear\" & use a code with slots";
    refused_with(&text.replace("decoding = \"slots\"", linear), parts);
    let asked = text.replace("\"stack\"", "\"sum\"");
    refused_with(&asked, "decoding = \"slots\" here & code.decoding = \"linear\"");
}
