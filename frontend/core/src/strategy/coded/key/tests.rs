//! Room for one kind of query at the expense of another.

use proptest::prelude::*;

use super::*;

fn key(domain: u32, kind: u32) -> GroupKey {
    GroupKey { domain: DomainId(domain), kind }
}

/// Asks for a kind and gives it an open group. Whether there was room.
fn open(keys: &mut Keys<(), ()>, now: Time, key: GroupKey, is_idle: bool) -> bool {
    let mut gone = Vec::new();
    let state = keys.get_or_insert(now, key, |_| false, &mut gone);
    let had_room = state.is_some();
    if let Some(state) = state {
        let id = GroupId::new(
            u64::from(key.domain.0) << 32 | u64::from(key.kind),
            crate::ClassId::DEFAULT,
        );
        state.open = Some(id).filter(|_| !is_idle);
    }
    had_room
}

fn answered(number: u64, bytes: usize) -> Answered<(), ()> {
    let query = QueryId::new(number, crate::ClassId::DEFAULT);
    Answered { query, input: Arc::new(()), prediction: Arc::new(()), bytes }
}

#[test]
fn one_domain_alone_has_the_whole_table_and_gives_up_what_it_used_longest_ago() {
    let mut keys = Keys::new(3, 2, 100);
    for kind in 0..3 {
        assert!(open(&mut keys, Time::ZERO, key(0, kind), true));
    }
    assert!(open(&mut keys, Time::ZERO, key(0, 0), true));
    assert!(open(&mut keys, Time::ZERO, key(0, 3), true));
    let left: Vec<bool> = (0..4).map(|kind| keys.get(key(0, kind)).is_some()).collect();
    assert_eq!(left, [true, false, true, true]);
    for kind in [0, 2, 3] {
        assert!(open(&mut keys, Time::ZERO, key(0, kind), false));
    }
    assert!(!open(&mut keys, Time::ZERO, key(0, 4), false), "queries of each kind wait");
}

#[test]
fn a_domain_that_holds_most_gives_up_a_kind_even_if_its_queries_wait() {
    let mut keys = Keys::new(4, 2, 100);
    for kind in 0..4 {
        assert!(open(&mut keys, Time::ZERO, key(0, kind), false));
    }
    assert!(
        open(&mut keys, Time::ZERO, key(1, 0), false)
            && open(&mut keys, Time::ZERO, key(1, 1), false)
    );
    assert!(!open(&mut keys, Time::ZERO, key(1, 2), false), "they hold as much as each other");
}

#[test]
fn a_kind_that_was_not_used_for_a_minute_makes_room_for_any_domain() {
    let mut keys = Keys::new(2, 2, 100);
    assert!(
        open(&mut keys, Time::ZERO, key(0, 0), true)
            && open(&mut keys, Time::ZERO, key(1, 0), false)
    );
    assert!(!open(&mut keys, Time::ZERO + UNUSED_FOR / 2, key(1, 1), true));
    assert!(open(&mut keys, Time::ZERO + UNUSED_FOR, key(1, 1), true));
    assert!(keys.get(key(0, 0)).is_none());
}

proptest! {
    /// Two domains use no more than their third of a table that a third one asks for without end.
    #[test]
    fn no_domain_loses_its_share_to_the_others(
        asks in prop::collection::vec((0u32..3, 0u32..40, any::<bool>()), 1..300),
        share in 1u32..6,
    ) {
        let mut keys = Keys::new(3 * share as usize, 2, 100);
        let mut used = std::collections::BTreeSet::new();
        for (domain, kind, is_idle) in asks {
            let kind = if domain == 0 { kind } else { kind % share };
            let had_room = open(&mut keys, Time::ZERO, key(domain, kind), is_idle);
            if domain > 0 {
                prop_assert!(had_room, "domain {} is within its share", domain);
                used.insert(key(domain, kind));
            }
            prop_assert!(keys.table.len() <= keys.capacity);
            prop_assert!(
                used.iter().all(|key| keys.get(*key).is_some()),
                "a kind was lost"
            );
        }
    }

    /// The same for memory. What is held is what is counted.
    #[test]
    fn no_domain_loses_its_share_of_memory_to_the_others(
        asks in prop::collection::vec((0u32..3, 0u32..10, 1usize..30), 1..300),
    ) {
        let mut keys: Keys<(), ()> = Keys::new(64, 2, 90);
        for (number, (domain, kind, bytes)) in (0u64..).zip(asks) {
            // One kind with two queries of 15 are a third.
            let (kind, bytes) = if domain == 0 { (kind, bytes) } else { (0, 15) };
            open(&mut keys, Time::ZERO, key(domain, kind), true);
            let before: Vec<usize> = (1..3)
                .map(|domain| keys.held_by(DomainId(domain)).bytes)
                .collect();
            keys.remember(
                Time::ZERO,
                key(domain, kind),
                answered(number, bytes),
                |_| true,
                &mut Gone::default(),
            );
            for (domain, before) in (1..3).zip(before) {
                prop_assert!(
                    keys.held_by(DomainId(domain)).bytes >= before.min(30),
                    "domain {}",
                    domain
                );
            }
            let recent = keys.table.values().flat_map(|state| &state.recent);
            prop_assert_eq!(
                recent.map(|answered| answered.bytes).sum::<usize>(),
                keys.bytes
            );
            prop_assert_eq!(
                keys.held.values().map(|held| held.bytes).sum::<usize>(),
                keys.bytes
            );
            prop_assert_eq!(
                keys.held.values().map(|held| held.kinds).sum::<usize>(),
                keys.table.len()
            );
            prop_assert!(keys.bytes <= keys.max_bytes);
        }
    }
}
