//! The driver with instances in memory, in paused time: what clients see of CG-1 to CG-8, to the
//! millisecond.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod instances;
#[path = "../support/mod.rs"]
mod support;

use std::time::Duration;

use parapet_frontend::error::ServeError;
use parapet_frontend_core::FailureKind;
use serde_json::json;
use support::assert_close;
use support::fixture::*;
use support::memory::{SERVICE, State, id};
use tokio::time::{sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);
const HEDGE: &str = "kind = \"hedge\"\ndelay = { fixed_ms = 30 }\nshare = 0.5";
const BACKUP: &str = "kind = \"approximate_backup\"\nmodel = \"cheap\"\ninstances = \
    [\"127.0.0.1:7100\"]\ndelay = { fixed_ms = 30 }";

#[tokio::test(start_paused = true)]
async fn a_query_on_a_frozen_instance_is_reconstructed_when_it_is_late() {
    let fixture = coded(2, 1).await;
    fixture.memory.set(id(0, 0), State::Frozen);
    let (first, second) = (fixture.ask(1.0), fixture.ask(2.0));

    let (exact, took) = second.await.unwrap();
    assert_eq!(exact.unwrap().1.kind, "exact");
    assert!(took < SERVICE + 2 * MS, "{took:?}");

    let (reconstructed, took) = first.await.unwrap();
    let (response, provenance) = reconstructed.unwrap();
    assert_eq!(provenance.kind, "reconstructed");
    assert_eq!(provenance.code.as_deref(), Some("sum-k2-r1"));
    let confidence = provenance.confidence.unwrap();
    assert!(confidence > 0.0 && confidence <= 1.0);
    let values = response.outputs[0].f32s().unwrap();
    assert_close(&values, &expected(1.0));
    let in_time = HOLD_BACK..HOLD_BACK + 5 * MS;
    assert!(in_time.contains(&took), "CG-4: {took:?}");

    fixture.memory.set(id(0, 0), State::Well(SERVICE));
    sleep(10 * SERVICE).await;
    let agreed = fixture.compared("sum-k2-r1", "late_truth", true);
    assert_eq!(agreed, 1.0, "the late truth was compared");
}

#[tokio::test(start_paused = true)]
async fn a_lone_query_is_completed_with_answered_ones() {
    let fixture = coded(2, 1).await;
    for sample in [1.0, 2.0, 3.0] {
        fixture.kind(sample).await;
    }
    sleep(SECOND).await;
    // Three queries make one full group and one open one with an answered member; a fourth fills
    // it.
    fixture.kind(4.0).await;
    sleep(SECOND).await;
    fixture.set_all([(0, 0), (0, 1)], State::Frozen);
    let (kind, took) = fixture.kind(5.0).await;
    assert_eq!(kind, "reconstructed");
    assert!(took < HOLD_BACK + 5 * MS, "CG-5: {took:?}");
    assert!(fixture.metric(r#"parapet_coding_groups_total{model="linear",fillers="true"}"#) >= 1.0);
}

#[tokio::test(start_paused = true)]
async fn deadlines_hold_when_everything_is_frozen() {
    let fixture = coded(2, 1).await;
    fixture.set_all([(0, 0), (0, 1), (1, 0)], State::Frozen);
    let timeout = [("timeout", json!(80_000))];
    for asked in [1.0, 2.0].map(|sample| fixture.ask_with(sample, &timeout)) {
        let (answered, took) = asked.await.unwrap();
        let Err(ServeError::Failed(failure)) = answered else {
            panic!("{answered:?}");
        };
        assert_eq!(failure.kind, FailureKind::DeadlineExceeded);
        assert!(took <= 80 * MS, "CG-1: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_parity_instances_serving_goes_on() {
    let fixture = coded(2, 1).await;
    fixture.memory.set(id(1, 0), State::Dead);
    sleep(2 * SECOND).await;
    for sample in 0..10u8 {
        let (kind, took) = fixture.kind(f32::from(sample)).await;
        assert_eq!(kind, "exact");
        assert!(took < SERVICE + 2 * MS, "CG-7: {took:?}");
    }
    assert!(fixture.metric(&redundant("coded", "shed")) >= 1.0);
    assert!(fixture.metric(r#"parapet_instance_up{model="linear",pool="parity0""#) < 0.5);
}

fn redundant(strategy: &str, fate: &str) -> String {
    format!(
        "parapet_redundant_requests_total{{model=\"linear\",class=\"default\",\
         strategy=\"{strategy}\",fate=\"{fate}\"}}"
    )
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_cancels_its_work() {
    let fixture = plain(1).await;
    fixture.memory.set(id(0, 0), State::Frozen);
    let asked = fixture.ask(1.0);
    sleep(10 * MS).await;
    assert_eq!(fixture.memory.in_flight(), 1);
    asked.abort();
    sleep(MS).await;
    assert_eq!(fixture.memory.in_flight(), 0, "CG-8");
    assert_eq!(fixture.model.driver.stats().queries_tracked, 0);
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses_and_says_when_to_come_back() {
    let fixture = coded_with(1, 1, &format!("{ONE_SLOT}\nmax_queue = 2")).await;
    fixture.memory.set(id(0, 0), State::Frozen);
    let _waiting: Vec<_> = (0..3u8).map(|i| fixture.ask(f32::from(i))).collect();
    sleep(MS).await;
    let (answered, took) = timeout(MS * 10, fixture.ask(9.0)).await.unwrap().unwrap();
    let error = answered.unwrap_err();
    assert_eq!(error.classify().0.as_u16(), 503);
    assert_eq!(error.retry_after(), Some(1));
    assert!(took < MS, "refused at once: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn undisturbed_groups_are_audited() {
    let fixture = coded(2, 1).await;
    fixture.two_exact([1.0, 2.0]).await;
    sleep(10 * SERVICE).await;
    assert!(fixture.compared("sum-k2-r1", "audit", true) >= 1.0);
}

#[tokio::test(start_paused = true)]
async fn memory_does_not_grow_with_the_requests_served() {
    let fixture = coded_with(4, 2, "slots_per_instance = 4").await;
    for round in 0..50u8 {
        let asked = (round..round + 8).map(|i| fixture.ask(f32::from(i)));
        for asked in asked.collect::<Vec<_>>() {
            asked.await.unwrap().0.unwrap();
        }
    }
    sleep(3 * SECOND).await;
    let stats = fixture.model.driver.stats();
    assert_eq!((stats.accepted, stats.queries_tracked), (400, 0));
    assert_eq!(stats.cg1_violations, 0);
    assert!(stats.groups_tracked <= 1, "{stats:?}");
}

#[tokio::test(start_paused = true)]
async fn a_query_on_a_frozen_instance_is_hedged_when_it_is_late() {
    let fixture = with_strategy(2, 0, HEDGE).await;
    fixture.memory.set(id(0, 0), State::Frozen);
    let exact = [("allow_approximate", json!(false))];
    let (answered, took) = fixture.ask_with(1.0, &exact).await.unwrap();
    let (response, provenance) = answered.unwrap();
    assert_eq!(provenance.kind, "hedged");
    // Exact in value.
    assert_close(&response.outputs[0].f32s().unwrap(), &expected(1.0));
    let due = HOLD_BACK + SERVICE;
    assert!(took >= due && took < due + 3 * MS, "{took:?}");
    sleep(MS).await;
    assert_eq!(fixture.memory.in_flight(), 0, "the loser is withdrawn");
    assert_eq!(fixture.metric(&redundant("hedge", "won")), 1.0);
}

#[tokio::test(start_paused = true)]
async fn an_error_of_one_copy_does_not_end_the_request() {
    let fixture = with_strategy(2, 0, "kind = \"replicate\"").await;
    fixture.memory.set(id(0, 0), State::Broken);
    let (kind, took) = fixture.kind(1.0).await;
    assert_eq!(kind, "hedged");
    assert!(took < SERVICE + 2 * MS, "with no retry: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_backup_model_answers_when_the_deployed_one_is_late() {
    for (eager, wait) in [("eager = true", HOLD_BACK), ("eager = false", HOLD_BACK + SERVICE)] {
        let fixture = with_strategy(2, 1, &format!("{BACKUP}\n{eager}")).await;
        assert_eq!(fixture.kind(3.0).await.0, "exact", "in time");
        fixture.set_all([(0, 0), (0, 1)], State::Frozen);
        let (kind, took) = fixture.kind(1.0).await;
        assert_eq!(kind, "backup");
        assert!(took >= wait && took < wait + 3 * MS, "{eager}: {took:?}");
        fixture.set_all([(0, 0), (0, 1)], State::Well(SERVICE));
        sleep(10 * SERVICE).await;
        let agreed = fixture.compared("backup", "late_truth", true);
        assert_eq!(agreed, 1.0, "the late truth was compared");
    }
}

#[tokio::test(start_paused = true)]
async fn coded_and_hedged_two_frozen_instances_cost_no_answer() {
    let coded = "kind = \"coded_hedged\"\nencoder = \"sum\"\nk = 2\nhold_back = { fixed_ms = 30 }\n\
                 hedge = { share = 0.5, burst = 4 }\n[[models.strategy.parity]]\n\
                 model = \"linear-parity\"\ninstances = [\"127.0.0.1:7100\"]";
    let fixture = with_strategy(4, 1, coded).await;
    fixture.set_all([(0, 0), (0, 1)], State::Frozen);
    for asked in [fixture.ask(1.0), fixture.ask(2.0)] {
        let (answered, took) = asked.await.unwrap();
        let kind = answered.unwrap().1.kind;
        assert!(matches!(kind, "hedged" | "reconstructed"), "{kind}");
        assert!(took < HOLD_BACK + SERVICE + 5 * MS, "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_names_its_class() {
    let classes = format!(
        "kind = \"none\"\n[[models.classes]]\nname = \"urgent\"\n[models.classes.strategy]\n{HEDGE}"
    );
    let fixture = with_strategy(2, 0, &classes).await;
    fixture.memory.set(id(0, 0), State::Frozen);
    let of_class = |sample, class| fixture.ask_with(sample, &[("class", json!(class))]);
    let plain = of_class(1.0, "default");
    sleep(MS).await;
    fixture.memory.set(id(0, 1), State::Frozen);
    let urgent = of_class(2.0, "urgent");
    sleep(MS).await;
    fixture.memory.set(id(0, 0), State::Well(SERVICE));
    assert_eq!(plain.await.unwrap().0.unwrap().1.kind, "exact");
    let (answered, took) = urgent.await.unwrap();
    assert_eq!(answered.unwrap().1.kind, "hedged");
    assert!(took < HOLD_BACK + SERVICE + 3 * MS, "{took:?}");
    let error = of_class(1.0, "vip").await.unwrap().0.unwrap_err();
    assert_eq!(error.classify().0.as_u16(), 400);
    assert!(error.to_string().contains("default, urgent"), "{error}");
}

/// Five times what two instances can do, for two seconds, in bursts: they stay busy, and accepted
/// queries wait for no longer than a few service times, once the queue was full and is shed.
#[tokio::test(start_paused = true)]
async fn overload_lets_few_wait_and_rejects_the_others_at_once() {
    let fixture = plain(2).await;
    let (mut asked, mut accepted, mut shed) = (Vec::new(), 0, 0);
    let mut longest = Duration::ZERO;
    for round in 0..400 {
        asked.extend((0..10).map(|_| (round, fixture.ask(1.0))));
        sleep(SERVICE).await;
    }
    for (round, asked) in asked {
        let (answered, took) = asked.await.unwrap();
        match answered {
            Ok(_) => {
                accepted += 1;
                // Until the service time is known and an interval has passed, the queue is as long
                // as it may be.
                if round > 100 {
                    longest = longest.max(took);
                }
            }
            Err(refused) => {
                assert_eq!(refused.classify().0.as_u16(), 503, "{refused}");
                shed += usize::from(took >= MS);
            }
        }
    }
    assert!((128..=256).contains(&shed), "{shed} of a queue of 256");
    assert!(accepted > 700, "{accepted} of 800 that they can do");
    assert!(longest < 5 * SERVICE, "{longest:?}");
}

/// A reload replaces a model while a parity query of its is out: it is counted when it ends, though
/// the model gets no more queries.
#[tokio::test(start_paused = true)]
async fn redundant_requests_of_a_model_that_was_replaced_end_in_the_counters() {
    let fixture = coded(2, 1).await;
    fixture.set_all([(0, 0), (1, 0)], State::Frozen);
    let (first, second) = (fixture.ask(1.0), fixture.ask(2.0));
    sleep(2 * HOLD_BACK).await;
    let fates = ["issued", "won", "wasted", "failed"].map(|fate| redundant("coded", fate));
    let counted = fates.each_ref().map(|fate| fixture.metric(fate));
    // It is out, and has no answer.
    assert_eq!(counted, [1.0, 0.0, 0.0, 0.0]);
    let Fixture { model, metrics, .. } = fixture;
    let _ = (first.await.unwrap().0, second.await.unwrap().0);
    drop(model);
    sleep(10 * SECOND).await;
    let text = metrics.render();
    let [issued, won, wasted, failed] =
        fates.map(|fate| support::metric(&text, &fate).unwrap_or_default());
    assert_eq!((issued, won + wasted + failed), (1.0, 1.0), "{text}");
}
