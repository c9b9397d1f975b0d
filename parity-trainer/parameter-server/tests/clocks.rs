//! Ranged clocks against one clock for each (worker, key).

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use parapet_parameter_server::{Clock, Key, KeyRange, RangedClocks, WorkerId};
use proptest::prelude::*;

const RANGE: KeyRange = KeyRange { start: 5, end: 45 };

#[derive(Debug, Clone)]
enum Op {
    Join(u64, u64),
    Leave(u64),
    Advance(u64, Key, Key, u64),
    CopyAndCut(Key),
}

fn op() -> impl Strategy<Value = Op> {
    let key = || 0u64..50;
    prop_oneof![
        1 => (0u64..4, 0u64..5).prop_map(|(w, c)| Op::Join(w, c)),
        1 => (0u64..4).prop_map(Op::Leave),
        12 => (0u64..4, key(), key(), 0u64..9).prop_map(|(w, a, b, c)| Op::Advance(w, a, b, c)),
        1 => key().prop_map(Op::CopyAndCut),
    ]
}

type Reference = BTreeMap<(WorkerId, Key), Clock>;

fn agree(clocks: &RangedClocks, reference: &Reference) {
    let range = clocks.range();
    let reference: Reference = reference
        .iter()
        .filter(|((_, key), _)| range.contains(*key))
        .map(|(&k, &c)| (k, c))
        .collect();
    let mut entries = 0;
    for worker in clocks.workers() {
        let parts: Vec<_> = clocks.parts(worker, range).collect();
        // Neighbours differ: nothing is kept twice.
        assert!(
            parts
                .windows(2)
                .all(|p| p[0].1 != p[1].1 && p[0].0.end == p[1].0.start),
            "{parts:?}"
        );
        entries += parts.len();
        for (part, clock) in parts {
            assert!(
                (part.start..part.end).all(|key| reference.get(&(worker, key)) == Some(&clock))
            );
        }
    }
    assert_eq!(clocks.entries(), entries);
    assert_eq!(
        clocks.workers().count() * usize::try_from(range.len()).unwrap(),
        reference.len()
    );
    for part in [range, KeyRange::new(12, 20)]
        .into_iter()
        .filter_map(|part| part.intersect(range))
    {
        let inside = || reference.iter().filter(|((_, key), _)| part.contains(*key));
        assert_eq!(
            clocks.finished(part),
            inside().map(|(_, &clock)| clock).min()
        );
        for clock in (0..9).map(Clock) {
            let finished: Vec<Key> = clocks
                .parts_finished(part, clock)
                .iter()
                .flat_map(|p| p.start..p.end)
                .collect();
            let all = |key: &Key| {
                inside()
                    .filter(|((_, k), _)| k == key)
                    .all(|(_, &c)| c >= clock)
            };
            assert_eq!(
                finished,
                (part.start..part.end).filter(all).collect::<Vec<_>>()
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn equal_one_clock_for_each_key(ops in prop::collection::vec(op(), 1..40)) {
        let mut clocks = RangedClocks::new(RANGE);
        let mut reference = Reference::new();
        for op in ops {
            match op {
                Op::Join(worker, clock) => {
                    if clocks.join(WorkerId(worker), Clock(clock)) {
                        reference.extend(
                            (RANGE.start..RANGE.end)
                                .map(|key| ((WorkerId(worker), key), Clock(clock))),
                        );
                    }
                }
                Op::Leave(worker) => {
                    let left = clocks.leave(WorkerId(worker));
                    let before = reference.len();
                    reference.retain(|(w, _), _| *w != WorkerId(worker));
                    prop_assert_eq!(left, reference.len() < before);
                }
                Op::Advance(worker, start, end, clock) => {
                    let range = KeyRange::new(start, end);
                    let before = clocks.entries();
                    clocks.advance(WorkerId(worker), range, Clock(clock));
                    // A push splits a range into at most three.
                    prop_assert!(clocks.entries() <= before + 2);
                    for ((w, key), c) in &mut reference {
                        if *w == WorkerId(worker) && range.contains(*key) {
                            *c = (*c).max(Clock(clock));
                        }
                    }
                }
                Op::CopyAndCut(key) => {
                    let mut lower = RangedClocks::from_entries(RANGE, &clocks.to_entries());
                    prop_assert_eq!(&lower, &clocks);
                    let upper = lower.split_off(key);
                    prop_assert_eq!(
                        (lower.range().end, upper.range().end),
                        (upper.range().start, RANGE.end)
                    );
                    agree(&lower, &reference);
                    agree(&upper, &reference);
                }
            }
            agree(&clocks, &reference);
        }
    }
}

#[test]
fn whole_shards_cost_one_entry() {
    let mut clocks = RangedClocks::new(RANGE);
    clocks.join(WorkerId(1), Clock(0));
    clocks.advance(WorkerId(1), KeyRange::new(10, 20), Clock(1));
    assert_eq!(clocks.entries(), 3);
    clocks.advance(WorkerId(1), RANGE, Clock(1));
    assert_eq!(clocks.entries(), 1);
}
