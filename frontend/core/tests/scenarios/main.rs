//! One scenario for each invariant.

#![allow(clippy::unwrap_used, reason = "tests")]

mod attempts;
mod audits;
#[path = "../harness/mod.rs"]
mod harness;
mod memory;

use std::time::Duration;

use harness::*;
use parapet_frontend_core::{
    CodedConfig, Comparison, CoreConfig, FailureKind, HoldBackPolicy, PoolId, Rejected,
    StrategyConfig,
};

const MINUTE: Duration = Duration::from_secs(60);
const MS: Duration = Duration::from_millis(1);

fn coded(k: usize, r: usize) -> Harness {
    Harness::coded(4, 1, coded_config(k, r))
}

fn coded_with(config: CodedConfig) -> Harness {
    Harness::coded(4, 1, config)
}

/// This query's instance never answers in time, the parity query's does.
fn is_reconstructed(harness: &mut Harness, straggler: usize) {
    harness.advance(HOLD_BACK);
    harness.compute();
    harness.complete_parity(None);
    harness.compute();
    harness.expect(straggler, Fate::Reconstructed);
    harness.complete_client(straggler, None);
}

/// A query that was answered long ago, so that there is something to complete groups with.
fn answered(harness: &mut Harness) -> usize {
    let number = harness.query();
    harness.complete_client(number, None);
    number
}

#[test]
fn a_straggler_is_reconstructed_from_its_group() {
    let mut harness = coded(2, 1);
    let [frozen, other] = harness.pair();
    harness.compute();
    harness.complete_client(other, None);
    harness.complete_parity(None);
    harness.compute();
    assert_eq!(harness.fate(frozen), &Fate::Waiting, "CG-4: held back");
    harness.advance(HOLD_BACK);
    harness.compute();
    harness.expect(frozen, Fate::Reconstructed);
    assert_eq!(harness.took(frozen), HOLD_BACK);

    harness.complete_client(frozen, None);
    assert!(
        matches!(&harness.comparisons[..], [Comparison::LateTruth { reconstruction, truth, .. }]
            if (reconstruction[0] - truth[0]).abs() < 1e-3),
        "the late truth is compared"
    );
    assert_eq!(harness.engine.stats().redundant.won, 1);
}

#[test]
fn without_hold_back_groups_still_fill_with_queries() {
    let mut config = coded_config(2, 1);
    config.hold_back = HoldBackPolicy::Fixed(Duration::ZERO);
    let mut harness = coded_with(config);
    // Recently answered queries are at hand to complete groups with, and must not be taken before
    // the flush.
    let fillers = [answered(&mut harness), answered(&mut harness)];
    harness.compute();
    let before = harness.engine.stats();
    let straggler = harness.query();
    harness.advance(MS);
    let other = harness.query();
    harness.compute();
    let stats = harness.engine.stats();
    // One parity query for the two of them.
    assert_eq!(stats.redundant.issued - before.redundant.issued, 1);
    // No query has had time to be late.
    assert_eq!(stats.late_unrecoverable, before.late_unrecoverable);
    harness.complete_client(other, None);
    harness.complete_parity(None);
    harness.compute();
    // At once, as ParM does.
    harness.expect(straggler, Fate::Reconstructed);
    assert!(fillers.iter().all(|filler| harness.fate(*filler) == &Fate::Exact));
    harness.complete_client(straggler, None);
}

#[test]
fn cg1_a_deadline_is_kept_when_nothing_answers() {
    let mut harness = coded(2, 1);
    let query = harness.arrive(0, true, 5 * MS).unwrap();
    harness.advance(5 * MS);
    harness.expect(query, Fate::Failed(FailureKind::DeadlineExceeded));
    assert!(!harness.is_in_flight(query), "its request is withdrawn");
    // A hasty deadline says nothing about the instance.
    assert!(harness.probes.is_empty());
}

#[test]
fn cg1_a_deadline_already_past_is_refused() {
    let mut harness = coded(2, 1);
    assert_eq!(harness.arrive(0, true, Duration::ZERO), Err(Rejected::DeadlinePassed));
}

#[test]
fn cg1_bounds_refuse_instead_of_queueing_without_end() {
    let mut harness = Harness::plain(2, 1);
    let queue = core_config(2, 1, 0).pools[0].queue;
    for _ in 0..2 + queue {
        harness.query();
    }
    assert_eq!(harness.arrive(0, true, MINUTE), Err(Rejected::Overloaded));
    assert_eq!(harness.engine.stats().rejected, 1);
    harness.complete(0, None);
    harness.query();
}

#[test]
fn cg2_an_exact_prediction_wins_over_a_reconstruction_under_way() {
    let mut harness = coded(2, 1);
    let [a, b] = harness.pair();
    harness.compute();
    harness.complete_client(b, None);
    harness.complete_parity(None);
    harness.advance(HOLD_BACK);
    assert_eq!(harness.decodes.len(), 1, "decoding was asked for");
    harness.complete_client(a, None);
    harness.expect(a, Fate::Exact);
    harness.compute();
    harness.expect(a, Fate::Exact);
    assert_eq!(harness.engine.stats().reconstructions_dropped, 1);
}

#[test]
fn cg4_a_lost_query_need_not_wait_to_be_late() {
    let mut harness = coded(2, 1);
    let [lost, other] = harness.pair();
    harness.compute();
    harness.complete_client(other, None);
    harness.complete_parity(None);
    harness.complete_client(lost, Some(FailureKind::Refused));
    harness.compute();
    harness.expect(lost, Fate::Reconstructed);
}

#[test]
fn cg4_a_client_that_wants_no_approximation_gets_none() {
    let mut harness = coded(2, 1);
    let (strict, other) = (harness.arrive(0, false, 100 * MS).unwrap(), harness.query());
    harness.compute();
    harness.complete_parity(None);
    harness.advance(HOLD_BACK);
    assert_eq!(harness.fate(other), &Fate::Waiting, "two are missing");
    harness.complete_client(strict, None);
    harness.compute();
    // But its prediction helps its group.
    harness.expect(other, Fate::Reconstructed);
    harness.expect(strict, Fate::Exact);
}

#[test]
fn cg5_a_lone_query_is_protected_by_answered_ones() {
    let mut harness = coded(2, 1);
    let filler = answered(&mut harness);
    let second = answered(&mut harness); // shares the first one's group
    harness.compute();
    harness.advance(Duration::from_secs(1));
    let lone = harness.query();
    assert!(harness.encodes.is_empty());
    harness.advance(FLUSH_AFTER);
    assert_eq!(harness.encodes.len(), 1, "completed on the flush timer");
    harness.compute();
    harness.complete_parity(None);
    harness.advance(HOLD_BACK);
    harness.compute();
    assert_eq!(
        harness.fate(lone),
        &Fate::Reconstructed,
        "decodable at once: {filler} or {second} was the filler"
    );
    assert_eq!(harness.engine.stats().groups_completed_with_fillers, 1);
}

#[test]
fn cg5_an_answered_member_of_an_open_group_is_as_good_as_a_filler() {
    let mut harness = coded(2, 1);
    answered(&mut harness);
    harness.advance(Duration::from_secs(1));
    harness.query();
    assert_eq!(harness.encodes.len(), 1, "sealed with its arrival");
}

#[test]
fn cg5_with_nothing_to_complete_it_a_group_stays_open() {
    let mut harness = coded(3, 1);
    let first = harness.query();
    harness.advance(5 * FLUSH_AFTER);
    assert!(harness.encodes.is_empty());
    harness.complete_client(first, None);
    harness.query();
    harness.query();
    assert_eq!(harness.encodes.len(), 1);
}

#[test]
fn cg6_a_bad_output_spoils_at_most_its_group() {
    let mut harness = coded(2, 1);
    let ([bad, mate], [elsewhere, other]) = (harness.pair(), harness.pair());
    harness.compute();
    for _ in 0..3 {
        harness.complete_client(bad, Some(FailureKind::InvalidOutput));
    }
    harness.complete_parity(Some(FailureKind::InvalidOutput)); // made again once
    harness.complete_parity(None);
    harness.complete_parity(None);
    harness.complete_client(mate, None);
    harness.complete_client(other, None);
    harness.advance(HOLD_BACK);
    harness.compute();
    harness.expect(mate, Fate::Exact);
    // Its own group decodes.
    harness.expect(elsewhere, Fate::Reconstructed);
}

#[test]
fn cg7_without_parity_instances_serving_goes_on_plainly() {
    let mut harness = coded(2, 1);
    harness.set_up(instance(1, 0), false);
    harness.set_up(instance(1, 1), false);
    let queries = [(); 4].map(|()| harness.query());
    assert!(harness.encodes.is_empty(), "not even encoded");
    for query in queries {
        harness.complete_client(query, None);
        harness.expect(query, Fate::Exact);
    }
    assert_eq!(harness.engine.stats().redundant.shed, 2);
}

#[test]
fn cg7_redundant_work_is_shed_first_when_queries_queue() {
    let mut config = coded_config(2, 1);
    config.shed_above = Some(2);
    let mut harness = Harness::coded(1, 1, config);
    for _ in 0..4 {
        harness.query();
    }
    // The first group was encoded, the second one shed.
    assert_eq!(harness.encodes.len(), 1);
    assert_eq!(harness.engine.stats().redundant.shed, 1);
}

#[test]
fn cg8_an_abandoned_query_is_withdrawn_unless_its_group_needs_it() {
    let mut harness = coded(2, 1);
    let alone = harness.query();
    harness.abandon(alone);
    assert!(!harness.is_in_flight(alone));

    let [gone, mate] = harness.pair();
    harness.compute();
    harness.abandon(gone);
    assert!(harness.is_in_flight(gone), "its mate may need it");
    harness.complete_parity(None);
    harness.complete_client(gone, None);
    harness.advance(HOLD_BACK);
    harness.compute();
    harness.expect(mate, Fate::Reconstructed);

    let [gone, mate] = harness.pair();
    harness.abandon(gone);
    harness.complete_client(mate, None);
    // Withdrawn with its mate's answer.
    assert!(!harness.is_in_flight(gone));
}

#[test]
fn a_late_truth_is_not_awaited_for_ever() {
    let mut harness = coded(2, 1);
    let [frozen, other] = harness.pair();
    harness.compute();
    harness.complete_client(other, None);
    harness.complete_parity(None);
    harness.advance(HOLD_BACK);
    harness.compute();
    let stuck = instance(0, harness.places(frozen)[0]);
    harness.advance(LATE_TRUTH_WAIT);
    assert!(!harness.is_in_flight(frozen));
    // And its instance must show that it is well.
    assert_eq!(harness.probes, [stuck]);
    assert_eq!(harness.engine.stats().groups_tracked, 0);
}

#[test]
fn late_queries_that_parity_cannot_bring_back_are_counted() {
    for (late, unrecoverable) in [(1, 0), (2, 2)] {
        let mut harness = Harness::coded(4, 1, coded_config(2, 1));
        let pair = harness.pair();
        harness.compute();
        for query in &pair[late..] {
            harness.complete_client(*query, None);
        }
        harness.advance(2 * HOLD_BACK);
        assert_eq!(harness.engine.stats().late_unrecoverable, unrecoverable);
        for query in &pair[..late] {
            harness.complete_client(*query, None);
        }
    }
}

#[test]
fn parity_query_in_line_is_given_up_once_its_group_is_answered() {
    let config = CodedConfig { audit_every: 0, ..coded_config(2, 1) };
    let mut harness = Harness::coded(8, 1, config);
    let groups = [harness.pair(), harness.pair(), harness.pair()];
    harness.compute();
    let parity_in_flight = |harness: &Harness| {
        let of_parity = |sent: &&harness::Sent| sent.instance.pool == PoolId::FIRST_REDUNDANT;
        harness.sent.iter().filter(of_parity).count()
    };
    assert_eq!(parity_in_flight(&harness), 2, "the third one waits in line");
    for query in groups.concat() {
        harness.complete_client(query, None);
    }
    harness.complete_parity(None);
    assert_eq!(parity_in_flight(&harness), 1, "the one in line is gone");
}

#[test]
fn late_and_lost_queries_complete_their_group_with_fillers_before_the_flush() {
    let mut config = coded_config(2, 1);
    config.flush_after = MINUTE;
    let mut harness = coded_with(config);
    answered(&mut harness);
    answered(&mut harness);
    let late = harness.query();
    is_reconstructed(&mut harness, late);

    let lost = harness.query();
    harness.complete_client(lost, Some(FailureKind::Refused));
    harness.compute();
    harness.complete_parity(None);
    harness.compute();
    harness.expect(lost, Fate::Reconstructed);
    assert_eq!(harness.took(lost), Duration::ZERO);
}

#[test]
fn a_query_whose_reconstruction_was_refused_fails_with_its_last_request() {
    let mut harness = coded(2, 1);
    let [odd, other] = harness.pair();
    harness.compute();
    harness.complete_client(other, None);
    harness.complete_parity(None);
    harness.advance(HOLD_BACK);
    harness.decode(0, false);
    harness.expect(odd, Fate::Waiting);
    harness.complete_client(odd, Some(FailureKind::Refused));
    harness.expect(odd, Fate::Failed(FailureKind::Refused));
}

#[test]
fn overload_sheds_the_newest_queries_of_the_queue() {
    let mut harness = Harness::plain(1, 1);
    for _ in 0..3 {
        answered(&mut harness);
    }
    let queries: Vec<usize> = (0..17).map(|_| harness.query()).collect();
    let refused = harness.arrive(0, true, MINUTE);
    assert_eq!(refused, Err(Rejected::Overloaded), "the queue is full");
    for &query in &queries {
        if harness.fate(query) == &Fate::Waiting {
            harness.advance(20 * MS);
            harness.complete_client(query, None);
        }
    }
    let served = queries.iter().take_while(|&&query| harness.fate(query) == &Fate::Exact).count();
    assert!((1..8).contains(&served), "{served}");
    for &query in &queries[served..] {
        harness.expect(query, Fate::Failed(FailureKind::Shed));
    }
    assert_eq!(harness.engine.stats().queue_limit, 2);
}

#[test]
fn instance_that_answers_more_with_more_requests_gets_more_slots() {
    let config = CoreConfig { max_slots: 8, ..core_config(1, 2, 0) };
    let mut harness = Harness::build(config, vec![StrategyConfig::None]);
    // All that it has in 10 ms: twice as many slots, twice the rate.
    for _ in 0..400 {
        while harness.arrive(0, true, MINUTE).is_ok() {}
        harness.advance(10 * MS);
        let sent: Vec<usize> = (harness.sent.iter()).filter_map(|sent| sent.input.number).collect();
        for query in sent {
            harness.complete_client(query, None);
        }
    }
    assert_eq!(harness.engine.stats().slots_per_instance, 8);
}
