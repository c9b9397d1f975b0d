//! One scenario for each behaviour of the redundancy strategies.

#![allow(clippy::unwrap_used, reason = "tests")]

mod coded_hedged;
#[path = "../harness/mod.rs"]
mod harness;

use std::time::Duration;

use harness::*;
use parapet_frontend_core::{
    ClassId, Comparison, Engine, FailureKind, HedgeConfig, StrategyConfig, Time,
};

const MINUTE: Duration = Duration::from_secs(60);
const MS: Duration = Duration::from_millis(1);

fn replicate(copies: u32) -> Harness {
    Harness::of(3, 1, StrategyConfig::Replicate(replicate_config(copies)))
}

fn hedge(instances: usize) -> Harness {
    Harness::of(instances, 1, StrategyConfig::Hedge(hedge_config()))
}

fn backup(eager: bool) -> Harness {
    let config = backup_config(eager);
    Harness::of(2, 1, StrategyConfig::ApproximateBackup(config))
}

fn coded_hedged() -> Harness {
    Harness::of(4, 1, StrategyConfig::CodedHedged(coded_hedged_config(2, 1)))
}

#[test]
fn every_strategy_is_built_by_its_configuration_for_any_payload() {
    let strategies = [
        StrategyConfig::None,
        StrategyConfig::Replicate(replicate_config(2)),
        StrategyConfig::Hedge(hedge_config()),
        StrategyConfig::ApproximateBackup(backup_config(false)),
        StrategyConfig::Coded(coded_config(2, 1)),
        StrategyConfig::CodedHedged(coded_hedged_config(2, 1)),
    ];
    for (strategy, name) in strategies.iter().zip(StrategyConfig::NAMES) {
        assert_eq!(strategy.name(), *name);
        let _: Engine<(), ()> = Engine::new(&core_config(2, 1, 1), strategy.build());
    }
}

#[test]
fn replicate_the_first_answer_wins_and_the_losers_are_withdrawn() {
    let mut harness = replicate(3);
    let query = harness.query();
    assert_eq!(harness.places(query), [0, 1, 2], "one at each instance");
    harness.complete_at(query, 1, None);
    assert_eq!(harness.fate(query), &Fate::Hedged, "by a copy");
    assert!(harness.sent.is_empty(), "the losers are withdrawn");
    let stats = harness.engine.stats();
    assert_eq!((stats.redundant.issued, stats.redundant.won), (2, 1));
    assert_eq!(stats.redundant.wasted, 1);
}

#[test]
fn replicate_the_own_request_may_win() {
    let mut harness = replicate(2);
    let query = harness.arrive(0, false, MINUTE).unwrap();
    harness.complete_at(query, 0, None);
    harness.expect(query, Fate::Exact);
    assert_eq!(harness.engine.stats().redundant.wasted, 1);
}

#[test]
fn an_error_of_one_copy_does_not_end_the_query_while_another_runs() {
    let mut harness = replicate(2);
    let query = harness.query();
    harness.complete_at(query, 0, Some(FailureKind::Refused));
    assert_eq!(harness.fate(query), &Fate::Waiting, "its copy is under way");
    assert_eq!(harness.engine.stats().retries, 0);
    harness.complete_at(query, 1, None);
    harness.expect(query, Fate::Hedged);

    let query = harness.query();
    let places = harness.places(query);
    harness.complete_at(query, places[1], Some(FailureKind::Refused));
    assert_eq!(harness.fate(query), &Fate::Waiting, "its own request is");
    assert_eq!(harness.engine.stats().redundant.failed, 1);
    harness.complete_at(query, places[0], Some(FailureKind::Refused));
    // The last error ends it.
    harness.expect(query, Fate::Failed(FailureKind::Refused));
}

#[test]
fn a_copy_waits_for_another_instance_although_its_own_has_a_free_slot() {
    let strategies = vec![StrategyConfig::None, StrategyConfig::Replicate(replicate_config(2))];
    let mut harness = Harness::build(core_config(2, 2, 0), strategies);
    let plain: Vec<usize> = (0..4).map(|_| harness.query()).collect();
    harness.complete_at(plain[0], 0, None);
    harness.complete_at(plain[2], 0, None);
    let copied = harness.arrive_in(ClassId(1), 0, true, MINUTE).unwrap();
    assert_eq!(harness.places(copied), [0], "beside a free slot");
    let other = harness.query();
    assert_eq!(harness.places(other), [0], "which is not kept for it");
    harness.complete_at(plain[1], 1, None);
    assert_eq!(harness.places(copied), [0, 1]);
}

#[test]
fn copies_are_shed_first() {
    let mut harness = replicate(2);
    let queries = [(); 3].map(|()| harness.query());
    // Its copy waits: no other instance is free.
    assert_eq!(harness.places(queries[1]).len(), 1);
    assert!(harness.places(queries[2]).is_empty(), "waits itself");
    // So that it gets no copy.
    assert_eq!(harness.engine.stats().redundant.shed, 1);
    harness.set_up(instance(0, 2), false);
}

#[test]
fn with_one_instance_left_serving_goes_on_plainly() {
    let mut harness = replicate(2);
    for index in [1, 2] {
        harness.set_up(instance(0, index), false);
    }
    let query = harness.query();
    assert_eq!(harness.places(query), [0]);
    harness.complete_at(query, 0, None);
    harness.expect(query, Fate::Exact);
    assert_eq!(harness.engine.stats().redundant.shed, 1);
}

#[test]
fn hedge_a_late_query_gets_a_second_copy_elsewhere() {
    let mut harness = hedge(2);
    let query = harness.arrive(0, false, MINUTE).unwrap();
    harness.advance(HOLD_BACK - MS);
    assert_eq!(harness.places(query), [0]);
    harness.advance(MS);
    assert_eq!(harness.places(query), [0, 1]);
    harness.advance(10 * HOLD_BACK);
    assert_eq!(harness.places(query).len(), 2, "one copy and no more");
    harness.complete_at(query, 1, None);
    // Although it takes no approximation: this is exact.
    harness.expect(query, Fate::Hedged);
    assert!(harness.sent.is_empty());
}

#[test]
fn hedge_a_punctual_query_costs_nothing() {
    let mut harness = hedge(2);
    let query = harness.query();
    harness.complete_client(query, None);
    harness.advance(10 * HOLD_BACK);
    assert_eq!(harness.engine.stats().redundant.issued, 0);
}

#[test]
fn hedge_the_budget_holds_when_everything_is_late() {
    let mut harness = hedge(40);
    for _ in 0..20 {
        harness.query();
    }
    harness.advance(HOLD_BACK);
    let stats = harness.engine.stats();
    // The burst, but for what is kept: the bucket was full all the while.
    assert_eq!((stats.redundant.issued, stats.redundant.shed), (2, 18));
    harness.advance(HOLD_BACK);
    let stats = harness.engine.stats();
    assert_eq!((stats.redundant.issued, stats.redundant.shed), (3, 18), "for one of the longest");
    harness.advance(HOLD_BACK);
    assert_eq!(harness.engine.stats().redundant.issued, 3);
}

#[test]
fn hedge_a_query_that_waits_for_a_slot_is_hedged_once_it_is_stuck() {
    let mut config = hedge_config();
    config.burst = 3.0;
    let mut harness = Harness::of(2, 1, StrategyConfig::Hedge(config));
    let [a, b] = harness.pair();
    harness.advance(MS);
    let waiting = harness.query();
    harness.advance(HOLD_BACK);
    assert!(harness.places(waiting).is_empty());
    harness.complete_at(a, 0, None);
    harness.complete_at(b, 1, None);
    let stuck = harness.places(waiting)[0];
    harness.advance(HOLD_BACK);
    assert_eq!(harness.places(waiting).len(), 2, "hedged");
    harness.complete_at(waiting, 1 - stuck, None);
    harness.expect(waiting, Fate::Hedged);
}

#[test]
fn a_withdrawn_copy_that_never_left_was_never_issued() {
    let mut harness = hedge(2);
    let [a, b] = harness.pair();
    harness.advance(HOLD_BACK);
    // Both copies wait.
    assert_eq!((harness.places(a).len(), harness.places(b).len()), (1, 1));
    harness.complete_at(a, 0, None);
    assert_eq!(harness.places(b), [1, 0], "instance 0 is for the copy of b");
    harness.complete_at(b, 1, None);
    harness.expect(a, Fate::Exact);
    harness.expect(b, Fate::Exact);
    // That of a never left.
    assert_eq!(harness.engine.stats().redundant.issued, 1);
}

#[test]
fn backup_asked_at_arrival_answers_at_the_moment_of_lateness() {
    let mut harness = backup(true);
    let query = harness.query();
    harness.complete_backup(None);
    assert_eq!(harness.fate(query), &Fate::Waiting, "CG-4: held");
    harness.advance(HOLD_BACK);
    harness.expect(query, Fate::Backup);
    assert!(harness.is_in_flight(query), "the truth is awaited");
    harness.complete_client(query, None);
    assert!(matches!(&harness.comparisons[..], [Comparison::LateTruth { .. }]), "and compared");
}

#[test]
fn backup_asked_when_late_answers_when_it_comes() {
    let mut harness = backup(false);
    let query = harness.query();
    harness.advance(HOLD_BACK - MS);
    assert_eq!(harness.sent.len(), 1, "not asked yet");
    harness.advance(MS);
    harness.complete_backup(None);
    harness.expect(query, Fate::Backup);
    harness.advance(LATE_TRUTH_WAIT);
    // The truth is not awaited for ever.
    assert!(!harness.is_in_flight(query));
}

#[test]
fn backup_the_deployed_models_word_counts_while_it_is_in_time() {
    let mut harness = backup(true);
    let query = harness.query();
    harness.complete_backup(None);
    harness.complete_client(query, None);
    harness.expect(query, Fate::Exact);
    let stats = harness.engine.stats();
    assert_eq!((stats.redundant.issued, stats.redundant.wasted), (1, 1));
}

#[test]
fn backup_not_for_who_wants_no_approximation() {
    let mut harness = backup(true);
    let query = harness.arrive(0, false, 100 * MS).unwrap();
    harness.advance(HOLD_BACK);
    assert_eq!(harness.sent.len(), 1, "the backup model is not even asked");
    harness.advance(80 * MS);
    harness.expect(query, Fate::Failed(FailureKind::DeadlineExceeded));
}

#[test]
fn backup_answers_a_lost_query_at_once() {
    let mut harness = backup(false);
    let query = harness.query();
    harness.complete_client(query, Some(FailureKind::Refused));
    // The backup model was asked instead.
    harness.expect(query, Fate::Waiting);
    harness.complete_backup(None);
    harness.expect(query, Fate::Backup);

    let query = harness.query();
    harness.complete_client(query, Some(FailureKind::Refused));
    harness.complete_backup(Some(FailureKind::InstanceError));
    // Neither has a prediction.
    harness.expect(query, Fate::Failed(FailureKind::Refused));
}

#[test]
fn hedge_sends_further_copies_a_delay_apart_up_to_its_limit() {
    let config = HedgeConfig { max_copies: 2, burst: 4.0, ..hedge_config() };
    let mut harness = Harness::of(4, 1, StrategyConfig::Hedge(config));
    let query = harness.query();
    let copies = [1, 2, 2].map(|_| {
        harness.advance(HOLD_BACK);
        harness.places(query).len() - 1
    });
    assert_eq!(copies, [1, 2, 2]);
    harness.complete_at(query, 0, None);
}

#[test]
fn budget_and_delay_of_a_strategy_are_shown() {
    let mut backup = backup(true);
    let budget = backup.engine.budget(ClassId::DEFAULT).unwrap();
    assert_eq!((budget.share, budget.burst, budget.left), (1.0, 4.0, 4.0));
    assert_eq!(u128::from(backup.engine.stats().hold_back_us), HOLD_BACK.as_micros());
    let mut coded_hedged = coded_hedged();
    let budget = coded_hedged.engine.budget(ClassId::DEFAULT).unwrap();
    assert_eq!((budget.share, budget.burst, budget.left), (1.2, 7.0, 7.0));
    coded_hedged.pair();
    let budget = coded_hedged.engine.budget(ClassId::DEFAULT).unwrap();
    assert_eq!(budget.left, 6.0, "a parity query of two that full buckets gain nothing for");
}
