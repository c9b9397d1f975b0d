//! Plans: only changes that the registry allows, never less replicated than need be, and an end.

use crate::support::*;

const KEYS: u64 = 60;

/// Ranges between borders, each with a chain.
fn tables() -> impl Strategy<Value = Routing> {
    let servers: Vec<NodeId> = (0..6).map(NodeId).collect();
    let chain = prop::sample::subsequence(servers, 1..=4).prop_shuffle();
    let borders = prop::collection::btree_set(1..KEYS, 0..6);
    let chains = prop::collection::vec((chain, 1u64..9), 7);
    (borders, chains).prop_map(|(borders, chains)| {
        let starts = [0].into_iter().chain(borders.iter().copied());
        let ends = borders.iter().copied().chain([KEYS]);
        let route = |((start, end), (chain, epoch))| Route::new(shard(start, end, epoch), chain);
        table(5, starts.zip(ends).zip(chains).map(route))
    })
}

fn alive(route: &Route, live: &BTreeSet<NodeId>) -> usize {
    route.chain.iter().filter(|node| live.contains(node)).count()
}

/// The next steps of all shards that are not lost.
fn plan(table: &Routing, wanted: &Routing, live: &BTreeSet<NodeId>) -> Vec<Step> {
    let routes = table.routes().iter().filter(|route| alive(route, live) > 0);
    routes.filter_map(|route| next_step(route, wanted, live)).collect()
}

/// Returns true if the registry allows the change, without the planner's words: one shard is gone,
/// and in its place are two with its chain, or one with a server more at the end, or one with some
/// servers fewer in the same order, or one whose head has gone to the end.
fn is_allowed(before: &Routing, after: &Routing) -> bool {
    let only_in = |table: &Routing, other: &Routing| -> Vec<Route> {
        let routes = table.routes().iter().filter(|route| !other.routes().contains(route));
        routes.cloned().collect()
    };
    let (gone, new) = (only_in(before, after), only_in(after, before));
    let [old] = &gone[..] else { return false };
    let is_raised = new.iter().all(|route| route.epoch == old.epoch.next());
    let is_changed = match &new[..] {
        [a, b] => {
            let joined = KeyRange::new(a.range.start, b.range.end);
            let meet = joined == old.range && a.range.end == b.range.start;
            meet && [&a.chain, &b.chain] == [&old.chain; 2]
        }
        [new] if new.range == old.range => {
            let (more, fewer) = (new.chain.len(), old.chain.len());
            let appended = more == fewer + 1 && new.chain.starts_with(&old.chain);
            let mut kept = old.chain.clone();
            kept.retain(|node| new.chain.contains(node));
            let mut stepped_back = old.chain.clone();
            stepped_back.rotate_left(1);
            appended
                || (!kept.is_empty() && more < fewer && kept == new.chain)
                || (more > 1 && stepped_back == new.chain)
        }
        _ => false,
    };
    after.version() == before.version() + 1 && is_raised && is_changed
}

/// Returns true if the step adds a server that does not have the shard yet.
fn is_copied(table: &Routing, step: &Step) -> bool {
    let chain = &table.exact(step.at).unwrap().chain;
    matches!(step.change, ChainChange::Append(add) if !chain.contains(&add))
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
        let mut named: BTreeSet<NodeId> = target.chain.iter().copied().collect();
        named.retain(|node| live.contains(node));
        prop_assert!(held.is_superset(&named) && held.is_subset(live));
        prop_assert!(held == named || held.len() <= target.chain.len(), "{held:?} for {named:?}");
        if let Some(first) = target.chain.iter().find(|node| live.contains(node)) {
            prop_assert_eq!(route.head(), Some(*first));
        }
        needed += named.iter().filter(|node| !was.chain.contains(node)).count();
    }
    Ok(needed)
}

proptest! {
    #[test]
    fn plans_lead_there_by_allowed_steps(
        present in tables(),
        wanted in tables(),
        live in prop::collection::btree_set((0u64..6).prop_map(NodeId), 1..=6),
        order: u64,
    ) {
        let mut table = present.clone();
        let mut copies = 0;
        let mut turn = order;
        for round in 0.. {
            prop_assert!(round < 200, "no end");
            let steps = plan(&table, &wanted, &live);
            let shards: BTreeSet<ShardRef> = steps.iter().map(|step| step.at).collect();
            prop_assert_eq!(shards.len(), steps.len(), "two steps for a shard");
            // Any of the steps may be the next to be carried out.
            turn = turn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let Some(step) = steps.get((turn >> 33) as usize % steps.len().max(1)) else {
                break;
            };
            if let ChainChange::Append(add) = step.change {
                prop_assert!(live.contains(&add));
                copies += usize::from(is_copied(&table, step));
            }
            let next = step.apply(&table).unwrap();
            prop_assert!(is_allowed(&table, &next), "{step:?}");
            for route in next.routes() {
                let old = table.route(ARRAY, route.range.start).unwrap();
                let target = wanted.route(ARRAY, route.range.start).unwrap().chain.len();
                let least = alive(old, &live).min(target);
                prop_assert!(alive(route, &live) >= least, "{step:?}");
                let most = old.chain.len().max(target + 1);
                prop_assert!(route.chain.len() <= most, "{step:?}");
            }
            // The shard of the plan is no longer there.
            let stale = matches!(step.apply(&next), Err(RoutingError::Stale(_)));
            prop_assert!(stale);
            table = next;
        }
        let needed = check_end(&present, &wanted, &live, &table)?;
        prop_assert_eq!(copies, needed, "copies that were not needed");
    }

    /// Servers join and leave a cluster placed by the ring: what is copied is what the ring moved.
    #[test]
    fn cluster_follows_its_ring(
        first in prop::collection::btree_set(0u64..20, 2..6),
        second in prop::collection::btree_set(0u64..20, 2..6),
    ) {
        let placement = Placement { points: 32, replicas: 2 };
        let place = |nodes: &BTreeSet<u64>| {
            let weights = nodes.iter().map(|&node| (NodeId(node), 1)).collect();
            let ranges = KeyRange::new(0, 1_000).cut(16).map(|range| (ARRAY, range));
            placement.ring(&weights).routing(1, ranges).unwrap()
        };
        let (mut table, wanted) = (place(&first), place(&second));
        // Those that leave are drained first.
        let live: BTreeSet<NodeId> = first.union(&second).copied().map(NodeId).collect();
        let pairs = table.routes().iter().zip(wanted.routes());
        let new = |(a, b): (&Route, &Route)| {
            b.chain.iter().filter(|node| !a.chain.contains(node)).count()
        };
        let moved: usize = pairs.map(new).sum();
        let mut copies = 0;
        while let Some(step) = plan(&table, &wanted, &live).first() {
            copies += usize::from(is_copied(&table, step));
            table = step.apply(&table).unwrap();
            let mut routes = table.routes().iter();
            prop_assert!(routes.all(|route| (2..=3).contains(&route.chain.len())));
        }
        prop_assert_eq!(copies, moved);
        for (route, target) in table.routes().iter().zip(wanted.routes()) {
            let [held, named] = [&route.chain, &target.chain].map(|chain| {
                chain.iter().collect::<BTreeSet<&NodeId>>()
            });
            prop_assert_eq!(held, named);
            prop_assert_eq!(route.head(), target.head());
        }
    }
}

#[test]
fn steps_that_make_no_table_are_refused() {
    let at = shard(0, 10, 2);
    let routing = table(1, [Route::new(at, nodes(&[1, 2]))]);
    let (array, range) = (ARRAY, at.range);
    let changes = [
        ChainChange::Split(0),
        ChainChange::Split(10),
        ChainChange::Split(11),
        ChainChange::Append(NodeId(2)),
        ChainChange::Remove(nodes(&[1, 2])),
    ];
    for change in changes {
        let applied = Step { at, change }.apply(&routing);
        assert_eq!(applied, Err(RoutingError::Malformed { array, range }));
    }
    for at in [shard(0, 5, 2), shard(0, 10, 1)] {
        let change = ChainChange::Split(3);
        let applied = Step { at, change }.apply(&routing);
        assert!(matches!(applied, Err(RoutingError::Stale(_))));
    }
}
