//! Blame for failures that an instance or its input may have caused: which instances are ejected,
//! which are not.

#![allow(clippy::unwrap_used, reason = "tests")]

mod harness;

use std::time::Duration;

use harness::*;
use parapet_frontend_core::{FailureKind, InstanceId, PoolId, SendParity, StrategyConfig};
use proptest::prelude::*;

const MINUTE: Duration = Duration::from_secs(60);
const MS: Duration = Duration::from_millis(1);
const NOT_FINITE: Option<FailureKind> = Some(FailureKind::InvalidOutput);

/// Failures held against each instance of a pool.
fn blamed(harness: &Harness, pool: u8) -> Vec<u32> {
    let views = harness.engine.instances(harness.now, 100);
    views.iter().filter(|view| view.id.pool.0 == pool).map(|view| view.failed.0).collect()
}

/// A query that every instance fails; its attempts.
fn poison(harness: &mut Harness, kind: FailureKind) -> usize {
    let query = harness.arrive(0, false, MINUTE).unwrap();
    let mut attempts = 0;
    while harness.is_in_flight(query) {
        harness.complete_client(query, Some(kind));
        attempts += 1;
    }
    harness.expect(query, Fate::Failed(kind));
    attempts
}

/// A query that all instances but those in `bad` answer.
fn honest(harness: &mut Harness, bad: &[u32]) {
    let query = harness.arrive(0, false, MINUTE).unwrap();
    while let Some(&place) = harness.places(query).first() {
        harness.complete_at(query, place, NOT_FINITE.filter(|_| bad.contains(&place)));
    }
}

#[test]
fn an_input_that_two_instances_fail_alike_is_tried_no_third_time_and_blames_neither() {
    for kind in [FailureKind::InvalidOutput, FailureKind::InstanceError] {
        let mut harness = Harness::plain(4, 1);
        assert_eq!(poison(&mut harness, kind), 2);
        assert_eq!(harness.engine.stats().retries, 1);
        assert_eq!(blamed(&harness, 0), [0; 4]);
    }
}

#[test]
fn poison_ejects_no_instance_however_much_of_it_there_is() {
    let mut harness = Harness::plain(4, 1);
    for _ in 0..200 {
        poison(&mut harness, FailureKind::InvalidOutput);
        harness.advance(MS);
    }
    assert_eq!(harness.engine.stats().ejections, 0);
    assert_eq!(blamed(&harness, 0), [0; 4]);
}

#[test]
fn an_instance_that_fails_what_another_answers_is_ejected() {
    let mut harness = Harness::plain(4, 1);
    for _ in 0..40 {
        honest(&mut harness, &[0]);
        harness.advance(MS);
    }
    let stats = harness.engine.stats();
    assert_eq!((stats.ejections, stats.ejected, stats.failed), (1, 1, 0));
}

#[test]
fn an_instance_that_answers_nothing_well_is_ejected_although_poison_spent_the_retries() {
    let mut harness = Harness::plain(4, 1);
    for _ in 0..100 {
        poison(&mut harness, FailureKind::InvalidOutput);
    }
    let mut rounds = 0;
    while harness.engine.stats().ejected == 0 && rounds < 200 {
        poison(&mut harness, FailureKind::InvalidOutput);
        // Three queries a round, so that each instance gets both sorts in turn.
        (0..2).for_each(|_| honest(&mut harness, &[0]));
        harness.advance(50 * MS);
        rounds += 1;
    }
    let views = harness.engine.instances(harness.now, 4);
    let ejections: Vec<u32> = views.iter().map(|view| view.ejections).collect();
    assert_eq!(ejections, [1, 0, 0, 0], "within ten seconds");
}

#[test]
fn two_instances_that_answer_nothing_well_are_ejected_by_what_the_others_answer() {
    let mut harness = Harness::plain(4, 1);
    let mut most_ejected = 0;
    for _ in 0..400 {
        honest(&mut harness, &[0, 1]);
        harness.advance(50 * MS);
        most_ejected = most_ejected.max(harness.engine.stats().ejected);
    }
    assert_eq!(most_ejected, 2);
    let views = harness.engine.instances(harness.now, 4);
    assert!(views[2..].iter().all(|view| view.ejections == 0), "{views:?}");
}

#[test]
fn where_nothing_is_retried_an_instance_that_answers_nothing_well_is_ejected_after_some_seconds() {
    let mut config = core_config(4, 1, 0);
    config.max_attempts = 1;
    let mut harness = Harness::build(config, vec![StrategyConfig::None]);
    for _ in 0..200 {
        honest(&mut harness, &[0]);
        harness.advance(50 * MS);
    }
    let stats = harness.engine.stats();
    // Within ten seconds.
    assert_eq!((stats.ejections, stats.ejected), (1, 1));
}

#[test]
fn failures_of_two_kinds_are_no_evidence_against_the_input() {
    let mut harness = Harness::plain(4, 1);
    let query = harness.arrive(0, false, MINUTE).unwrap();
    let first = harness.places(query)[0];
    harness.complete_client(query, Some(FailureKind::InvalidOutput));
    let second = harness.places(query)[0];
    harness.complete_client(query, Some(FailureKind::InstanceError));
    harness.complete_client(query, None);
    harness.expect(query, Fate::Exact);
    let blamed = blamed(&harness, 0);
    assert_eq!([first, second].map(|at| blamed[at as usize]), [1, 1]);
    assert_eq!(blamed.iter().sum::<u32>(), 2);
}

#[test]
fn a_copy_is_evidence_as_a_retry_is() {
    for (copy_fails, failures) in [(true, 0), (false, 1)] {
        let mut harness = Harness::of(4, 1, StrategyConfig::Hedge(hedge_config()));
        let query = harness.arrive(0, false, MINUTE).unwrap();
        harness.advance(HOLD_BACK);
        let places = harness.places(query);
        harness.complete_at(query, places[0], NOT_FINITE);
        harness.complete_at(query, places[1], NOT_FINITE.filter(|_| copy_fails));
        assert!(!harness.is_in_flight(query), "no third request");
        let failed = Fate::Failed(FailureKind::InvalidOutput);
        harness.expect(query, if copy_fails { failed } else { Fate::Hedged });
        assert_eq!(blamed(&harness, 0).iter().sum::<u32>(), failures);
    }
}

/// The instance of the parity query.
fn parity_at(harness: &Harness) -> InstanceId {
    let mut sent = harness.sent.iter();
    sent.find(|sent| sent.input.number.is_none()).unwrap().instance
}

#[test]
fn a_parity_query_is_sent_to_another_instance_and_blames_by_the_same_evidence() {
    for (config, pool) in
        [(coded_config(2, 1), PoolId(1)), (unmodified_config(2, 1), PoolId::DEPLOYED)]
    {
        for (fails_again, failures) in [(true, 0), (false, 1)] {
            let mut harness = Harness::coded(4, 1, config.clone());
            harness.pair();
            harness.compute();
            let first = parity_at(&harness);
            harness.complete_parity(NOT_FINITE);
            let second = parity_at(&harness);
            assert!(first != second && second.pool == pool, "{first:?}, {second:?}");
            harness.complete_parity(NOT_FINITE.filter(|_| fails_again));
            assert_eq!(blamed(&harness, pool.0).iter().sum::<u32>(), failures);
        }
    }
}

#[test]
fn a_backup_is_asked_once_more_at_another_instance_and_blames_by_the_same_evidence() {
    for (fails_again, failures) in [(true, 0), (false, 1)] {
        let mut harness = Harness::of(2, 1, StrategyConfig::ApproximateBackup(backup_config(true)));
        let query = harness.query();
        harness.complete_backup(NOT_FINITE);
        harness.complete_backup(NOT_FINITE.filter(|_| fails_again));
        let mut sent = harness.sent.iter();
        let to_model = sent.all(|sent| sent.instance.pool == PoolId::DEPLOYED);
        assert!(to_model, "no third request");
        assert_eq!(blamed(&harness, 1).iter().sum::<u32>(), failures);
        harness.complete_client(query, None);
    }
}

#[test]
fn an_input_at_fault_gets_no_parity_query_of_its_own() {
    let mut config = coded_config(2, 1);
    config.send_parity = SendParity::InTime;
    let mut harness = Harness::coded(4, 1, config);
    let poisoned = harness.query();
    harness.complete_client(poisoned, NOT_FINITE);
    harness.complete_client(poisoned, NOT_FINITE);
    harness.expect(poisoned, Fate::Failed(FailureKind::InvalidOutput));
    let others = harness.pair();
    harness.compute();
    let numbers: Vec<usize> = harness.groups.values().flatten().copied().collect();
    assert_eq!(numbers, others, "it left its open group");
}

/// Queries that come, some of them poison, and requests that end, in any order.
fn events() -> impl Strategy<Value = Vec<(bool, usize, u64)>> {
    let event = (prop::bool::weighted(0.4), 0usize..8, 0u64..4_000);
    prop::collection::vec(event, 100..400)
}

/// Lets them happen. The instances in `bad` fail everything, the others poison alone. Whether each
/// was ejected once.
fn happen(harness: &mut Harness, events: &[(bool, usize, u64)], bad: &[u32]) -> Vec<bool> {
    let mut poison = Vec::new();
    let mut ejected = vec![false; 4];
    for &(is_poison, index, micros) in events {
        if harness.arrive(u64::from(is_poison), true, MINUTE).is_ok() {
            poison.push(is_poison);
        }
        for index in [index, index + 1] {
            harness.encode(0, true);
            if let Some(sent) = harness.sent.get(index % harness.sent.len().max(1)) {
                let of_poison = sent.input.key.kind == 1;
                let is_bad =
                    sent.instance.pool == PoolId::DEPLOYED && bad.contains(&sent.instance.index);
                harness.complete(index, NOT_FINITE.filter(|_| of_poison || is_bad));
            }
        }
        harness.advance(Duration::from_micros(micros));
        for view in harness.engine.instances(harness.now, 100) {
            let was = view.state == parapet_frontend_core::InstanceState::Ejected;
            if view.id.pool == PoolId::DEPLOYED {
                ejected[view.id.index as usize] |= was;
            } else {
                assert!(!was, "a parity instance was ejected");
            }
        }
    }
    ejected
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn poison_in_any_order_ejects_no_instance(events in events()) {
        for mut harness in [Harness::plain(4, 1), Harness::coded(4, 2, coded_config(2, 1))] {
            prop_assert_eq!(happen(&mut harness, &events, &[]), vec![false; 4]);
        }
    }

    #[test]
    fn an_instance_that_answers_nothing_well_is_ejected_beside_poison_in_any_order(
        events in prop::collection::vec((prop::bool::weighted(0.4), 0usize..8, 0u64..20_000), 600),
    ) {
        let mut harness = Harness::plain(4, 1);
        prop_assert_eq!(happen(&mut harness, &events, &[2]), vec![false, false, true, false]);
    }
}
