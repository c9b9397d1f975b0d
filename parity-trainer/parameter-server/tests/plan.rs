//! Plans: only changes that the registry allows, never less replicated than need be, and an end.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};

use parapet_parameter_server::{
    ArrayId, Epoch, KeyRange, NodeId, Placement, Planner, Route, Routing, RoutingError, ShardRef,
    Step,
};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

const ARRAY: ArrayId = ArrayId(3);
const KEYS: u64 = 60;

/// Ranges between borders, each with a chain.
fn table() -> impl Strategy<Value = Routing> {
    let chain =
        prop::sample::subsequence((0..6).map(NodeId).collect::<Vec<_>>(), 1..=4).prop_shuffle();
    (
        prop::collection::btree_set(1..KEYS, 0..6),
        prop::collection::vec((chain, 1u64..9), 7),
    )
        .prop_map(|(borders, chains)| {
            let ends = borders.iter().copied().chain([KEYS]);
            let ranges = [0].into_iter().chain(borders.iter().copied()).zip(ends);
            let routes = ranges
                .zip(chains)
                .map(|((start, end), (chain, epoch))| Route {
                    array: ARRAY,
                    range: KeyRange::new(start, end),
                    epoch: Epoch(epoch),
                    chain,
                });
            Routing::new(5, routes.collect()).unwrap()
        })
}

fn alive(route: &Route, live: &BTreeSet<NodeId>) -> usize {
    route
        .chain
        .iter()
        .filter(|node| live.contains(node))
        .count()
}

/// Returns true if the registry allows the change, without the planner's words: one shard is gone,
/// and in its place are two with its chain, or one with a server more at the end, or one with some
/// servers fewer in the same order.
fn is_allowed(before: &Routing, after: &Routing) -> bool {
    let gone: Vec<&Route> = before
        .routes()
        .iter()
        .filter(|route| !after.routes().contains(route))
        .collect();
    let new: Vec<&Route> = after
        .routes()
        .iter()
        .filter(|route| !before.routes().contains(route))
        .collect();
    let raised = |old: &Route| new.iter().all(|route| route.epoch == old.epoch.next());
    after.version() == before.version() + 1
        && match (&gone[..], &new[..]) {
            ([old], [a, b]) => {
                let joined = KeyRange::new(a.range.start, b.range.end);
                raised(old)
                    && joined == old.range
                    && a.range.end == b.range.start
                    && [&a.chain, &b.chain] == [&old.chain; 2]
            }
            ([old], [new]) if new.range == old.range && raised(old) => {
                let appended =
                    new.chain.len() == old.chain.len() + 1 && new.chain.starts_with(&old.chain);
                let kept: Vec<NodeId> = old
                    .chain
                    .iter()
                    .copied()
                    .filter(|node| new.chain.contains(node))
                    .collect();
                appended
                    || (!new.chain.is_empty()
                        && new.chain.len() < old.chain.len()
                        && kept == new.chain)
            }
            _ => false,
        }
}

/// Checks the table at which plans end; the copies that were needed.
fn check_end(
    present: &Routing,
    wanted: &Routing,
    live: &BTreeSet<NodeId>,
    table: &Routing,
) -> Result<usize, TestCaseError> {
    let mut needed = 0;
    for route in table.routes() {
        let target = wanted.route(ARRAY, route.range.start).unwrap();
        prop_assert!(target.range.covers(route.range) || alive(route, live) == 0);
        let was = present.route(ARRAY, route.range.start).unwrap();
        if alive(was, live) == 0 {
            prop_assert_eq!(&route.chain, &was.chain, "a lost shard was touched");
            continue;
        }
        let held: BTreeSet<NodeId> = route.chain.iter().copied().collect();
        let named: BTreeSet<NodeId> = target
            .chain
            .iter()
            .copied()
            .filter(|node| live.contains(node))
            .collect();
        prop_assert!(held.is_superset(&named) && held.is_subset(live));
        prop_assert!(
            held == named || held.len() <= target.chain.len(),
            "{held:?} for {named:?}"
        );
        needed += named
            .iter()
            .filter(|node| !was.chain.contains(node))
            .count();
    }
    Ok(needed)
}

proptest! {
    #[test]
    fn plans_lead_there_by_allowed_steps(
        present in table(),
        wanted in table(),
        live in prop::collection::btree_set((0u64..6).prop_map(NodeId), 1..=6),
        max_copies in 1usize..4,
        order: u64,
    ) {
        let planner = Planner { max_copies };
        let mut table = present.clone();
        let mut copies = 0;
        let mut turn = order;
        for round in 0.. {
            prop_assert!(round < 200, "no end");
            let plan = planner.plan(&table, &wanted, &live);
            let shards: BTreeSet<ShardRef> = plan.steps.iter().map(Step::at).collect();
            prop_assert_eq!(shards.len(), plan.steps.len(), "two steps for a shard");
            let appends = plan
                .steps
                .iter()
                .filter(|step| matches!(step, Step::Append { .. }))
                .count();
            prop_assert!(appends <= max_copies);
            prop_assert!(
                plan.lost
                    .iter()
                    .all(|at| alive(table.route(ARRAY, at.range.start).unwrap(), &live) == 0)
            );
            // Any of the steps may be the next to be carried out.
            turn = turn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let Some(step) = plan
                .steps
                .get((turn >> 33) as usize % plan.steps.len().max(1))
            else {
                break;
            };
            if let Step::Append { add, .. } = step {
                prop_assert!(live.contains(add));
                copies += 1;
            }
            let next = step.apply(&table).unwrap();
            prop_assert!(is_allowed(&table, &next), "{step:?}");
            for route in next.routes() {
                let old = table.route(ARRAY, route.range.start).unwrap();
                let target = wanted.route(ARRAY, route.range.start).unwrap();
                prop_assert!(
                    alive(route, &live) >= alive(old, &live).min(target.chain.len()),
                    "{step:?}"
                );
                prop_assert!(
                    route.chain.len() <= old.chain.len().max(target.chain.len() + 1),
                    "{step:?}"
                );
            }
            // What the plan was made of is no longer there.
            let stale = matches!(step.apply(&next), Err(RoutingError::Stale { .. }));
            prop_assert!(stale);
            table = next;
        }
        let needed = check_end(&present, &wanted, &live, &table)?;
        prop_assert_eq!(copies, needed, "copies that were not needed");
    }

    /// Servers join and leave a cluster placed by the ring: what is copied is what the ring moved.
    #[test]
    fn a_cluster_follows_its_ring(
        first in prop::collection::btree_set(0u64..20, 2..6),
        second in prop::collection::btree_set(0u64..20, 2..6),
    ) {
        let placement = Placement {
            points: 32,
            replicas: 2,
        };
        let weights = |nodes: &BTreeSet<u64>| -> BTreeMap<NodeId, u32> {
            nodes.iter().map(|&node| (NodeId(node), 1)).collect()
        };
        let ranges = || KeyRange::new(0, 1_000).cut(16).map(|range| (ARRAY, range));
        let mut table = placement
            .ring(&weights(&first))
            .routing(1, ranges())
            .unwrap();
        let wanted = placement
            .ring(&weights(&second))
            .routing(1, ranges())
            .unwrap();
        // Those that leave are drained first.
        let live: BTreeSet<NodeId> = first.union(&second).copied().map(NodeId).collect();
        let moved: usize = table
            .routes()
            .iter()
            .zip(wanted.routes())
            .map(|(a, b)| {
                b.chain
                    .iter()
                    .filter(|node| !a.chain.contains(node))
                    .count()
            })
            .sum();
        let mut copies = 0;
        while let Some(step) = Planner::default()
            .plan(&table, &wanted, &live)
            .steps
            .first()
        {
            copies += usize::from(matches!(step, Step::Append { .. }));
            table = step.apply(&table).unwrap();
            prop_assert!(
                table
                    .routes()
                    .iter()
                    .all(|route| (2..=3).contains(&route.chain.len()))
            );
        }
        prop_assert_eq!(copies, moved);
        for (route, target) in table.routes().iter().zip(wanted.routes()) {
            let sets = [&route.chain, &target.chain]
                .map(|chain| chain.iter().copied().collect::<BTreeSet<_>>());
            prop_assert_eq!(&sets[0], &sets[1]);
        }
    }
}

#[test]
fn steps_that_make_no_table_are_refused() {
    let range = KeyRange::new(0, 10);
    let route = Route {
        array: ARRAY,
        range,
        epoch: Epoch(2),
        chain: vec![NodeId(1), NodeId(2)],
    };
    let table = Routing::new(1, vec![route]).unwrap();
    let at = ShardRef {
        array: ARRAY,
        range,
        epoch: Epoch(2),
    };
    let malformed = Err(RoutingError::Malformed {
        array: ARRAY,
        range,
    });
    for key in [0, 10, 11] {
        assert_eq!(Step::Split { at, key }.apply(&table), malformed);
    }
    assert_eq!(Step::Append { at, add: NodeId(2) }.apply(&table), malformed);
    assert_eq!(
        Step::Remove {
            at,
            nodes: vec![NodeId(1), NodeId(2)]
        }
        .apply(&table),
        malformed
    );
    let other = ShardRef {
        range: KeyRange::new(0, 5),
        ..at
    };
    assert!(matches!(
        Step::Split { at: other, key: 3 }.apply(&table),
        Err(RoutingError::Stale { .. })
    ));
}
