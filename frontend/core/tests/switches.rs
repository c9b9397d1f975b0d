//! Switches thrown while queries are under way, and what is counted of latency with approximations
//! and without.

#![allow(clippy::unwrap_used, reason = "tests")]

mod harness;

use std::time::Duration;

use harness::{Fate, HOLD_BACK, Harness, LATE_TRUTH_WAIT, backup_config, coded_config, instance};
use parapet_frontend_core::{
    ClassId, FailureKind, HoldBackOverride, InstanceState, StrategyConfig,
};

const SECOND: Duration = Duration::from_secs(1);
const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn a_group_that_is_open_when_redundancy_is_switched_off_still_helps_its_members() {
    let mut harness = Harness::coded(4, 1, coded_config(2, 1));
    let filler = harness.arrive(0, true, SECOND).unwrap();
    let before = harness.arrive(0, true, SECOND).unwrap();
    harness.complete_client(filler, None);
    harness.compute();
    let alone = harness.arrive(0, true, SECOND).unwrap();
    harness.switch(false, None);
    let after = harness.arrive(0, true, SECOND).unwrap();
    harness.advance(HOLD_BACK);
    harness.compute();
    harness.complete_parity(None);
    harness.compute();
    harness.complete_parity(None);
    harness.compute();
    harness.expect(before, Fate::Reconstructed);
    harness.expect(alone, Fate::Reconstructed);
    assert_eq!(harness.fate(after), &Fate::Waiting, "it has no group");
    let issued = harness.engine.stats().redundant.issued;
    for _ in 0..4 {
        harness.arrive(0, true, SECOND).unwrap();
    }
    harness.advance(2 * HOLD_BACK);
    harness.compute();
    // Nothing is added for new queries.
    assert_eq!(harness.engine.stats().redundant.issued, issued);
}

#[test]
fn a_query_that_comes_while_redundancy_is_off_fails_if_all_its_attempts_do() {
    for strategy in [
        StrategyConfig::Coded(coded_config(2, 1)),
        StrategyConfig::ApproximateBackup(backup_config(false)),
    ] {
        let mut harness = Harness::of(4, 1, strategy);
        harness.switch(false, None);
        let query = harness.arrive(0, true, SECOND).unwrap();
        while harness.is_in_flight(query) {
            harness.complete_client(query, Some(FailureKind::InvalidOutput));
        }
        harness.expect(query, Fate::Failed(FailureKind::InvalidOutput));
    }
}

#[test]
fn a_hold_back_that_is_put_in_its_place_is_for_queries_that_come_then() {
    let mut harness = Harness::coded(4, 1, coded_config(2, 1));
    let before = harness.pair();
    harness.switch(true, Some(HoldBackOverride::Fixed(ms(5))));
    let after = harness.pair();
    harness.compute();
    for query in [before[0], after[0]] {
        harness.complete_client(query, None);
    }
    harness.complete_parity(None);
    harness.complete_parity(None);
    harness.advance(ms(5));
    harness.compute();
    harness.expect(before[1], Fate::Waiting);
    harness.expect(after[1], Fate::Reconstructed);
    harness.advance(HOLD_BACK - ms(5));
    harness.compute();
    harness.expect(before[1], Fate::Reconstructed);
    assert_eq!(harness.engine.stats().hold_back_us, 5_000);
    harness.switch(true, None);
    assert_eq!(u128::from(harness.engine.stats().hold_back_us), HOLD_BACK.as_micros());
}

/// Two queries, of which the second is reconstructed when it is late.
fn one_is_reconstructed(deadline: Duration) -> (Harness, usize) {
    let mut harness = Harness::coded(4, 1, coded_config(2, 1));
    let quick = harness.arrive(0, true, deadline).unwrap();
    let slow = harness.arrive(0, true, deadline).unwrap();
    harness.compute();
    harness.advance(ms(2));
    harness.complete_client(quick, None);
    harness.complete_parity(None);
    harness.advance(HOLD_BACK);
    harness.compute();
    harness.expect(slow, Fate::Reconstructed);
    (harness, slow)
}

fn close(got: Duration, expected: Duration) -> bool {
    got.abs_diff(expected) <= expected / 50
}

#[test]
fn latency_without_approximations_is_that_of_the_late_truth() {
    let (mut harness, slow) = one_is_reconstructed(SECOND);
    harness.advance(ms(300));
    harness.complete_client(slow, None);
    let view = harness.engine.latency(harness.now);
    let without = view.without;
    assert_eq!((view.answered.count, view.approximated, without.count), (2, 1, 2));
    assert!(close(view.answered.p999, HOLD_BACK + ms(2)), "{view:?}");
    assert!(close(without.p999, ms(300) + HOLD_BACK + ms(2)), "{view:?}");
    assert!(close(view.answered.p50, ms(2)) && close(without.p50, ms(2)), "{view:?}");
}

#[test]
fn a_truth_that_never_comes_counts_with_the_deadline() {
    let deadline = SECOND;
    let (mut harness, _) = one_is_reconstructed(deadline);
    // Not known yet.
    assert_eq!(harness.engine.latency(harness.now).without.count, 1);
    harness.advance(LATE_TRUTH_WAIT + ms(1));
    let without = harness.engine.latency(harness.now).without;
    assert!(without.count == 2 && close(without.p999, deadline), "{without:?}");
}

#[test]
fn groups_that_decoded_are_remembered_and_only_so_many() {
    let mut harness = Harness::coded(4, 2, coded_config(2, 1));
    for round in 0..20 {
        let [quick, slow] = harness.pair();
        harness.compute();
        harness.complete_client(quick, None);
        harness.complete_parity(None);
        harness.advance(HOLD_BACK);
        harness.compute();
        assert_eq!(harness.fate(slow), &Fate::Reconstructed, "round {round}");
        harness.complete_client(slow, None);
    }
    let groups = harness.engine.decoded_groups();
    assert_eq!(groups.len(), 16);
    let last = groups.last().unwrap();
    let members = last.members.iter();
    let members: Vec<_> = members.map(|member| (member.reconstructed, member.late)).collect();
    assert_eq!(members, [(false, false), (true, true)]);
    assert_eq!(last.closed, Some(harness.now));
    assert_eq!(last.parity, ["output"]);
    assert_eq!(harness.now.since(last.opened), HOLD_BACK);
}

#[test]
fn instances_are_shown_as_they_are() {
    let mut harness = Harness::coded(4, 2, coded_config(2, 1));
    let [first, second] = harness.pair();
    let [at, other] = [first, second].map(|query| harness.places(query)[0]);
    harness.advance(ms(7));
    harness.complete_client(first, None);
    harness.set_up(instance(0, 3), false);
    harness.leave(instance(0, other));
    let views = harness.engine.instances(harness.now, 100);
    let view = |index| {
        let mut views = views.iter();
        views.find(|view| view.id == instance(0, index)).unwrap()
    };
    assert_eq!(views.len(), 6, "both pools");
    assert_eq!((view(at).state, view(at).in_flight, view(at).oldest), (InstanceState::Up, 0, None));
    assert_eq!((view(at).latency, view(at).failed), (Some(ms(7)), (0, 1)));
    assert_eq!((view(other).state, view(other).in_flight), (InstanceState::Leaving, 1));
    assert_eq!(view(other).oldest, Some(ms(7)));
    assert_eq!(view(3).state, InstanceState::Down);
    assert_eq!(
        [at, other, 3].map(|index| view(index).state.to_string()),
        ["up", "leaving", "down"]
    );
    assert_eq!(harness.engine.instances(harness.now, 2).len(), 2);
    let budget = harness.engine.budget(ClassId::DEFAULT).unwrap();
    assert!(budget.left <= budget.burst);
}

#[test]
fn groups_in_memory_are_shown_up_to_a_limit() {
    let mut harness = Harness::coded(4, 2, coded_config(2, 1));
    harness.pair();
    harness.query();
    let mut groups = harness.engine.groups(100);
    groups.sort_by_key(|group| group.members.len());
    let shown: Vec<_> = groups.iter().map(|group| (group.sealed, group.members.len())).collect();
    assert_eq!(shown, [(false, 1), (true, 2)]);
    assert_eq!(harness.engine.groups(1).len(), 1);
}
