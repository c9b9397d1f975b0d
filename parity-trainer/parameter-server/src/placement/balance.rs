//! Bounded loads: what hashing puts unevenly is moved from servers with too much to servers with
//! too little (the aim of Mirrokni, Thorup and Zadimoghaddam, "Consistent Hashing with Bounded
//! Loads", SODA 2018; theirs sends an arriving ball on along the ring, here all ranges are known at
//! once).
//!
//! For each array by itself, so that another one moves nothing, and twice: first the heads, which
//! clients push to, then the memory that whole chains take. A server's load is the number of keys
//! it holds, its fair share the part that its weight is of all weights. Nothing moves for a server
//! within a quarter of its fair share, so that many ranges stay where the ring has put them, and
//! few of those that move move again when a server joins; a move always brings both servers closer
//! to their shares.

use std::collections::{BTreeMap, BTreeSet};

use super::hash;
use crate::{ArrayId, KeyRange, NodeId};

/// The seed that says which of a server's ranges go first.
const MOVE: u64 = 3;

/// Of its fair share, the part by which a server may be off before something moves.
const SLACK: i128 = 4;

/// Moves servers within `chains`, each that of the range beside it. Only servers with a weight
/// are in chains.
pub(super) fn balance(
    array: ArrayId,
    ranges: &[KeyRange],
    chains: &mut [Vec<NodeId>],
    weights: &BTreeMap<NodeId, u32>,
) {
    for seats in [Seats::Heads, Seats::All] {
        Balance::new(seats, array, ranges, chains, weights).level();
    }
}

/// Places that count as load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seats {
    /// The first of each chain; another server takes its place, or changes places with it if it is
    /// in the chain.
    Heads,
    /// Whole chains; those behind the heads are replaced.
    All,
}

struct Balance<'a> {
    seats: Seats,
    array: ArrayId,
    ranges: &'a [KeyRange],
    chains: &'a mut [Vec<NodeId>],
    weights: &'a BTreeMap<NodeId, u32>,
    total_weight: i128,
    total: i128,
    /// Length of the smallest range, times all weights.
    smallest: i128,
    loads: BTreeMap<NodeId, i128>,
    /// By how much each server's load is over its fair share, the least first.
    order: BTreeSet<(i128, NodeId)>,
    /// The ranges that a server can give away.
    movable: BTreeMap<NodeId, BTreeSet<usize>>,
}

impl<'a> Balance<'a> {
    fn new(
        seats: Seats,
        array: ArrayId,
        ranges: &'a [KeyRange],
        chains: &'a mut [Vec<NodeId>],
        weights: &'a BTreeMap<NodeId, u32>,
    ) -> Self {
        let mut loads: BTreeMap<NodeId, i128> = weights
            .iter()
            .filter(|&(_, &weight)| weight > 0)
            .map(|(&node, _)| (node, 0))
            .collect();
        let mut movable: BTreeMap<NodeId, BTreeSet<usize>> = BTreeMap::new();
        for (index, (chain, range)) in chains.iter().zip(ranges).enumerate() {
            let counted = if seats == Seats::Heads {
                1
            } else {
                chain.len()
            };
            for (seat, &node) in chain.iter().enumerate().take(counted) {
                *loads.entry(node).or_default() += i128::from(range.len());
                if seats == Seats::Heads || seat > 0 {
                    movable.entry(node).or_default().insert(index);
                }
            }
        }
        let total_weight = weights.values().map(|&weight| i128::from(weight)).sum();
        let smallest = ranges
            .iter()
            .map(|range| i128::from(range.len()) * total_weight)
            .min()
            .unwrap_or(0);
        let (total, order) = (loads.values().sum(), BTreeSet::new());
        let mut balance = Self {
            seats,
            array,
            ranges,
            chains,
            weights,
            total_weight,
            total,
            smallest,
            loads,
            order,
            movable,
        };
        balance.order = balance
            .loads
            .keys()
            .map(|&node| (balance.excess(node), node))
            .collect();
        balance
    }

    /// Fair share, times all weights, to stay with whole numbers.
    fn share(&self, node: NodeId) -> i128 {
        self.total * i128::from(self.weights.get(&node).copied().unwrap_or(0))
    }

    fn excess(&self, node: NodeId) -> i128 {
        self.loads.get(&node).copied().unwrap_or(0) * self.total_weight - self.share(node)
    }

    /// Ends, since the sum of the squares of all excesses falls with each move.
    fn level(&mut self) {
        let mut moved = true;
        while moved {
            moved = false;
            let servers: Vec<NodeId> = self.order.iter().map(|&(_, node)| node).collect();
            for &from in servers.iter().rev() {
                while self.excess(from) > self.share(from) / SLACK && self.relieve(from) {
                    moved = true;
                }
            }
            for &to in &servers {
                while -self.excess(to) > self.share(to) / SLACK && self.fill(to) {
                    moved = true;
                }
            }
        }
    }

    /// Moves a range from this server to the one with the least that can take one.
    fn relieve(&mut self, from: NodeId) -> bool {
        let excess = self.excess(from);
        let receivers = self
            .order
            .iter()
            .take_while(|&&(other, _)| excess - other > self.smallest);
        let found = receivers
            .map(|&(_, to)| to)
            .find_map(|to| Some((self.candidate(from, to)?, to)));
        found.is_some_and(|(index, to)| self.replace(index, from, to))
    }

    /// Moves a range to this server from the one with the most that can give one.
    fn fill(&mut self, to: NodeId) -> bool {
        let excess = self.excess(to);
        let givers = self
            .order
            .iter()
            .rev()
            .take_while(|&&(other, _)| other - excess > self.smallest);
        let found = givers
            .map(|&(_, from)| from)
            .find_map(|from| Some((self.candidate(from, to)?, from)));
        found.is_some_and(|(index, from)| self.replace(index, from, to))
    }

    /// Returns the range to move, if one is small enough to bring both closer to their shares: one
    /// that needs no copy, then a large one, then by hash.
    fn candidate(&self, from: NodeId, to: NodeId) -> Option<usize> {
        let gap = self.excess(from) - self.excess(to);
        let holds = |index: usize| {
            self.chains
                .get(index)
                .is_some_and(|chain| chain.contains(&to))
        };
        let rank = |&index: &usize| {
            let range = self.ranges.get(index)?;
            let fits = i128::from(range.len()) * self.total_weight < gap;
            let free = fits && (self.seats == Seats::Heads || !holds(index));
            let place = hash(MOVE, self.array.0.into(), range.start);
            let size = range.len().checked_ilog2().unwrap_or(0);
            free.then(|| {
                (
                    (!holds(index), u32::MAX - size, hash(MOVE, place, to.0)),
                    index,
                )
            })
        };
        self.movable
            .get(&from)?
            .iter()
            .filter_map(rank)
            .min()
            .map(|(_, index)| index)
    }

    /// Puts `to` in the place of `from`.
    fn replace(&mut self, index: usize, from: NodeId, to: NodeId) -> bool {
        let (Some(chain), Some(range)) = (self.chains.get_mut(index), self.ranges.get(index))
        else {
            return false;
        };
        for seat in chain.iter_mut() {
            *seat = match *seat {
                node if node == from => to,
                node if node == to => from,
                other => other,
            };
        }
        let size = i128::from(range.len());
        for (node, change) in [(from, -size), (to, size)] {
            self.order.remove(&(self.excess(node), node));
            *self.loads.entry(node).or_default() += change;
            self.order.insert((self.excess(node), node));
        }
        self.movable.entry(from).or_default().remove(&index);
        self.movable.entry(to).or_default().insert(index)
    }
}
