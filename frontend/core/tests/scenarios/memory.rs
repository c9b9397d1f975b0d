//! Bounds on the inputs and kinds of query that are kept.

use super::*;

#[test]
fn query_that_may_not_join_is_in_no_group() {
    let mut harness = Harness::coded(4, 1, coded_config(2, 1));
    for _ in 0..4 {
        let number = harness.arrive(UNSHARED.into(), true, MINUTE).unwrap();
        harness.compute();
        harness.complete_client(number, None);
    }
    let stats = harness.engine.stats();
    assert_eq!((stats.uncoded, stats.groups_encoded), (4, 0));
}

#[test]
fn kinds_of_query_in_which_nobody_waits_make_room_for_others() {
    let mut config = coded_config(2, 1);
    config.max_keys = 2;
    let mut harness = Harness::coded(4, 2, config);
    // Each leaves a group behind that would take one more.
    for key in 0..2 {
        let number = harness.arrive(key, true, MINUTE).unwrap();
        harness.complete_client(number, None);
    }
    for key in 2..8 {
        let [frozen, other] = [(); 2].map(|()| harness.arrive(key, true, MINUTE).unwrap());
        harness.compute();
        harness.complete_client(other, None);
        harness.complete_parity(None);
        harness.compute();
        harness.advance(HOLD_BACK);
        harness.compute();
        assert_eq!(harness.fate(frozen), &Fate::Reconstructed, "kind {key}");
        harness.complete_client(frozen, None);
    }
    assert_eq!(harness.engine.stats().uncoded, 0);
}

#[test]
fn inputs_of_answered_queries_are_kept_within_a_bound_those_seen_last() {
    let mut config = coded_config(3, 1);
    config.max_kept_bytes = 6;
    let mut harness = Harness::coded(4, 2, config);
    let serve = |harness: &mut Harness, key, times| {
        for _ in 0..times {
            let number = harness.arrive(key, true, MINUTE).unwrap();
            harness.complete_client(number, None);
            harness.compute();
            assert!(harness.engine.stats().kept_bytes <= 6);
        }
    };
    serve(&mut harness, 0, 4);
    serve(&mut harness, 1, 4);
    // The first kind has made room for the second.
    assert_eq!(harness.engine.stats().kept_bytes, 4);
    // What is kept still completes a group with one member.
    let frozen = harness.arrive(1, true, MINUTE).unwrap();
    is_reconstructed(&mut harness, frozen);
}

#[test]
fn answered_queries_that_are_not_kept_leave_their_open_group() {
    let mut config = coded_config(3, 1);
    config.max_kept_bytes = 0;
    let mut harness = Harness::coded(4, 2, config);
    let waits = harness.query();
    let answered = harness.query();
    harness.complete_client(answered, None);
    harness.compute();
    // Three more fill the group in which one waits.
    let others = [(); 2].map(|()| harness.query());
    harness.compute();
    for other in others {
        harness.complete_client(other, None);
    }
    is_reconstructed(&mut harness, waits);
    // No query comes after it, and it is held no longer; the harness counts at the end.
    let last = harness.query();
    harness.complete_client(last, None);
}

#[test]
fn of_one_kind_the_oldest_inputs_make_room() {
    let mut config = coded_config(3, 1);
    config.max_kept_bytes = 2;
    let mut harness = Harness::coded(4, 2, config);
    for _ in 0..6 {
        let number = harness.query();
        harness.complete_client(number, None);
        harness.compute();
    }
    // As many as a group can need.
    assert_eq!(harness.engine.stats().kept_bytes, 2);
    let frozen = harness.query();
    is_reconstructed(&mut harness, frozen);
}

#[test]
fn kinds_of_query_are_bounded() {
    let mut config = coded_config(2, 1);
    config.max_keys = 2;
    let mut harness = Harness::coded(4, 2, config);
    for key in 0..3 {
        harness.arrive(key, true, MINUTE).unwrap();
    }
    // Both kinds have an open group.
    assert_eq!(harness.engine.stats().uncoded, 1);
    for number in 0..3 {
        harness.complete_client(number, None);
        harness.expect(number, Fate::Exact);
    }
}
