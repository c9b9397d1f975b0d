//! Consistent hashing: the same everywhere, spread by weight, and nobody moves who need not.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};

use parapet_parameter_server::{ArrayId, Key, KeyRange, NodeId, Placement, Ring};
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
    ranges().map(|(array, first)| ring.chain(array, first)).collect()
}

fn without(chain: &[NodeId], node: NodeId) -> Vec<NodeId> {
    chain.iter().copied().filter(|&other| other != node).collect()
}

proptest! {
    #[test]
    fn chains_are_of_different_servers_and_as_long_as_can_be(servers in servers(0..9, 0..=3), replicas in 0usize..5) {
        let placement = Placement { points: 16, replicas };
        let can_hold = servers.values().filter(|&&weight| weight > 0).count();
        for chain in chains(&placement.ring(&servers)) {
            let different: BTreeSet<NodeId> = chain.iter().copied().collect();
            prop_assert_eq!(different.len(), chain.len());
            prop_assert_eq!(chain.len(), replicas.max(1).min(can_hold));
            prop_assert!(chain.iter().all(|node| servers[node] > 0));
        }
    }

    /// One server's change of weight (from or to 0: it joins or leaves) changes no chain but where that server comes in
    /// or goes: without it, the longer chain begins with the shorter, and as many servers as it takes up are displaced.
    #[test]
    fn a_change_of_one_server_moves_nobody_else(servers in servers(1..9, 0..=3), which: prop::sample::Index, weight in 0u32..4, replicas in 1usize..4) {
        let placement = Placement { points: 16, replicas };
        let node = *which.get(&servers.keys().copied().collect::<Vec<_>>());
        let mut changed = servers.clone();
        changed.insert(node, weight);
        let grows = weight >= servers[&node];
        let (before, after) = (chains(&placement.ring(&servers)), chains(&placement.ring(&changed)));
        for (old, new) in before.iter().zip(&after) {
            let (fewer, more) = (without(old, node), without(new, node));
            prop_assert!(fewer.starts_with(&more) || more.starts_with(&fewer), "{old:?} became {new:?}");
            prop_assert!(!grows || !old.contains(&node) || new.contains(&node), "taken from a server that grew");
            prop_assert!(grows || !new.contains(&node) || old.contains(&node), "given to a server that shrank");
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
        prop_assert!(moved as f64 <= 1.7 * share, "{moved} copies, where a share is {share}");
        prop_assert!(moved as f64 >= 0.4 * share, "{moved} copies, where a share is {share}");
    }

    /// Places and ranges both scatter by about a tenth here: these bounds are five times that.
    #[test]
    fn load_follows_weight(servers in servers(2..=8, 1..=2)) {
        let placement = Placement { replicas: 1, ..Placement::default() };
        let mut held: BTreeMap<NodeId, usize> = BTreeMap::new();
        for chain in chains(&placement.ring(&servers)) {
            *held.entry(chain[0]).or_default() += 1;
        }
        let total: u32 = servers.values().sum();
        for (node, &weight) in &servers {
            let fair = f64::from(ARRAYS) * RANGES as f64 * f64::from(weight) / f64::from(total);
            let found = held.get(node).copied().unwrap_or(0) as f64;
            prop_assert!((0.4 * fair..=1.7 * fair).contains(&found), "{node}: {found} ranges of {fair}");
        }
    }

    #[test]
    fn pieces_of_a_range_are_of_one_size(start in 0u64..u64::MAX / 2, len in 0u64..u64::MAX / 2, parts in 0u64..40) {
        let range = KeyRange::new(start, start + len);
        let pieces: Vec<KeyRange> = range.cut(parts).collect();
        prop_assert_eq!(pieces.len() as u64, parts.min(len));
        prop_assert_eq!(pieces.iter().map(|piece| piece.len()).sum::<u64>(), if parts == 0 { 0 } else { len });
        prop_assert!(pieces.iter().zip(pieces.iter().skip(1)).all(|(a, b)| a.end == b.start));
        let (least, most) = (pieces.iter().map(|p| p.len()).min(), pieces.iter().map(|p| p.len()).max());
        prop_assert!(most.unwrap_or(0) - least.unwrap_or(0) <= 1);
    }
}

/// Written down: another version, machine or order of insertion must place the same, or every range would move.
#[test]
fn placement_never_changes() {
    let servers: BTreeMap<NodeId, u32> = (1..=5).map(|node| (NodeId(node), 1)).collect();
    let ring = Placement { points: 64, replicas: 3 }.ring(&servers);
    let chains: Vec<Vec<u64>> =
        (0..4).map(|i| ring.chain(ArrayId(7), i * 100).iter().map(|node| node.0).collect()).collect();
    assert_eq!(chains, [[2, 5, 3], [2, 3, 5], [4, 1, 5], [3, 4, 1]]);
}

#[test]
fn a_table_needs_a_server_and_ranges_that_do_not_overlap() {
    let ranges = || KeyRange::new(0, 100).cut(4).map(|range| (ArrayId(0), range));
    let nobody = Placement::default().ring(&BTreeMap::from([(NodeId(1), 0)]));
    assert!(nobody.routing(1, ranges()).is_err());
    let ring = Placement::default().ring(&BTreeMap::from([(NodeId(1), 1)]));
    let table = ring.routing(1, ranges()).unwrap();
    assert!(table.routes().iter().all(|route| route.chain == [NodeId(1)]) && table.routes().len() == 4);
    assert!(ring.routing(1, ranges().chain([(ArrayId(0), KeyRange::new(20, 30))])).is_err());
}
