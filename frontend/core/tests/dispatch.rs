//! Queries whose attempts all fail, and instances that get them: those that joined, and those that
//! a class avoids.

#![allow(clippy::unwrap_used, reason = "tests")]

mod harness;

use std::time::Duration;

use harness::{Fate, Harness, coded_config, core_config};
use parapet_frontend_core::{ClassId, FailureKind, PoolId, StrategyConfig};

const SECOND: Duration = Duration::from_secs(1);
const REFUSED: Option<FailureKind> = Some(FailureKind::Refused);

#[test]
fn query_fails_as_soon_as_its_group_cannot_recover_it() {
    let mut harness = Harness::coded(4, 1, coded_config(2, 1));
    let [lost, other] = harness.pair();
    harness.compute();
    harness.complete_client(lost, REFUSED);
    // The parity query may answer.
    harness.expect(lost, Fate::Waiting);
    harness.complete_parity(REFUSED);
    harness.expect(lost, Fate::Failed(FailureKind::Refused));
    // Not at its deadline.
    assert_eq!(harness.clients[lost].answered_at, Some(harness.now));
    harness.complete_client(other, None);
}

#[test]
fn latency_counts_queries_that_failed_by_their_deadline_and_no_other_failures() {
    let mut harness = Harness::plain(4, 1);
    let refused = harness.arrive(0, true, SECOND).unwrap();
    harness.complete_client(refused, REFUSED);
    let counted = |harness: &mut Harness| harness.engine.latency(harness.now).answered.count;
    assert_eq!(counted(&mut harness), 0);
    let late = harness.arrive(0, true, SECOND).unwrap();
    harness.advance(SECOND);
    harness.expect(late, Fate::Failed(FailureKind::DeadlineExceeded));
    assert_eq!(counted(&mut harness), 1);
}

#[test]
fn instance_that_joins_gets_requests_once_it_is_up() {
    let mut harness = Harness::plain(1, 1);
    let joined = harness.join(PoolId::DEPLOYED).unwrap();
    let [first, second] = harness.pair();
    assert_eq!(harness.places(first), [0]);
    assert_eq!(harness.places(second), [0; 0]);
    harness.set_up(joined, true);
    assert_eq!(harness.places(second), [joined.index]);
    harness.complete_client(first, None);
    harness.complete_client(second, None);
}

#[test]
fn class_with_coding_avoids_instances_of_its_groups_members() {
    let strategies = vec![StrategyConfig::None, StrategyConfig::Coded(coded_config(2, 1))];
    let mut harness = Harness::build(core_config(2, 4, 1), strategies);
    let mut place = |class: u8, key: u64| {
        let number = harness.arrive_in(ClassId(class), key, true, SECOND);
        harness.places(number.unwrap())
    };
    assert_eq!([place(1, 1), place(0, 0), place(0, 0)], [[0], [1], [0]]);
    assert_eq!(place(1, 2), [1], "the least loaded");
    assert_eq!(place(0, 0), [0]);
    // Although the other instance has less to do.
    assert_eq!(place(1, 2), [0]);
}
