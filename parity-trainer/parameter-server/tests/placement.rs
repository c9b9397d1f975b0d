//! Consistent hashing: the same everywhere, spread by weight, and no server moves without need.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};

use parapet_parameter_server::{ArrayId, Key, KeyRange, NodeId, Placement, Ring, Route, Routing};
use proptest::prelude::*;

const ARRAYS: u32 = 4;
const RANGES: u64 = 512;

fn servers(
    count: impl Into<prop::collection::SizeRange>,
    weights: std::ops::RangeInclusive<u32>,
) -> impl Strategy<Value = BTreeMap<NodeId, u32>> {
    prop::collection::btree_map(any::<u64>().prop_map(NodeId), weights, count)
}

fn ranges() -> impl Iterator<Item = (ArrayId, Key)> {
    (0..ARRAYS).flat_map(|array| (0..RANGES).map(move |i| (ArrayId(array), i * 1_000)))
}

fn chains(ring: &Ring) -> Vec<Vec<NodeId>> {
    ranges()
        .map(|(array, first)| ring.chain(array, first))
        .collect()
}

fn without(chain: &[NodeId], node: NodeId) -> Vec<NodeId> {
    chain
        .iter()
        .copied()
        .filter(|&other| other != node)
        .collect()
}

/// An array of a thousand keys a range.
fn table(
    placement: &Placement,
    servers: &BTreeMap<NodeId, u32>,
    array: u32,
    ranges: u64,
) -> Routing {
    let pieces = KeyRange::new(0, 1_000 * ranges)
        .cut(ranges)
        .map(|range| (ArrayId(array), range));
    placement.ring(servers).routing(1, pieces).unwrap()
}

/// Keys of the ranges that each server is the head of.
fn heads(table: &Routing) -> BTreeMap<NodeId, u64> {
    let mut loads = BTreeMap::new();
    for route in table.routes() {
        *loads.entry(route.chain[0]).or_default() += route.range.len();
    }
    loads
}

proptest! {
    #[test]
    fn chains_are_of_different_servers_and_as_long_as_can_be(
        servers in servers(0..9, 0..=3),
        replicas in 0usize..5,
    ) {
        let placement = Placement {
            points: 16,
            replicas,
        };
        let can_hold = servers.values().filter(|&&weight| weight > 0).count();
        for chain in chains(&placement.ring(&servers)) {
            let different: BTreeSet<NodeId> = chain.iter().copied().collect();
            prop_assert_eq!(different.len(), chain.len());
            prop_assert_eq!(chain.len(), replicas.max(1).min(can_hold));
            prop_assert!(chain.iter().all(|node| servers[node] > 0));
        }
    }

    /// One server's change of weight (from or to 0: it joins or leaves) changes no chain but where
    /// that server comes in or goes: without it, the longer chain begins with the shorter, and as
    /// many servers as it takes up are displaced.
    #[test]
    fn a_change_of_one_server_moves_nobody_else(
        servers in servers(1..9, 0..=3),
        which: prop::sample::Index,
        weight in 0u32..4,
        replicas in 1usize..4,
    ) {
        let placement = Placement {
            points: 16,
            replicas,
        };
        let node = *which.get(&servers.keys().copied().collect::<Vec<_>>());
        let mut changed = servers.clone();
        changed.insert(node, weight);
        let grows = weight >= servers[&node];
        let (before, after) = (
            chains(&placement.ring(&servers)),
            chains(&placement.ring(&changed)),
        );
        for (old, new) in before.iter().zip(&after) {
            let (fewer, more) = (without(old, node), without(new, node));
            prop_assert!(
                fewer.starts_with(&more) || more.starts_with(&fewer),
                "{old:?} became {new:?}"
            );
            prop_assert!(
                !grows || !old.contains(&node) || new.contains(&node),
                "taken from a server that grew"
            );
            prop_assert!(
                grows || !new.contains(&node) || old.contains(&node),
                "given to a server that shrank"
            );
        }
    }

    /// A joining server takes about its share, no more.
    #[test]
    fn a_join_moves_about_one_share(servers in servers(4..=12, 1..=1), joins: u64) {
        prop_assume!(!servers.contains_key(&NodeId(joins)));
        let placement = Placement::default();
        let mut more = servers.clone();
        more.insert(NodeId(joins), 1);
        let moved = chains(&placement.ring(&servers))
            .iter()
            .zip(chains(&placement.ring(&more)))
            .map(|(old, new)| new.iter().filter(|node| !old.contains(node)).count())
            .sum::<usize>();
        let share = f64::from(ARRAYS) * RANGES as f64 * 2.0 / more.len() as f64;
        prop_assert!(
            moved as f64 <= 1.7 * share,
            "{moved} copies, where a share is {share}"
        );
        prop_assert!(
            moved as f64 >= 0.4 * share,
            "{moved} copies, where a share is {share}"
        );
    }

    /// Places and ranges both scatter by about a tenth here: these bounds are five times that.
    #[test]
    fn load_follows_weight(servers in servers(2..=8, 1..=2)) {
        let placement = Placement {
            replicas: 1,
            ..Placement::default()
        };
        let mut held: BTreeMap<NodeId, usize> = BTreeMap::new();
        for chain in chains(&placement.ring(&servers)) {
            *held.entry(chain[0]).or_default() += 1;
        }
        let total: u32 = servers.values().sum();
        for (node, &weight) in &servers {
            let fair = f64::from(ARRAYS) * RANGES as f64 * f64::from(weight) / f64::from(total);
            let found = held.get(node).copied().unwrap_or(0) as f64;
            prop_assert!(
                (0.4 * fair..=1.7 * fair).contains(&found),
                "{node}: {found} ranges of {fair}"
            );
        }
    }

    /// As few shards as a small model has: hashing alone gave all four of them to two
    /// servers of three.
    #[test]
    fn no_server_is_empty_where_there_are_as_many_ranges(
        servers in servers(1..=8, 1..=1),
        array: u32,
        more in 0u64..9,
        replicas in 1usize..4,
    ) {
        let placement = Placement {
            replicas,
            ..Placement::default()
        };
        let table = table(&placement, &servers, array, servers.len() as u64 + more);
        let heads = heads(&table);
        let fair = table.routes().len() as f64 / servers.len() as f64;
        for node in servers.keys() {
            let heads = heads.get(node).copied().unwrap_or(0) as f64 / 1_000.0;
            prop_assert!(
                (1.0..=(1.25 * fair).max(fair.ceil())).contains(&heads),
                "{node}: {heads} heads of {fair}"
            );
        }
        for route in table.routes() {
            let different: BTreeSet<NodeId> = route.chain.iter().copied().collect();
            prop_assert_eq!(different.len(), route.chain.len());
            prop_assert_eq!(different.len(), replicas.min(servers.len()));
        }
    }

    /// However weights and sizes are spread: nothing is left that one move would make better.
    #[test]
    fn a_quarter_of_its_share_is_the_bound_that_moves_can_reach(
        servers in servers(1..=8, 1..=4),
        sizes in prop::collection::vec(1u64..1_000, 1..40),
        replicas in 1usize..4,
    ) {
        let ring = Placement {
            replicas,
            ..Placement::default()
        }
        .ring(&servers);
        let borders: Vec<u64> = sizes
            .iter()
            .scan(0, |end, size| {
                *end += size;
                Some(*end)
            })
            .collect();
        let ranges = borders
            .iter()
            .zip(&sizes)
            .map(|(&end, size)| (ArrayId(9), KeyRange::new(end - size, end)));
        let table = ring.routing(1, ranges).unwrap();
        let keys = heads(&table);
        let total: u64 = sizes.iter().sum();
        let weights: u32 = servers.values().sum();
        let fair = |node| total as f64 * f64::from(servers[node]) / f64::from(weights);
        let over = |node| keys.get(node).copied().unwrap_or(0) as f64 - fair(node);
        for route in table.routes() {
            let from = &route.chain[0];
            for to in servers.keys() {
                let off = over(from) > fair(from) / 4.0 || -over(to) > fair(to) / 4.0;
                let closer = over(from) - over(to) > route.range.len() as f64 + 1e-6;
                prop_assert!(
                    !(off && closer),
                    "{:?} could go from {from} to {to}",
                    route.range
                );
            }
        }
    }

    #[test]
    fn another_array_moves_nothing(
        servers in servers(1..=8, 1..=4),
        ranges in 1u64..20,
        others in 1u64..20,
    ) {
        let ring = Placement::default().ring(&servers);
        let pieces = |array, parts| {
            KeyRange::new(0, 1_000)
                .cut(parts)
                .map(move |range| (ArrayId(array), range))
        };
        let alone = ring.routing(1, pieces(1, ranges)).unwrap();
        let both = ring
            .routing(1, pieces(0, others).chain(pieces(1, ranges)))
            .unwrap();
        prop_assert!(
            alone
                .routes()
                .iter()
                .all(|route| both.routes().contains(route))
        );
    }

    /// Balancing does not give away what consistent hashing is for. (With two ranges for each
    /// server a join moves two or three shares, which are few ranges; from 32 on it moves one.)
    #[test]
    fn a_join_moves_little_more_than_a_share_of_balanced_ranges(
        servers in servers(2..=8, 1..=1),
        joins: u64,
        each in 8u64..40,
    ) {
        prop_assume!(!servers.contains_key(&NodeId(joins)));
        let mut more = servers.clone();
        more.insert(NodeId(joins), 1);
        let placement = Placement::default();
        let ranges = each * more.len() as u64;
        let (before, after) = (
            table(&placement, &servers, 3, ranges),
            table(&placement, &more, 3, ranges),
        );
        let added = |(old, new): (&Route, &Route)| {
            new.chain
                .iter()
                .filter(|node| !old.chain.contains(node))
                .count()
        };
        let moved: usize = before.routes().iter().zip(after.routes()).map(added).sum();
        let share = ranges as f64 * 2.0 / more.len() as f64;
        prop_assert!(
            moved as f64 <= 2.5 * share,
            "{moved} copies, where a share is {share}"
        );
    }

    #[test]
    fn pieces_of_a_range_are_of_one_size(
        start in 0u64..u64::MAX / 2,
        len in 0u64..u64::MAX / 2,
        parts in 0u64..40,
    ) {
        let range = KeyRange::new(start, start + len);
        let pieces: Vec<KeyRange> = range.cut(parts).collect();
        prop_assert_eq!(pieces.len() as u64, parts.min(len));
        prop_assert_eq!(
            pieces.iter().map(|piece| piece.len()).sum::<u64>(),
            if parts == 0 { 0 } else { len }
        );
        prop_assert!(
            pieces
                .iter()
                .zip(pieces.iter().skip(1))
                .all(|(a, b)| a.end == b.start)
        );
        let (least, most) = (
            pieces.iter().map(|p| p.len()).min(),
            pieces.iter().map(|p| p.len()).max(),
        );
        prop_assert!(most.unwrap_or(0) - least.unwrap_or(0) <= 1);
    }
}

/// Written down: another version, machine or order of insertion must place the same, or every
/// range would move.
#[test]
fn placement_never_changes() {
    let servers: BTreeMap<NodeId, u32> = (1..=5).map(|node| (NodeId(node), 1)).collect();
    let ring = Placement {
        points: 64,
        replicas: 3,
    }
    .ring(&servers);
    let chains: Vec<Vec<u64>> = (0..4)
        .map(|i| {
            ring.chain(ArrayId(7), i * 100)
                .iter()
                .map(|node| node.0)
                .collect()
        })
        .collect();
    assert_eq!(chains, [[2, 5, 3], [2, 3, 5], [4, 1, 5], [3, 4, 1]]);

    let table = table(&Placement::default(), &servers, 7, 6);
    let chains: Vec<Vec<u64>> = table
        .routes()
        .iter()
        .map(|route| route.chain.iter().map(|node| node.0).collect())
        .collect();
    assert_eq!(chains, [[5, 1], [4, 5], [3, 2], [2, 3], [1, 4], [2, 1]]);
}

#[test]
fn a_table_needs_a_server_and_ranges_that_do_not_overlap() {
    let ranges = || {
        KeyRange::new(0, 100)
            .cut(4)
            .map(|range| (ArrayId(0), range))
    };
    let nobody = Placement::default().ring(&BTreeMap::from([(NodeId(1), 0)]));
    assert!(nobody.routing(1, ranges()).is_err());
    let ring = Placement::default().ring(&BTreeMap::from([(NodeId(1), 1)]));
    let table = ring.routing(1, ranges()).unwrap();
    assert!(
        table
            .routes()
            .iter()
            .all(|route| route.chain == [NodeId(1)])
            && table.routes().len() == 4
    );
    assert!(
        ring.routing(1, ranges().chain([(ArrayId(0), KeyRange::new(20, 30))]))
            .is_err()
    );
}
