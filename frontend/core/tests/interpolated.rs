//! Interpolation in its authors' form, one story at a time: what is withheld, and what a client is spared for it.

#![allow(clippy::unwrap_used, reason = "tests")]

mod harness;

use std::time::Duration;

use harness::{FLUSH_AFTER, Fate, HOLD_BACK, Harness, LATE_TRUTH_WAIT, PLAIN_AFTER, interpolated_config};
use parapet_frontend_core::{
    Comparison, FailureKind, InstanceId, InterpolatedConfig, PoolId, StrategyConfig,
};

const MINUTE: Duration = Duration::from_secs(60);
const MS: Duration = Duration::from_millis(1);

fn of(instances: usize, config: InterpolatedConfig) -> Harness {
    Harness::of(instances, 1, StrategyConfig::Interpolated(config))
}

/// k = 2, s = 1, an instance for each of the three coded queries and one more.
fn interpolated() -> Harness {
    of(4, InterpolatedConfig { audit_every: 0, ..interpolated_config(2, 1) })
}

/// Two queries that are coded and under way.
fn group(harness: &mut Harness) -> [usize; 2] {
    let queries = [harness.arrive(0, true, MINUTE).unwrap(), harness.arrive(0, true, MINUTE).unwrap()];
    harness.compute();
    assert_eq!(harness.sent.len(), 3, "k + s coded queries");
    queries
}

fn fates(harness: &Harness, queries: [usize; 2]) -> [&Fate; 2] {
    queries.map(|query| harness.fate(query))
}

#[test]
fn a_group_is_coded_when_it_is_full_and_no_query_is_sent_itself() {
    let mut harness = interpolated();
    let first = harness.arrive(0, true, MINUTE).unwrap();
    harness.advance(FLUSH_AFTER - MS);
    assert!(harness.sent.is_empty(), "withheld until the group is full");
    let second = harness.arrive(0, true, MINUTE).unwrap();
    harness.compute();
    let mut places: Vec<u32> = harness.sent.iter().map(|sent| sent.instance.index).collect();
    places.dedup();
    assert_eq!(places.len(), 3, "an instance for each coded query");
    assert!(harness.sent.iter().all(|sent| sent.input.number.is_none()), "no query is sent itself");
    for _ in 0..3 {
        harness.complete_parity(None);
    }
    harness.compute();
    assert_eq!(fates(&harness, [first, second]), [&Fate::Reconstructed; 2], "both, with none held back");
    let stats = harness.engine.stats();
    assert_eq!((stats.redundant_issued, stats.redundant_won), (3, 3));
    harness.finish();
}

#[test]
fn a_straggler_is_awaited_until_the_group_is_late_and_no_longer() {
    let mut harness = interpolated();
    let queries = group(&mut harness);
    harness.complete_parity(None);
    harness.complete_parity(None);
    harness.compute();
    harness.advance(HOLD_BACK - MS);
    assert_eq!(fates(&harness, queries), [&Fate::Waiting; 2], "CG-4: three outputs are better than two");
    harness.advance(MS);
    harness.compute();
    assert_eq!(fates(&harness, queries), [&Fate::Reconstructed; 2]);
    assert_eq!(harness.sent.len(), 1, "the straggler keeps its instance: it gets nothing of the next group");
    harness.complete_parity(None);
    let stats = harness.engine.stats();
    assert_eq!((stats.redundant_won, stats.redundant_wasted), (2, 1));
    harness.finish();
}

#[test]
fn a_failed_coded_query_is_tried_elsewhere_and_a_lost_one_is_not_awaited() {
    let mut harness = interpolated();
    let queries = group(&mut harness);
    harness.complete_parity(Some(FailureKind::InstanceError));
    assert_eq!(harness.sent.len(), 3, "sent again");
    let again = harness.sent.len() - 1;
    harness.complete(again, Some(FailureKind::InstanceError));
    assert_eq!(harness.sent.len(), 2, "but once");
    harness.complete_parity(None);
    harness.complete_parity(None);
    harness.compute();
    assert_eq!(fates(&harness, queries), [&Fate::Reconstructed; 2], "no output may still come");
    harness.finish();
}

#[test]
fn cg3_a_group_that_is_not_full_in_time_is_sent_as_it_is() {
    let mut harness = interpolated();
    let lone = harness.arrive(0, true, MINUTE).unwrap();
    harness.advance(FLUSH_AFTER);
    assert_eq!(harness.places(lone).len(), 1);
    harness.complete_client(lone, None);
    assert_eq!(harness.fate(lone), &Fate::Exact);
    assert_eq!(harness.engine.stats().redundant_issued, 0);
    harness.finish();
}

#[test]
fn who_wants_no_approximation_or_has_no_time_goes_at_once() {
    let mut harness = interpolated();
    let strict = harness.arrive(0, false, MINUTE).unwrap();
    let hasty = harness.arrive(0, true, 2 * FLUSH_AFTER).unwrap();
    assert_eq!((harness.places(strict).len(), harness.places(hasty).len()), (1, 1));
    harness.complete_client(strict, None);
    harness.complete_client(hasty, None);
    harness.finish();
}

#[test]
fn with_too_few_outputs_queries_are_sent_as_they_are_while_there_is_time() {
    let mut harness = interpolated();
    let [a, b] = group(&mut harness);
    harness.complete_parity(None);
    let stuck: Vec<u32> = harness.sent.iter().map(|sent| sent.instance.index).collect();
    harness.advance(PLAIN_AFTER - MS);
    assert!(!harness.is_in_flight(a));
    harness.advance(MS);
    for query in [a, b] {
        assert!(harness.places(query).iter().all(|place| !stuck.contains(place)), "not to a straggler");
        assert_eq!(harness.places(query).len(), 1);
    }
    harness.complete_client(a, None);
    assert_eq!(harness.fate(a), &Fate::Exact);
    harness.complete_parity(None);
    harness.compute();
    assert_eq!(harness.fate(b), &Fate::Reconstructed, "whichever comes first, now that it is late");
    harness.complete_client(b, None);
    assert!(matches!(&harness.comparisons[..], [Comparison::LateTruth { .. }]), "and compared");
    harness.finish();
}

#[test]
fn half_of_the_time_is_left_for_sending_them_as_they_are() {
    let mut harness = of(5, InterpolatedConfig { audit_every: 0, ..interpolated_config(2, 1) });
    let deadline = 2 * FLUSH_AFTER + 5 * MS;
    let a = harness.arrive(0, true, deadline).unwrap();
    let b = harness.arrive(0, true, deadline).unwrap();
    harness.compute();
    harness.advance(deadline / 2);
    assert_eq!((harness.places(a).len(), harness.places(b).len()), (1, 1), "long before PLAIN_AFTER");
    harness.complete_client(a, None);
    harness.advance(deadline);
    assert_eq!(harness.fate(b), &Fate::Failed(FailureKind::DeadlineExceeded), "CG-1");
    harness.finish();
}

#[test]
fn outputs_that_cannot_come_any_more_are_not_waited_for() {
    let mut harness = interpolated();
    let [a, b] = group(&mut harness);
    for _ in 0..2 {
        harness.complete_parity(Some(FailureKind::Refused));
    }
    assert_eq!((harness.places(a).len(), harness.places(b).len()), (1, 1), "one output can still come: sent");
    harness.complete_client(a, Some(FailureKind::Refused));
    assert_eq!(harness.fate(a), &Fate::Failed(FailureKind::Refused), "neither its group nor its own request");
    harness.complete_client(b, None);
    assert_eq!(harness.fate(b), &Fate::Exact);
    harness.finish();
}

#[test]
fn a_reconstruction_that_is_refused_is_made_up_for_by_the_query_itself() {
    let mut harness = interpolated();
    let [a, b] = group(&mut harness);
    for _ in 0..3 {
        harness.complete_parity(None);
    }
    harness.decode(0, false);
    assert_eq!(harness.places(a).len(), 1);
    harness.compute();
    assert_eq!(harness.fate(b), &Fate::Reconstructed);
    harness.complete_client(a, None);
    assert_eq!(harness.fate(a), &Fate::Exact);
    harness.finish();
}

#[test]
fn cg7_without_budget_instances_or_room_queries_are_not_withheld() {
    let mut config = interpolated_config(2, 1);
    config.redundant_share = 0.1;
    config.redundant_burst = 3.0;
    let mut harness = of(4, config);
    group(&mut harness);
    let plain = harness.arrive(0, true, MINUTE).unwrap();
    assert_eq!(harness.places(plain).len(), 1, "the budget is spent");
    harness.finish();

    let mut harness = interpolated();
    for index in 1..4 {
        harness.set_up(InstanceId { pool: PoolId::DEPLOYED, index }, false);
    }
    let plain = harness.arrive(0, true, MINUTE).unwrap();
    assert_eq!(harness.places(plain), [0], "one instance cannot give two outputs apart");
    harness.finish();

    let mut config = interpolated_config(2, 1);
    config.shed_above = 0;
    let mut harness = of(4, config);
    for _ in 0..5 {
        harness.arrive(0, false, MINUTE).unwrap();
    }
    let before = harness.engine.stats().redundant_shed;
    let plain = harness.arrive(0, true, MINUTE).unwrap();
    harness.complete(0, None);
    harness.complete(0, None);
    assert_eq!(harness.places(plain).len(), 1, "in line with the others from its arrival");
    assert_eq!(harness.engine.stats().redundant_shed, before + 1);
    harness.finish();
}

#[test]
fn cg8_who_goes_away_from_an_open_group_takes_nobodys_slot_and_the_last_one_takes_the_work_along() {
    let mut harness = interpolated();
    let gone = harness.arrive(0, true, MINUTE).unwrap();
    harness.abandon(gone);
    let [a, b] = group(&mut harness);
    harness.abandon(a);
    harness.abandon(b);
    while !harness.sent.is_empty() {
        harness.complete_parity(None);
    }
    assert!(harness.decodes.is_empty());
    assert_eq!(harness.engine.stats().groups_tracked, 0);
    assert_eq!(harness.engine.stats().redundant_wasted, 3);
    harness.finish();
}

#[test]
fn coded_queries_that_nobody_needs_leave_the_line() {
    let mut harness = of(2, InterpolatedConfig { audit_every: 0, ..interpolated_config(2, 1) });
    let queries = [harness.arrive(0, true, MINUTE).unwrap(), harness.arrive(0, true, MINUTE).unwrap()];
    harness.compute();
    assert_eq!(harness.sent.len(), 2, "the third waits for one of the two instances");
    for query in queries {
        harness.abandon(query);
    }
    harness.complete_parity(None);
    assert_eq!(harness.sent.len(), 1, "it never leaves");
    harness.finish();
}

#[test]
fn a_coded_query_in_line_does_not_yield_to_queries_that_came_later() {
    let mut harness = of(3, InterpolatedConfig { audit_every: 0, ..interpolated_config(2, 1) });
    let strict: Vec<usize> = (0..3).map(|_| harness.arrive(0, false, MINUTE).unwrap()).collect();
    let queries = [harness.arrive(0, true, MINUTE).unwrap(), harness.arrive(0, true, MINUTE).unwrap()];
    harness.compute();
    let later = harness.arrive(0, false, MINUTE).unwrap();
    for query in strict {
        harness.complete_client(query, None);
    }
    assert!(harness.places(later).is_empty(), "first come, first served");
    for _ in 0..3 {
        harness.complete_parity(None);
    }
    harness.compute();
    assert_eq!(fates(&harness, queries), [&Fate::Reconstructed; 2]);
    harness.finish();
}

#[test]
fn one_query_of_some_groups_is_asked_about_itself_to_measure_the_code() {
    let mut config = interpolated_config(2, 1);
    config.audit_every = 1;
    let mut harness = of(4, config);
    let queries = group(&mut harness);
    for _ in 0..3 {
        harness.complete_parity(None);
    }
    harness.compute();
    assert_eq!(fates(&harness, queries), [&Fate::Reconstructed; 2], "nobody waits for the truth");
    let asked = queries.into_iter().find(|query| harness.is_in_flight(*query)).unwrap();
    harness.complete_client(asked, None);
    assert!(matches!(&harness.comparisons[..], [Comparison::LateTruth { reconstruction, truth, .. }]
            if (**reconstruction - **truth).abs() < 1e-3));
    assert_eq!(harness.engine.stats().groups_tracked, 0);

    group(&mut harness);
    for _ in 0..3 {
        harness.complete_parity(None);
    }
    harness.compute();
    harness.advance(LATE_TRUTH_WAIT);
    assert!(harness.sent.is_empty(), "the truth is not awaited for ever");
    harness.finish();
}
