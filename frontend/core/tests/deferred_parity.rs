//! Parity queries that are sent only when they are due.

#![allow(clippy::unwrap_used, reason = "tests")]

mod harness;

use std::time::Duration;

use harness::ops::{Op, abandon, advance, arrive, set_up};
use harness::{FLUSH_AFTER, Fate, HOLD_BACK, Harness, coded_config};
use parapet_frontend_core::{CodedConfig, FailureKind, HoldBackPolicy, PoolId, SendParity};
use proptest::prelude::*;

const MINUTE: Duration = Duration::from_secs(60);
const MS: Duration = Duration::from_millis(1);

fn deferring(k: usize, r: usize) -> CodedConfig {
    CodedConfig { send_parity: SendParity::InTime, audit_every: 0, ..coded_config(k, r) }
}

/// Its parity queries have always taken 2 ms, so that they have to go some 4 ms before a
/// query is late.
fn warm(config: CodedConfig) -> Harness {
    let k = config.k;
    let mut harness = Harness::coded(4, 2, config);
    for _ in 0..2 * HoldBackPolicy::WARM_UP {
        group(&mut harness, k);
        harness.compute();
        harness.advance(2 * MS);
        while !harness.sent.is_empty() {
            harness.complete(0, None);
        }
    }
    harness
}

fn group(harness: &mut Harness, k: usize) -> Vec<usize> {
    (0..k).map(|_| harness.query()).collect()
}

fn issued(harness: &mut Harness) -> u64 {
    harness.engine.stats().redundant.issued
}

#[test]
fn a_group_that_is_answered_in_time_sends_none() {
    let mut harness = warm(deferring(2, 1));
    let before = harness.engine.stats();
    for query in group(&mut harness, 2) {
        harness.compute();
        harness.advance(5 * MS);
        harness.complete_client(query, None);
    }
    harness.advance(MINUTE);
    let after = harness.engine.stats();
    assert_eq!(after.groups_spared, before.groups_spared + 1);
    assert_eq!(after.redundant.issued, before.redundant.issued);
    assert_eq!(after.redundant.shed, before.redundant.shed);
    assert_eq!(after.groups_encoded, before.groups_encoded);
    assert_eq!(after.groups_tracked, 0);
}

#[test]
fn a_straggler_is_reconstructed_when_it_is_late_all_the_same() {
    let mut harness = warm(deferring(2, 1));
    let before = issued(&mut harness);
    let [frozen, other] = harness.pair();
    harness.complete_client(other, None);
    harness.advance(HOLD_BACK - 5 * MS);
    harness.compute();
    assert_eq!(issued(&mut harness), before, "not due");
    harness.advance(MS);
    harness.compute();
    assert_eq!(issued(&mut harness), before + 1, "due");
    harness.advance(2 * MS);
    harness.complete_parity(None);
    harness.compute();
    assert_eq!(harness.fate(frozen), &Fate::Waiting, "CG-4: held back");
    harness.advance(2 * MS);
    harness.compute();
    harness.expect(frozen, Fate::Reconstructed);
    assert_eq!(harness.took(frozen), HOLD_BACK);
    assert_eq!(harness.engine.stats().late_unrecoverable, 0);
}

#[test]
fn a_parity_query_that_straggles_is_sent_to_another_instance() {
    let mut harness = warm(deferring(2, 1));
    let [frozen, other] = harness.pair();
    harness.complete_client(other, None);
    harness.advance(HOLD_BACK - 4 * MS);
    harness.compute();
    let parity = |harness: &Harness| {
        let instances = harness.sent.iter().map(|sent| sent.instance);
        let parity = instances.filter(|instance| instance.pool == PoolId::FIRST_REDUNDANT);
        parity.collect::<Vec<_>>()
    };
    let first = parity(&harness);
    harness.advance(4 * MS);
    let second = parity(&harness);
    assert_eq!((first.len(), second.len()), (1, 1));
    assert_ne!(first, second);
    harness.advance(2 * MS);
    harness.complete_parity(None);
    harness.compute();
    harness.expect(frozen, Fate::Reconstructed);
    assert_eq!(harness.took(frozen), HOLD_BACK + 2 * MS);
    let stats = harness.engine.stats();
    let ended = stats.redundant.won + stats.redundant.wasted + stats.redundant.failed;
    assert_eq!((stats.redundant.issued, stats.redundant.won), (ended, 1));
}

#[test]
fn so_is_one_that_was_sent_when_its_query_was_late_already() {
    let mut harness = warm(deferring(2, 1));
    let before = issued(&mut harness);
    let lone = harness.query();
    harness.advance(FLUSH_AFTER);
    // The only one of its group; completed with fillers, whose predictions are known.
    for _ in 0..2 {
        harness.advance(HOLD_BACK);
        harness.compute();
    }
    assert_eq!(issued(&mut harness), before + 2);
    harness.complete_parity(None);
    harness.compute();
    harness.expect(lone, Fate::Reconstructed);
}

#[test]
fn the_first_of_its_members_decides_when_they_are_due() {
    let mut harness = warm(deferring(2, 1));
    let before = issued(&mut harness);
    harness.query();
    harness.advance(8 * MS);
    harness.query();
    harness.advance(HOLD_BACK - 8 * MS - 4 * MS);
    harness.compute();
    assert_eq!(issued(&mut harness), before + 1);
}

#[test]
fn a_lost_prediction_calls_for_them_at_once() {
    let mut harness = warm(deferring(2, 1));
    let before = issued(&mut harness);
    let [lost, other] = harness.pair();
    harness.complete_client(lost, Some(FailureKind::Refused));
    harness.compute();
    assert_eq!(issued(&mut harness), before + 1);
    harness.complete_parity(None);
    harness.complete_client(other, None);
    harness.compute();
    harness.expect(lost, Fate::Reconstructed);
}

#[test]
fn a_slow_parity_model_is_asked_at_once() {
    let mut config = deferring(2, 1);
    config.hold_back = HoldBackPolicy::Fixed(4 * MS);
    let mut harness = warm(config);
    let before = issued(&mut harness);
    group(&mut harness, 2);
    harness.compute();
    assert_eq!(issued(&mut harness), before + 1, "4 ms are what it takes");
}

#[test]
fn audited_groups_are_encoded_at_once() {
    let mut config = deferring(2, 1);
    config.audit_every = 1;
    let mut harness = warm(config);
    let before = issued(&mut harness);
    group(&mut harness, 2);
    harness.compute();
    assert_eq!(issued(&mut harness), before + 1);
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => arrive(0..1, 0..1),
        6 => (0usize..8, prop::bool::weighted(0.1)).prop_map(|(index, fails)| {
            Op::Complete(index, fails.then_some(FailureKind::InstanceError))
        }),
        4 => Just(Op::Compute),
        1 => abandon(),
        2 => set_up(0..4),
        5 => advance(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// The harness checks CG-1 to CG-8 at every action, and that nothing is left in memory.
    #[test]
    fn the_invariants_hold(
        ops in prop::collection::vec(op(), 1..200),
        k in 2usize..4,
        r in 1usize..3,
    ) {
        let mut harness = warm(deferring(k, r.min(k - 1)));
        harness.run(ops);
    }
}
