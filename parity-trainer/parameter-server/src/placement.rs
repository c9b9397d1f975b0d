//! Placement of ranges on servers: consistent hashing (Karger et al., STOC 1997) with virtual
//! nodes, and chains of the servers that follow, as in Chord (Li et al., OSDI 2014, section 4.3).
//!
//! A server has `points x weight` places on a ring of 64-bit numbers, a range one; the chain of a
//! range is made of the first servers at and after its place. A server that joins, leaves or
//! changes its weight moves no other on the ring. That spreads load evenly only if there are many
//! ranges for each server, so [`Ring::routing`] then moves a few: no server is without a range that
//! it heads if an array has as many, all of one size, as there are servers, all of one weight. Cut
//! arrays accordingly ([`KeyRange::cut`]). All is a pure function of its arguments, the same on
//! every machine: the hash is XXH3.

mod balance;
mod plan;

use std::collections::{BTreeMap, BTreeSet};

use twox_hash::XxHash3_64;

pub use plan::{ChainChange, Step, next_step};

use crate::{ArrayId, Epoch, Key, KeyRange, NodeId, Route, Routing, RoutingError, ShardRef};

/// Places of one server on the ring, at most.
const MAX_POINTS: u32 = 1 << 16;

/// Seeds: places of servers and of ranges must not coincide.
const SERVER: u64 = 1;
const RANGE: u64 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// Places on the ring for each unit of a server's weight; at most 65,536 count. A server's
    /// share varies by about one part in the root of their number.
    pub points: u32,
    /// Servers in a chain, at least 1; fewer where there are not as many servers.
    pub replicas: usize,
}

impl Default for Placement {
    fn default() -> Self {
        Self { points: 128, replicas: 2 }
    }
}

impl Placement {
    /// The ring of these servers, each with its weight: its part of the load, relative to the
    /// others'. A server of weight 0 gets nothing.
    pub fn ring(&self, servers: &BTreeMap<NodeId, u32>) -> Ring {
        let places = |(&node, &weight): (&NodeId, &u32)| {
            let count = self.points.max(1).saturating_mul(weight).min(MAX_POINTS);
            (0..count).map(move |place| (hash(SERVER, node.0, place.into()), node))
        };
        let mut points: Vec<(u64, NodeId)> = servers.iter().flat_map(places).collect();
        points.sort_unstable();
        let different: BTreeSet<NodeId> = points.iter().map(|&(_, node)| node).collect();
        Ring {
            points,
            replicas: self.replicas.max(1).min(different.len()),
            servers: servers.clone(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ring {
    points: Vec<(u64, NodeId)>,
    /// At most as many as there are servers.
    replicas: usize,
    /// Each with its weight.
    servers: BTreeMap<NodeId, u32>,
}

impl Ring {
    /// The chain that hashing alone gives the range of `array` that begins at `first`: different
    /// servers, head first. Empty if there is no server.
    pub fn chain(&self, array: ArrayId, first: Key) -> Vec<NodeId> {
        let place = hash(RANGE, array.0.into(), first);
        let first = self.points.partition_point(|&(point, _)| point < place);
        let (before, after) = self.points.split_at(first);
        let mut chain = Vec::with_capacity(self.replicas);
        for &(_, node) in after.iter().chain(before) {
            if chain.len() == self.replicas {
                break;
            }
            if !chain.contains(&node) {
                chain.push(node);
            }
        }
        chain
    }

    /// The table that gives each range its chain, all under the first epoch. In each array, no
    /// server for which a move could help is off its part of the heads' keys by more than a quarter
    /// of it. Arrays are independent. Ranges of one array must not overlap; there must be a server.
    pub fn routing(
        &self,
        version: u64,
        ranges: impl IntoIterator<Item = (ArrayId, KeyRange)>,
    ) -> Result<Routing, RoutingError> {
        let mut arrays: BTreeMap<ArrayId, Vec<KeyRange>> = BTreeMap::new();
        for (array, range) in ranges {
            arrays.entry(array).or_default().push(range);
        }
        let mut routes = Vec::new();
        for (array, ranges) in arrays {
            let chain = |range: &KeyRange| self.chain(array, range.start);
            let mut chains: Vec<Vec<NodeId>> = ranges.iter().map(chain).collect();
            balance::balance(array, &ranges, &mut chains, &self.servers);
            for (range, chain) in ranges.into_iter().zip(chains) {
                routes.push(Route::new(ShardRef::new(array, range, Epoch(1)), chain));
            }
        }
        Routing::new(version, routes)
    }
}

/// Bytes in a fixed order, so that all machines agree.
fn hash(seed: u64, high: u64, low: u64) -> u64 {
    let both = (u128::from(high) << 64) | u128::from(low);
    XxHash3_64::oneshot_with_seed(seed, &both.to_le_bytes())
}
