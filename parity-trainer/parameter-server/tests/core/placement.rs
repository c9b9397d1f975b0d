//! Consistent hashing: the same everywhere, spread by weight, and no server moves without need.

use crate::support::*;

const ARRAYS: u32 = 4;
const RANGES: u64 = 512;

type Weights = BTreeMap<NodeId, u32>;

fn servers(
    count: impl Into<prop::collection::SizeRange>,
    weights: std::ops::RangeInclusive<u32>,
) -> impl Strategy<Value = Weights> {
    prop::collection::btree_map(any::<u64>().prop_map(NodeId), weights, count)
}

/// Servers, and as many with one more.
fn join(count: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = (Weights, Weights)> {
    (servers(count, 1..=1), any::<u64>()).prop_map(|(servers, joins)| {
        let mut more = servers.clone();
        more.insert(NodeId(joins), 1);
        (servers, more)
    })
}

fn placed(replicas: usize) -> Placement {
    Placement { replicas, ..Placement::default() }
}

fn chains(placement: Placement, servers: &Weights) -> Vec<Vec<NodeId>> {
    let ring = placement.ring(servers);
    let arrays = (0..ARRAYS).map(ArrayId);
    let chain = |array| (0..RANGES).map(move |i| (array, i * 1_000));
    arrays.flat_map(chain).map(|(array, first)| ring.chain(array, first)).collect()
}

/// An array of a thousand keys a range.
fn placed_table(placement: Placement, servers: &Weights, array: u32, ranges: u64) -> Routing {
    let pieces = KeyRange::new(0, 1_000 * ranges).cut(ranges);
    let pieces = pieces.map(|range| (ArrayId(array), range));
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

fn load<T: Copy + Default>(loads: &BTreeMap<NodeId, T>, node: &NodeId) -> T {
    loads.get(node).copied().unwrap_or_default()
}

/// Number of servers in the second chains that are not in the first.
fn added<'a>(pairs: impl Iterator<Item = (&'a Vec<NodeId>, &'a Vec<NodeId>)>) -> f64 {
    let added = |(old, new): (&Vec<NodeId>, &Vec<NodeId>)| {
        new.iter().filter(|node| !old.contains(node)).count()
    };
    pairs.map(added).sum::<usize>() as f64
}

proptest! {
    #[test]
    fn chains_are_of_different_servers_and_as_long_as_can_be(
        servers in servers(0..9, 0..=3),
        replicas in 0usize..5,
    ) {
        let can_hold = servers.values().filter(|&&weight| weight > 0).count();
        for chain in chains(Placement { points: 16, replicas }, &servers) {
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
    fn change_of_one_server_moves_no_other(
        servers in servers(1..9, 0..=3),
        which: prop::sample::Index,
        weight in 0u32..4,
        replicas in 1usize..4,
    ) {
        let placement = Placement { points: 16, replicas };
        let node = *which.get(&servers.keys().copied().collect::<Vec<_>>());
        let mut changed = servers.clone();
        changed.insert(node, weight);
        let grows = weight >= servers[&node];
        let (before, after) = (chains(placement, &servers), chains(placement, &changed));
        for (old, new) in before.iter().zip(&after) {
            let [fewer, more] = [old, new].map(|chain| {
                let others = chain.iter().filter(|&&other| other != node);
                others.copied().collect::<Vec<NodeId>>()
            });
            let one_goes_on = fewer.starts_with(&more) || more.starts_with(&fewer);
            prop_assert!(one_goes_on, "{old:?} became {new:?}");
            let (had, has) = (old.contains(&node), new.contains(&node));
            prop_assert!(!grows || !had || has, "taken from a server that grew");
            prop_assert!(grows || !has || had, "given to a server that shrank");
        }
    }

    /// A joining server takes about its share, no more.
    #[test]
    fn join_moves_about_one_share((servers, more) in join(4..=12)) {
        prop_assume!(more.len() > servers.len());
        let [before, after] = [&servers, &more].map(|servers| chains(placed(2), servers));
        let moved = added(before.iter().zip(&after));
        let share = f64::from(ARRAYS) * RANGES as f64 * 2.0 / more.len() as f64;
        prop_assert!((0.4 * share..=1.7 * share).contains(&moved), "{moved} of {share}");
    }

    /// Places and ranges both scatter by about a tenth here: these bounds are five times that.
    #[test]
    fn load_follows_weight(servers in servers(2..=8, 1..=2)) {
        let mut held: BTreeMap<NodeId, usize> = BTreeMap::new();
        for chain in chains(placed(1), &servers) {
            *held.entry(chain[0]).or_default() += 1;
        }
        let total: u32 = servers.values().sum();
        for (node, &weight) in &servers {
            let fair = f64::from(ARRAYS) * RANGES as f64 * f64::from(weight) / f64::from(total);
            let found = load(&held, node) as f64;
            prop_assert!((0.4 * fair..=1.7 * fair).contains(&found), "{node}: {found} of {fair}");
        }
    }

    /// As few shards as a small model has: hashing alone gave all four of them to two servers of
    /// three.
    #[test]
    fn no_server_is_empty_where_there_are_as_many_ranges(
        servers in servers(1..=8, 1..=1),
        array: u32,
        more in 0u64..9,
        replicas in 1usize..4,
    ) {
        let ranges = servers.len() as u64 + more;
        let table = placed_table(placed(replicas), &servers, array, ranges);
        let heads = heads(&table);
        let fair = ranges as f64 / servers.len() as f64;
        let bounds = 1.0..=(1.25 * fair).max(fair.ceil());
        for node in servers.keys() {
            let heads = load(&heads, node) as f64 / 1_000.0;
            prop_assert!(bounds.contains(&heads), "{node}: {heads} heads of {fair}");
        }
        for route in table.routes() {
            let different: BTreeSet<NodeId> = route.chain.iter().copied().collect();
            prop_assert_eq!(different.len(), route.chain.len());
            prop_assert_eq!(different.len(), replicas.min(servers.len()));
        }
    }

    /// However weights and sizes are spread: nothing is left that one move would make better.
    #[test]
    fn load_is_within_a_quarter_of_its_share_or_no_move_helps(
        servers in servers(1..=8, 1..=4),
        sizes in prop::collection::vec(1u64..1_000, 1..40),
        replicas in 1usize..4,
    ) {
        let ring = placed(replicas).ring(&servers);
        let mut end = 0;
        let ranges = sizes.iter().map(|size| {
            end += size;
            (ArrayId(9), KeyRange::new(end - size, end))
        });
        let table = ring.routing(1, ranges).unwrap();
        let keys = heads(&table);
        let total = sizes.iter().sum::<u64>() as f64;
        let weights: u32 = servers.values().sum();
        let fair = |node| total * f64::from(servers[node]) / f64::from(weights);
        let over = |node| load(&keys, node) as f64 - fair(node);
        for route in table.routes() {
            let from = &route.chain[0];
            for to in servers.keys() {
                let is_off = |over: f64, fair: f64| over > fair / 4.0 + 1e-6;
                let off = is_off(over(from), fair(from)) || is_off(-over(to), fair(to));
                let closer = over(from) - over(to) > route.range.len() as f64 + 1e-6;
                prop_assert!(!(off && closer), "{:?} may go from {from} to {to}", route.range);
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
            let pieces = KeyRange::new(0, 1_000).cut(parts);
            pieces.map(move |range| (ArrayId(array), range))
        };
        let alone = ring.routing(1, pieces(1, ranges)).unwrap();
        let both = ring.routing(1, pieces(0, others).chain(pieces(1, ranges))).unwrap();
        prop_assert!(alone.routes().iter().all(|route| both.routes().contains(route)));
    }

    /// Balancing does not give away what consistent hashing is for. (With two ranges for each
    /// server a join moves two or three shares, which are few ranges; from 32 on it moves one.)
    #[test]
    fn join_moves_little_more_than_a_share_of_balanced_ranges(
        (servers, more) in join(2..=8),
        each in 8u64..40,
    ) {
        prop_assume!(more.len() > servers.len());
        let ranges = each * more.len() as u64;
        let [before, after] = [&servers, &more].map(|servers| {
            placed_table(Placement::default(), servers, 3, ranges)
        });
        let pairs = before.routes().iter().zip(after.routes());
        let moved = added(pairs.map(|(old, new)| (&old.chain, &new.chain)));
        let share = ranges as f64 * 2.0 / more.len() as f64;
        prop_assert!(moved <= 2.5 * share, "{moved} copies, where a share is {share}");
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
        prop_assert!(pieces.windows(2).all(|pair| pair[0].end == pair[1].start));
        let lens: Vec<u64> = pieces.iter().map(|piece| piece.len()).collect();
        prop_assert_eq!(lens.iter().sum::<u64>(), if parts == 0 { 0 } else { len });
        let (least, most) = (lens.iter().min(), lens.iter().max());
        prop_assert!(most.unwrap_or(&0) - least.unwrap_or(&0) <= 1);
    }
}

/// Written down: another version, machine or order of insertion must place the same, or every
/// range would move.
#[test]
fn placement_never_changes() {
    let servers: Weights = (1..=5).map(|node| (NodeId(node), 1)).collect();
    let numbers = |chain: &[NodeId]| chain.iter().map(|node| node.0).collect::<Vec<u64>>();
    let (points, replicas) = (64, 3);
    let ring = Placement { points, replicas }.ring(&servers);
    let chains = [0, 100, 200, 300].map(|first| numbers(&ring.chain(ArrayId(7), first)));
    assert_eq!(chains, [[2, 5, 3], [2, 3, 5], [4, 1, 5], [3, 4, 1]]);

    let table = placed_table(Placement::default(), &servers, 7, 6);
    let chains: Vec<_> = table.routes().iter().map(|route| numbers(&route.chain)).collect();
    assert_eq!(chains, [[5, 1], [4, 5], [3, 2], [2, 3], [1, 4], [2, 1]]);
}

#[test]
fn table_needs_a_server_and_ranges_that_do_not_overlap() {
    let ranges = || KeyRange::new(0, 100).cut(4).map(|range| (ARRAY, range));
    let ring = |weight| Placement::default().ring(&BTreeMap::from([(NodeId(1), weight)]));
    assert!(ring(0).routing(1, ranges()).is_err());
    let table = ring(1).routing(1, ranges()).unwrap();
    assert_eq!(table.routes().len(), 4);
    assert!(table.routes().iter().all(|route| route.chain == [NodeId(1)]));
    let overlapping = ranges().chain([(ARRAY, KeyRange::new(20, 30))]);
    assert!(ring(1).routing(1, overlapping).is_err());
}
