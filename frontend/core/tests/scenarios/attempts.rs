//! Places and repetitions of requests: queries', copies' and parity queries'.

use super::*;

#[test]
fn a_query_at_an_instance_that_is_found_down_is_sent_elsewhere_too() {
    let mut harness = Harness::plain(3, 1);
    let queries = harness.pair();
    harness.set_up(instance(0, 0), false);
    // It may still be answered there.
    assert_eq!(harness.places(queries[0]), [0, 2]);
    harness.set_up(instance(0, 1), false);
    assert_eq!(harness.places(queries[1]), [1], "no slot is free");
    harness.complete_at(queries[0], 2, None);
    harness.expect(queries[0], Fate::Exact);
    assert_eq!(harness.sent.len(), 1, "the other request is withdrawn");
    // Which the budget of retries pays for.
    assert_eq!(harness.engine.stats().retries, 1);
    harness.set_up(instance(0, 1), false);
    // The next check finds a free slot.
    assert_eq!(harness.places(queries[1]), [1, 2]);
    harness.complete_at(queries[1], 1, None);
    // By the one that was thought to be down.
    harness.expect(queries[1], Fate::Exact);
}

/// All of a query's requests are withdrawn before anything is started that keeps away from them.
#[test]
fn a_parity_query_that_waits_does_not_take_the_place_of_a_request_that_is_being_withdrawn() {
    let mut config = unmodified_config(3, 2);
    config.parity_timeout = 10 * LATE_TRUTH_WAIT;
    let mut harness = Harness::coded(2, 2, config);
    let hasty = harness.arrive(0, true, 2 * HOLD_BACK).unwrap();
    let others = harness.pair();
    harness.compute();
    // Every instance has a member.
    assert!(harness.sent.iter().all(|sent| sent.input.group.is_none()));
    harness.set_up(instance(0, 0), false);
    assert_eq!(harness.places(hasty), [0, 1]);
    harness.complete_client(others[0], None);
    // One has still.
    assert!(harness.sent.iter().all(|sent| sent.input.group.is_none()));
    harness.advance(2 * HOLD_BACK + LATE_TRUTH_WAIT);
    assert_eq!(harness.places(hasty), [0; 0]);
    harness.set_up(instance(0, 1), true); // It took long, and had to show that it is well.
    // Its turn.
    assert!(harness.sent.iter().any(|sent| sent.input.group.is_some()));
}

#[test]
fn queued_retry_of_a_parity_query_avoids_the_other_row_sent_after_it() {
    let mut harness = Harness::coded(3, 2, unmodified_config(2, 2));
    let members = harness.pair();
    harness.encode(0, true);
    harness.complete_parity(Some(FailureKind::InstanceBusy)); // The retry is queued.
    harness.encode(0, true);
    let at_parity = |harness: &Harness| -> Vec<u32> {
        let sent = harness.sent.iter();
        let parity = sent.filter(|sent| sent.input.group.is_some());
        parity.map(|sent| sent.instance.index).collect()
    };
    assert_eq!(at_parity(&harness), [2]);
    let other = harness.arrive(1, true, MINUTE).unwrap();
    harness.complete_client(other, None); // A free slot starts what is queued.
    // One instance must not hold up both rows.
    assert_eq!(at_parity(&harness), [2]);
    harness.complete_client(members[0], None);
    assert_eq!(at_parity(&harness), [2, 0]);
}

#[test]
fn two_missing_predictions_need_two_parity_outputs() {
    let mut harness = coded(3, 2);
    let queries = [(); 3].map(|()| harness.query());
    harness.compute();
    harness.complete_client(queries[1], None);
    harness.complete_parity(None);
    harness.advance(HOLD_BACK);
    assert!(harness.decodes.is_empty(), "one parity output, two missing");
    harness.complete_parity(None);
    harness.compute();
    harness.expect(queries[0], Fate::Reconstructed);
    harness.expect(queries[2], Fate::Reconstructed);
}

#[test]
fn with_slots_one_parity_output_answers_a_group_whose_members_are_all_late() {
    let mut harness = coded_with(slots_config(3, 1));
    let queries = [(); 3].map(|()| harness.query());
    harness.compute();
    harness.complete_parity(None);
    harness.advance(HOLD_BACK);
    harness.compute();
    for query in queries {
        harness.expect(query, Fate::Reconstructed);
        assert_eq!(harness.took(query), HOLD_BACK);
    }
    let stats = harness.engine.stats();
    assert_eq!((stats.redundant.won, stats.late_unrecoverable), (1, 0));
}

#[test]
fn with_slots_a_group_with_fillers_has_its_share_of_the_rows() {
    let mut harness = coded_with(slots_config(4, 2));
    for members in [4, 1, 2, 3] {
        let before = harness.engine.stats().redundant.issued;
        let queries: Vec<usize> = (0..members).map(|_| harness.query()).collect();
        harness.advance(FLUSH_AFTER);
        harness.compute();
        let issued = harness.engine.stats().redundant.issued - before;
        assert_eq!(issued, if members > 2 { 2 } else { 1 }, "{members} of 4");
        for query in queries {
            harness.complete_client(query, None);
        }
        for _ in 0..issued {
            harness.complete_parity(None);
        }
    }
}

#[test]
fn with_slots_the_first_query_of_all_is_reconstructed_alone() {
    let mut harness = coded_with(slots_config(3, 1));
    let lone = harness.query();
    harness.advance(FLUSH_AFTER);
    harness.compute();
    harness.complete_parity(None);
    harness.advance(HOLD_BACK - FLUSH_AFTER);
    harness.compute();
    harness.expect(lone, Fate::Reconstructed);
    assert_eq!(harness.took(lone), HOLD_BACK);
}

#[test]
fn with_slots_lone_queries_ask_the_rows_in_turn() {
    let mut harness = coded_with(slots_config(2, 2));
    let filler = harness.query();
    harness.complete_client(filler, None);
    let mut asked = Vec::new();
    for _ in 0..4 {
        let lone = harness.query();
        harness.advance(FLUSH_AFTER);
        asked.extend(harness.encodes.iter().map(|encode| encode.row.0));
        harness.compute();
        harness.complete_client(lone, None);
    }
    // The filler and the first of them are a whole group.
    assert_eq!(asked, [0, 1, 0, 1, 0]);
}

/// One instance of row 0 is down, the other has a request that does not end.
#[test]
fn with_slots_lone_queries_ask_a_row_with_a_free_instance() {
    let mut harness = coded_with(slots_config(2, 2));
    let [one, other] = harness.pair();
    harness.compute();
    for query in [one, other] {
        harness.complete_client(query, None);
    }
    harness.set_up(instance(1, 1), false);
    let mut asked = Vec::new();
    for _ in 0..3 {
        let lone = harness.query();
        harness.advance(FLUSH_AFTER);
        asked.extend(harness.encodes.iter().map(|encode| encode.row.0));
        harness.compute();
        harness.complete_client(lone, None);
        let row_1 = instance(2, 0).pool;
        while let Some(at) = harness.sent.iter().position(|sent| sent.instance.pool == row_1) {
            harness.complete(at, None);
        }
    }
    assert_eq!(asked, [1, 1, 1]);
}

#[test]
fn with_slots_the_request_of_a_member_that_gave_up_is_withdrawn() {
    let mut harness = coded_with(slots_config(2, 1));
    let [gone, other] = harness.pair();
    harness.compute();
    harness.abandon(gone);
    assert!(!harness.is_in_flight(gone), "no sibling needs its prediction");
    harness.complete_client(other, Some(FailureKind::Refused));
    harness.complete_parity(None);
    harness.compute();
    harness.expect(other, Fate::Reconstructed);
}

#[test]
fn with_slots_lost_members_fail_once_no_parity_output_can_come() {
    let mut harness = coded_with(slots_config(2, 1));
    let queries = harness.pair();
    harness.compute();
    for query in queries {
        harness.complete_client(query, Some(FailureKind::Refused));
        harness.expect(query, Fate::Waiting);
    }
    harness.complete_parity(Some(FailureKind::Refused));
    for query in queries {
        harness.expect(query, Fate::Failed(FailureKind::Refused));
    }
}

#[test]
fn when_late_a_query_that_is_answered_in_time_joins_no_group() {
    let mut harness = coded_with(when_late_config(2, 1));
    for query in harness.pair() {
        harness.complete_client(query, None);
    }
    harness.advance(MINUTE);
    let stats = harness.engine.stats();
    assert_eq!((stats.redundant.issued, stats.groups_tracked), (0, 0));
    assert_eq!(stats.kept_bytes, 0);
}

#[test]
fn when_late_queries_that_are_late_together_share_one_parity_query() {
    let mut harness = coded_with(when_late_config(3, 1));
    let [first, second] = harness.pair();
    let in_time = harness.query();
    harness.complete_client(in_time, None);
    harness.advance(HOLD_BACK);
    harness.compute();
    assert_eq!(harness.engine.stats().redundant.issued, 0, "more may be late");
    harness.advance(MS);
    harness.compute();
    assert_eq!(harness.engine.stats().redundant.issued, 1);
    harness.complete_parity(None);
    harness.compute();
    for query in [first, second] {
        harness.expect(query, Fate::Reconstructed);
        assert_eq!(harness.took(query), HOLD_BACK + MS);
    }
    // Their own predictions are compared with what was sent.
    harness.complete_client(first, None);
    harness.complete_client(second, None);
    harness.advance(MINUTE);
    assert_eq!(harness.engine.stats().groups_tracked, 0);
}

#[test]
fn when_late_a_lost_query_is_reconstructed_at_once_and_an_exact_one_wins() {
    let mut harness = coded_with(when_late_config(2, 1));
    let [lost, late] = harness.pair();
    harness.complete_client(lost, Some(FailureKind::Refused));
    harness.compute();
    assert_eq!(harness.engine.stats().redundant.issued, 1);
    harness.complete_parity(None);
    harness.compute();
    harness.expect(lost, Fate::Reconstructed);
    harness.advance(HOLD_BACK + MS);
    harness.compute();
    harness.complete_client(late, None);
    harness.expect(late, Fate::Exact);
}

#[test]
fn members_of_a_group_go_to_different_instances() {
    let mut config = coded_config(2, 1);
    config.flush_after = MINUTE;
    let mut harness = Harness::coded(2, 2, config);
    // Instance 0 is the less loaded one when the second member comes, and is avoided all the same.
    harness.query();
    harness.arrive(1, true, MINUTE).unwrap();
    harness.complete_client(1, None);
    harness.query();
    assert_ne!(harness.places(0), harness.places(2));
}

#[test]
fn a_failed_attempt_is_made_again_elsewhere_and_the_instance_probed() {
    let mut harness = Harness::plain(2, 1);
    let query = harness.query();
    let first = harness.sent[0].instance;
    harness.complete_client(query, Some(FailureKind::ConnectionLost));
    assert_eq!(harness.probes, [first]);
    assert_ne!(harness.sent[0].instance, first);
    harness.complete_client(query, None);
    harness.expect(query, Fate::Exact);
    assert_eq!(harness.engine.stats().retries, 1);
}

#[test]
fn retries_are_budgeted() {
    let mut harness = Harness::plain(4, 1);
    for _ in 0..200 {
        let query = harness.query();
        while harness.is_in_flight(query) {
            harness.complete_client(query, Some(FailureKind::InstanceError));
        }
        harness.expect(query, Fate::Failed(FailureKind::InstanceError));
    }
    assert!(harness.engine.stats().retries <= 200 / 5 + 5);
}

#[test]
fn a_kept_request_that_fails_at_its_querys_deadline_is_not_made_again() {
    let mut harness = coded(2, 1);
    let hasty = harness.arrive(0, true, 2 * HOLD_BACK).unwrap();
    harness.query();
    harness.compute();
    harness.advance(2 * HOLD_BACK);
    assert!(harness.is_in_flight(hasty), "its group needs it (CG-8)");
    harness.complete_client(hasty, Some(FailureKind::ConnectionLost));
    assert!(!harness.is_in_flight(hasty));
    assert_eq!(harness.engine.stats().retries, 0);
}
