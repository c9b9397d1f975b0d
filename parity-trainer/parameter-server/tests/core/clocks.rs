//! Ranged clocks against one clock for each (worker, key).

use crate::support::*;

const RANGE: KeyRange = KeyRange::new(5, 45);

#[derive(Debug, Clone)]
enum Op {
    Join(u64, u64),
    Leave(u64),
    Advance(u64, Key, Key, u64),
    CopyAndCut(Key),
    /// Takes part of another table's clocks over, in which the worker is at this clock.
    CopyFrom(u64, Key, Key, u64),
}

fn op() -> impl Strategy<Value = Op> {
    let (worker, key) = (|| 0u64..4, || 0u64..50);
    prop_oneof![
        1 => (worker(), 0u64..5).prop_map(|(w, c)| Op::Join(w, c)),
        1 => worker().prop_map(Op::Leave),
        12 => (worker(), key(), key(), 0u64..9).prop_map(|(w, a, b, c)| Op::Advance(w, a, b, c)),
        1 => key().prop_map(Op::CopyAndCut),
        1 => (worker(), key(), key(), 0u64..9).prop_map(|(w, a, b, c)| Op::CopyFrom(w, a, b, c)),
    ]
}

type Reference = BTreeMap<(WorkerId, Key), Clock>;

fn entries(clocks: &RangedClocks) -> usize {
    clocks.to_entries().len()
}

fn agree(clocks: &RangedClocks, reference: &Reference) {
    let range = clocks.range();
    let mut reference = reference.clone();
    reference.retain(|&(_, key), _| range.contains(key));
    let workers: BTreeSet<WorkerId> = clocks.workers().collect();
    for &worker in &workers {
        let parts: Vec<_> = clocks.parts(worker, range).collect();
        // Neighbours differ: nothing is kept twice.
        let differ = |p: &[(KeyRange, Clock)]| p[0].1 != p[1].1 && p[0].0.end == p[1].0.start;
        assert!(parts.windows(2).all(differ), "{parts:?}");
        for (part, clock) in parts {
            let is_it = |key| reference.get(&(worker, key)) == Some(&clock);
            assert!((part.start..part.end).all(is_it));
        }
    }
    assert_eq!(workers.len() as u64 * range.len(), reference.len() as u64);
    for part in [range, KeyRange::new(12, 20)] {
        let Some(part) = part.intersect(range) else {
            continue;
        };
        let inside = || reference.iter().filter(|((_, key), _)| part.contains(*key));
        assert_eq!(clocks.finished(part), inside().map(|(_, &clock)| clock).min());
        for clock in (0..9).map(Clock) {
            let finished = clocks.parts_finished(part, clock);
            assert!(finished.windows(2).all(|p| p[0].end < p[1].start), "{finished:?}");
            let finished: Vec<Key> = finished.iter().flat_map(|p| p.start..p.end).collect();
            let all = |key: &Key| inside().all(|((_, k), &c)| k != key || c >= clock);
            assert_eq!(finished, (part.start..part.end).filter(all).collect::<Vec<_>>());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn ranged_clocks_equal_one_clock_for_each_key(ops in prop::collection::vec(op(), 1..40)) {
        let mut clocks = RangedClocks::new(RANGE);
        let mut reference = Reference::new();
        for op in ops {
            match op {
                Op::Join(worker, clock) => {
                    if clocks.join(WorkerId(worker), Clock(clock)) {
                        let keys = RANGE.start..RANGE.end;
                        reference.extend(keys.map(|key| ((WorkerId(worker), key), Clock(clock))));
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
                    let before = entries(&clocks);
                    clocks.advance(WorkerId(worker), range, Clock(clock));
                    // A push splits a range into at most three.
                    prop_assert!(entries(&clocks) <= before + 2);
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
                    prop_assert_eq!(lower.range().end, upper.range().start);
                    prop_assert_eq!(upper.range().end, RANGE.end);
                    agree(&lower, &reference);
                    agree(&upper, &reference);
                }
                Op::CopyFrom(worker, start, end, clock) => {
                    let range = KeyRange::new(start, end);
                    let mut other = RangedClocks::new(RANGE);
                    clocks.copy_from(&other, WorkerId(worker), range);
                    other.join(WorkerId(worker), Clock(clock));
                    clocks.copy_from(&other, WorkerId(worker), range);
                    for ((w, key), c) in &mut reference {
                        if *w == WorkerId(worker) && range.contains(*key) {
                            *c = Clock(clock);
                        }
                    }
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
    assert_eq!(entries(&clocks), 3);
    clocks.advance(WorkerId(1), RANGE, Clock(1));
    assert_eq!(entries(&clocks), 1);
}
