//! The driver with instances in memory, in paused time: what clients see of CG-1 to CG-8, to the
//! millisecond.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod instances;
#[path = "../support/mod.rs"]
mod support;

use std::sync::atomic::Ordering;
use std::time::Duration;

use parapet_frontend::discovery::{Addresses, Memory as Discovery};
use parapet_frontend::error::ServeError;
use parapet_frontend_core::{FailureKind, PoolId};
use parapet_open_inference::Parameters;
use support::close;
use support::fixture::{
    Fixture, MS, addresses, coded, coded_with, discovered, expected, plain, with_strategy,
};
use support::memory::{SERVICE, State, id};
use tokio::time::{sleep, timeout};

const HOLD_BACK: Duration = Duration::from_millis(30);

const HEDGE: &str = "kind = \"hedge\"\ndelay = { fixed_ms = 30 }\nshare = 0.5";
const BACKUP: &str = "kind = \"approximate_backup\"\nmodel = \"cheap\"\ninstances = \
    [\"127.0.0.1:7100\"]\n\
                      delay = { fixed_ms = 30 }";

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
    assert!(
        close(&response.outputs[0].f32s().unwrap(), &expected(1.0)),
        "{response:?}"
    );
    assert!(
        took >= HOLD_BACK && took < HOLD_BACK + 5 * MS,
        "CG-4: {took:?}"
    );

    fixture.memory.set(id(0, 0), State::Well(SERVICE));
    sleep(10 * SERVICE).await;
    let agreed = fixture.metric(r#"parapet_reconstruction_agreement_total{model="linear",code="sum-k2-r1",source="late_truth",agrees="true"}"#);
    assert!(
        (agreed - 1.0).abs() < 1e-9,
        "the late truth was compared: {agreed}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_lone_query_is_completed_with_answered_ones() {
    let fixture = coded(2, 1).await;
    for sample in [1.0, 2.0, 3.0] {
        fixture.ask(sample).await.unwrap().0.unwrap();
    }
    sleep(Duration::from_secs(1)).await;
    // Three queries make one full group and one open one with an answered member; a fourth fills
    // it.
    fixture.ask(4.0).await.unwrap().0.unwrap();
    sleep(Duration::from_secs(1)).await;
    fixture.memory.set(id(0, 0), State::Frozen);
    fixture.memory.set(id(0, 1), State::Frozen);
    let (answered, took) = fixture.ask(5.0).await.unwrap();
    assert_eq!(answered.unwrap().1.kind, "reconstructed");
    assert!(took < HOLD_BACK + 5 * MS, "CG-5: {took:?}");
    assert!(fixture.metric(r#"parapet_coding_groups_total{model="linear",fillers="true"}"#) >= 1.0);
}

#[tokio::test(start_paused = true)]
async fn deadlines_hold_when_everything_is_frozen() {
    let fixture = coded(2, 1).await;
    for instance in [id(0, 0), id(0, 1), id(1, 0)] {
        fixture.memory.set(instance, State::Frozen);
    }
    let mut parameters = Parameters::new();
    parameters.insert("timeout".to_owned(), 80_000.into());
    for asked in [
        fixture.ask_with(1.0, parameters.clone()),
        fixture.ask_with(2.0, parameters),
    ] {
        let (answered, took) = asked.await.unwrap();
        match answered {
            Err(ServeError::Failed(failure)) => {
                assert_eq!(failure.kind, FailureKind::DeadlineExceeded)
            }
            other => panic!("{other:?}"),
        }
        assert!(took <= 80 * MS, "CG-1: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_parity_instances_serving_goes_on() {
    let fixture = coded(2, 1).await;
    fixture.memory.set(id(1, 0), State::Dead);
    sleep(Duration::from_secs(2)).await;
    for sample in 0..10u8 {
        let (answered, took) = fixture.ask(f32::from(sample)).await.unwrap();
        assert_eq!(answered.unwrap().1.kind, "exact");
        assert!(took < SERVICE + 2 * MS, "CG-7: {took:?}");
    }
    assert!(
        fixture.metric(
            r#"parapet_redundant_requests_total{model="linear",class="default",strategy="coded",fate="shed"}"#
        ) >= 1.0
    );
    assert!(fixture.metric(r#"parapet_instance_up{model="linear",pool="parity0""#) < 0.5);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_cancels_its_work() {
    let fixture = plain(1).await;
    fixture.memory.set(id(0, 0), State::Frozen);
    let asked = fixture.ask(1.0);
    sleep(10 * MS).await;
    assert_eq!(fixture.memory.in_flight.load(Ordering::SeqCst), 1);
    asked.abort();
    sleep(MS).await;
    assert_eq!(fixture.memory.in_flight.load(Ordering::SeqCst), 0, "CG-8");
    assert_eq!(fixture.model.driver().stats().queries_tracked, 0);
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses_and_says_when_to_come_back() {
    let fixture = coded_with(1, 1, "slots_per_instance = 1\nmax_queue = 2").await;
    fixture.memory.set(id(0, 0), State::Frozen);
    let _waiting: Vec<_> = (0..3u8).map(|i| fixture.ask(f32::from(i))).collect();
    sleep(MS).await;
    let (answered, took) = timeout(MS * 10, fixture.ask(9.0)).await.unwrap().unwrap();
    let error = answered.unwrap_err();
    assert_eq!(
        (error.classify().0.as_u16(), error.retry_after()),
        (503, Some(1))
    );
    assert!(took < MS, "refused at once: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn undisturbed_groups_are_audited() {
    let fixture = coded(2, 1).await;
    let (a, b) = (fixture.ask(1.0), fixture.ask(2.0));
    a.await.unwrap().0.unwrap();
    b.await.unwrap().0.unwrap();
    sleep(10 * SERVICE).await;
    let agreed = fixture.metric(r#"parapet_reconstruction_agreement_total{model="linear",code="sum-k2-r1",source="audit",agrees="true"}"#);
    assert!(agreed >= 1.0);
}

#[tokio::test(start_paused = true)]
async fn memory_does_not_grow_with_the_requests_served() {
    let fixture = coded_with(4, 2, "slots_per_instance = 4").await;
    for round in 0..50u8 {
        let asked: Vec<_> = (0..8u8)
            .map(|i| fixture.ask(f32::from(i) + f32::from(round)))
            .collect();
        for asked in asked {
            asked.await.unwrap().0.unwrap();
        }
    }
    sleep(Duration::from_secs(3)).await;
    let stats = fixture.model.driver().stats();
    assert_eq!(stats.accepted, 400);
    assert_eq!(stats.queries_tracked, 0);
    assert!(stats.groups_tracked <= 1, "{stats:?}");
    assert_eq!(stats.cg1_violations, 0);
}

#[tokio::test(start_paused = true)]
async fn a_query_on_a_frozen_instance_is_hedged_when_it_is_late() {
    let fixture = with_strategy(2, 0, HEDGE).await;
    fixture.memory.set(id(0, 0), State::Frozen);
    let mut parameters = Parameters::new();
    parameters.insert("allow_approximate".to_owned(), false.into());
    let (answered, took) = fixture.ask_with(1.0, parameters).await.unwrap();
    let (response, provenance) = answered.unwrap();
    assert_eq!(provenance.kind, "hedged");
    assert!(
        close(&response.outputs[0].f32s().unwrap(), &expected(1.0)),
        "exact in value"
    );
    assert!(
        took >= HOLD_BACK + SERVICE && took < HOLD_BACK + SERVICE + 3 * MS,
        "{took:?}"
    );
    sleep(MS).await;
    assert_eq!(
        fixture.memory.in_flight.load(Ordering::SeqCst),
        0,
        "the loser is withdrawn"
    );
    let won = r#"parapet_redundant_requests_total{model="linear",class="default",strategy="hedge",fate="won"}"#;
    assert!((fixture.metric(won) - 1.0).abs() < 1e-9);
}

#[tokio::test(start_paused = true)]
async fn an_error_of_one_copy_does_not_end_the_request() {
    let fixture = with_strategy(2, 0, "kind = \"replicate\"").await;
    fixture.memory.set(id(0, 0), State::Broken);
    let (answered, took) = fixture.ask(1.0).await.unwrap();
    assert_eq!(answered.unwrap().1.kind, "hedged");
    assert!(took < SERVICE + 2 * MS, "with no retry: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_backup_model_answers_when_the_deployed_one_is_late() {
    for (eager, expected_wait) in [
        ("eager = true", HOLD_BACK),
        ("eager = false", HOLD_BACK + SERVICE),
    ] {
        let fixture = with_strategy(2, 1, &format!("{BACKUP}\n{eager}")).await;
        assert_eq!(
            fixture.ask(3.0).await.unwrap().0.unwrap().1.kind,
            "exact",
            "in time"
        );
        fixture.memory.set(id(0, 0), State::Frozen);
        fixture.memory.set(id(0, 1), State::Frozen);
        let (answered, took) = fixture.ask(1.0).await.unwrap();
        assert_eq!(answered.unwrap().1.kind, "backup");
        assert!(
            took >= expected_wait && took < expected_wait + 3 * MS,
            "{eager}: {took:?}"
        );
        for index in 0..2 {
            fixture.memory.set(id(0, index), State::Well(SERVICE));
        }
        sleep(10 * SERVICE).await;
        let agreed = r#"parapet_reconstruction_agreement_total{model="linear",code="backup",source="late_truth",agrees="true"}"#;
        assert!(
            (fixture.metric(agreed) - 1.0).abs() < 1e-9,
            "the late truth was compared"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn coded_and_hedged_two_frozen_instances_cost_no_answer() {
    let coded = "kind = \"coded_hedged\"\nencoder = \"sum\"\nk = 2\nhold_back = { fixed_ms = 30 }\n\
                 hedge = { share = 0.5, burst = 4 }\n\
                 [[models.strategy.parity]]\nmodel = \"linear-parity\"\ninstances = \
                 [\"127.0.0.1:7100\"]";
    let fixture = with_strategy(4, 1, coded).await;
    for index in 0..2 {
        fixture.memory.set(id(0, index), State::Frozen);
    }
    let asked = [fixture.ask(1.0), fixture.ask(2.0)];
    for asked in asked {
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
    let of_class = |class: &str| {
        let mut parameters = Parameters::new();
        parameters.insert("class".to_owned(), class.into());
        parameters
    };
    let plain = fixture.ask_with(1.0, of_class("default"));
    sleep(MS).await;
    fixture.memory.set(id(0, 1), State::Frozen);
    let urgent = fixture.ask_with(2.0, of_class("urgent"));
    sleep(MS).await;
    fixture.memory.set(id(0, 0), State::Well(SERVICE));
    assert_eq!(plain.await.unwrap().0.unwrap().1.kind, "exact");
    let (answered, took) = urgent.await.unwrap();
    assert_eq!(answered.unwrap().1.kind, "hedged");
    assert!(took < HOLD_BACK + SERVICE + 3 * MS, "{took:?}");
    let error = fixture
        .ask_with(1.0, of_class("vip"))
        .await
        .unwrap()
        .0
        .unwrap_err();
    assert_eq!(error.classify().0.as_u16(), 400);
    assert!(error.to_string().contains("default, urgent"), "{error}");
}

/// Five times what two instances can do, for two seconds, in bursts: they stay busy, and who is let
/// in waits for no longer than a few service times.
#[tokio::test(start_paused = true)]
async fn under_overload_few_wait_and_the_others_hear_so_at_once() {
    let fixture = plain(2).await;
    let (mut asked, mut accepted, mut longest) = (Vec::new(), 0, Duration::ZERO);
    for round in 0..400 {
        for _ in 0..10 {
            asked.push((round, fixture.ask(1.0)));
        }
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
                assert!(took < MS, "{took:?}");
            }
        }
    }
    assert!(accepted > 700, "{accepted} of 800 that they can do");
    assert!(longest < 5 * SERVICE, "{longest:?}");
}

/// A reload replaces a model while a parity query of its is out: it is counted when it ends, though
/// the model gets no more queries.
#[tokio::test(start_paused = true)]
async fn redundant_requests_of_a_model_that_was_replaced_end_in_the_counters() {
    let fixture = coded_with(2, 1, "slots_per_instance = 1").await;
    for instance in [id(0, 0), id(1, 0)] {
        fixture.memory.set(instance, State::Frozen);
    }
    let (first, second) = (fixture.ask(1.0), fixture.ask(2.0));
    sleep(2 * HOLD_BACK).await;
    let fate = |fate: &str| {
        format!(
            r#"parapet_redundant_requests_total{{model="linear",class="default",strategy="coded",fate="{fate}"}}"#
        )
    };
    let ends = [fate("won"), fate("wasted"), fate("failed")];
    assert!(
        (fixture.metric(&fate("issued")) - 1.0).abs() < 0.5,
        "it is out"
    );
    assert!(
        ends.iter().all(|end| fixture.metric(end) < 0.5),
        "and has no answer"
    );
    let Fixture { model, metrics, .. } = fixture;
    let _ = (first.await.unwrap().0, second.await.unwrap().0);
    drop(model);
    sleep(Duration::from_secs(10)).await;
    let text = metrics.render();
    let counted = |line: &str| {
        let found = text
            .lines()
            .find_map(|candidate| candidate.strip_prefix(line));
        found.map_or(0, |value| value.trim().parse::<u64>().unwrap())
    };
    let ended: u64 = ends.iter().map(|end| counted(end)).sum();
    assert_eq!((counted(&fate("issued")), ended), (1, 1), "{text}");
}
