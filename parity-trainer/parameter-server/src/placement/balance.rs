//! Bounded loads: what hashing puts unevenly is moved from servers with too much to servers with
//! too little (the aim of Mirrokni, Thorup and Zadimoghaddam, "Consistent Hashing with Bounded
//! Loads", SODA 2018; here all ranges are known at once).
//!
//! For each array by itself, and twice: first the heads, which clients push to, then the memory
//! that whole chains take. A server's load is the number of keys it holds, its fair share the part
//! that its weight is of all weights. Nothing moves for a server within a quarter of its fair
//! share, so that few ranges move again when a server joins; a move always brings both servers
//! closer to their shares.

use std::collections::{BTreeMap, BTreeSet};

use super::hash;
use crate::{ArrayId, KeyRange, NodeId};

/// The seed that says which of a server's ranges go first.
const MOVE: u64 = 3;

/// Of its fair share, the part by which a server may be off before something moves.
const SLACK: i128 = 4;

/// Moves servers in `chains`, each of the range beside it. Chains hold only servers with weight.
pub(super) fn balance(
    array: ArrayId,
    ranges: &[KeyRange],
    chains: &mut [Vec<NodeId>],
    weights: &BTreeMap<NodeId, u32>,
) {
    for heads_only in [true, false] {
        let total_weight = weights.values().map(|&weight| i128::from(weight)).sum();
        let smallest = ranges.iter().map(|range| range.len()).min().unwrap_or(0);
        let loads = weights.iter().filter(|&(_, &weight)| weight > 0);
        let mut balance = Balance {
            heads_only,
            array,
            ranges,
            chains,
            weights,
            total_weight,
            total: 0,
            smallest: i128::from(smallest) * total_weight,
            loads: loads.map(|(&node, _)| (node, 0)).collect(),
            movable: BTreeMap::new(),
        };
        balance.count();
        balance.level();
    }
}

struct Balance<'a> {
    /// The first of each chain counts as load; another server takes its place, or swaps with it if
    /// in the chain. Otherwise whole chains count, and those behind the heads are replaced.
    heads_only: bool,
    array: ArrayId,
    ranges: &'a [KeyRange],
    chains: &'a mut [Vec<NodeId>],
    weights: &'a BTreeMap<NodeId, u32>,
    total_weight: i128,
    total: i128,
    /// Length of the smallest range, times all weights.
    smallest: i128,
    loads: BTreeMap<NodeId, i128>,
    movable: BTreeMap<NodeId, BTreeSet<usize>>,
}

impl Balance<'_> {
    fn count(&mut self) {
        for (index, (chain, range)) in self.chains.iter().zip(self.ranges).enumerate() {
            let counted = if self.heads_only { 1 } else { chain.len() };
            for (seat, &node) in chain.iter().enumerate().take(counted) {
                *self.loads.entry(node).or_default() += i128::from(range.len());
                if self.heads_only || seat > 0 {
                    self.movable.entry(node).or_default().insert(index);
                }
            }
        }
        self.total = self.loads.values().sum();
    }

    /// Fair share, times all weights, to stay with whole numbers.
    fn share(&self, node: NodeId) -> i128 {
        self.total * i128::from(self.weights.get(&node).copied().unwrap_or(0))
    }

    /// Load over the fair share, times all weights.
    fn excess(&self, node: NodeId) -> i128 {
        self.loads.get(&node).copied().unwrap_or(0) * self.total_weight - self.share(node)
    }

    /// The server with the least load over its share first.
    fn servers(&self) -> Vec<NodeId> {
        let mut servers: Vec<NodeId> = self.loads.keys().copied().collect();
        servers.sort_by_key(|&node| (self.excess(node), node));
        servers
    }

    /// Ends, since the sum of the squares of all excesses falls with each move.
    fn level(&mut self) {
        let mut moved = true;
        while moved {
            moved = false;
            let servers = self.servers();
            for &from in servers.iter().rev() {
                while self.excess(from) > self.share(from) / SLACK && self.shift(from, true) {
                    moved = true;
                }
            }
            for &to in &servers {
                while -self.excess(to) > self.share(to) / SLACK && self.shift(to, false) {
                    moved = true;
                }
            }
        }
    }

    /// Moves a range away from this server to the one with the least that can take one; or to it,
    /// from the one with the most that can give one.
    fn shift(&mut self, node: NodeId, away: bool) -> bool {
        let mut others = self.servers();
        if !away {
            others.reverse();
        }
        for other in others {
            let (from, to) = if away { (node, other) } else { (other, node) };
            if self.excess(from) - self.excess(to) <= self.smallest {
                return false;
            }
            if let Some(index) = self.candidate(from, to) {
                self.replace(index, from, to);
                return true;
            }
        }
        false
    }

    /// Returns the range to move, if one is small enough to bring both closer to their shares: one
    /// that needs no copy, then a large one, then by hash.
    fn candidate(&self, from: NodeId, to: NodeId) -> Option<usize> {
        let gap = self.excess(from) - self.excess(to);
        let rank = |&index: &usize| {
            let (range, chain) = (self.ranges.get(index)?, self.chains.get(index)?);
            let is_copied = !chain.contains(&to);
            let fits = i128::from(range.len()) * self.total_weight < gap;
            let size = range.len().checked_ilog2().unwrap_or(0);
            let place = hash(MOVE, self.array.0.into(), range.start);
            let rank = (is_copied, u32::MAX - size, hash(MOVE, place, to.0), index);
            (fits && (self.heads_only || is_copied)).then_some(rank)
        };
        let ranges = self.movable.get(&from)?.iter();
        ranges.filter_map(rank).min().map(|(.., index)| index)
    }

    fn replace(&mut self, index: usize, from: NodeId, to: NodeId) {
        for seat in self.chains.get_mut(index).into_iter().flatten() {
            *seat = match *seat {
                node if node == from => to,
                node if node == to => from,
                other => other,
            };
        }
        let range = self.ranges.get(index);
        let size = range.map_or(0, |range| i128::from(range.len()));
        *self.loads.entry(from).or_default() -= size;
        *self.loads.entry(to).or_default() += size;
        self.movable.entry(from).or_default().remove(&index);
        self.movable.entry(to).or_default().insert(index);
    }
}
