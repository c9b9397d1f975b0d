//! From the routing table that is to the one wanted, one allowed change of each shard at a time.
//!
//! Every change raises the shard's epoch, and copying takes time in which servers come and go. The
//! registry's leader plans again after each change, so that a plan needs no memory and a new leader
//! goes on. In this order, for each shard:
//! 1. servers that are gone leave the chain, if another one lives;
//! 2. a shard that crosses the border of a wanted range is split there (shards are never joined:
//!    one that is smaller than the wanted range goes where that range goes);
//! 3. while the chain is longer than wanted, servers leave it that should not hold it;
//! 4. a server that should hold it is appended;
//! 5. heads go to the end of the chain until the one that should be first is, which takes no copy.
//!
//! So a chain never has fewer live servers than before or than wanted, whichever is less, and at
//! most one more than wanted.

use std::collections::BTreeSet;

use crate::{Key, KeyRange, NodeId, Route, Routing, RoutingError, ShardRef};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub at: ShardRef,
    pub change: ChainChange,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChainChange {
    /// Cut the shard at a key inside it; both parts keep the chain.
    Split(Key),
    /// Tell the tail to hand the shard over to a server, and append it when the tail proposes it;
    /// or tell the head to become the tail.
    Append(NodeId),
    /// Take some servers out of the chain, not all.
    Remove(Vec<NodeId>),
}

impl Step {
    /// The table after this change. An append must wait for the tail's proposal: until then the new
    /// server has nothing.
    pub fn apply(&self, routing: &Routing) -> Result<Routing, RoutingError> {
        let ShardRef { array, range, .. } = self.at;
        let mut chain = routing.exact(self.at)?.chain.clone();
        match &self.change {
            &ChainChange::Split(key) => {
                if key <= range.start || range.end <= key {
                    return Err(RoutingError::Malformed { array, range });
                }
                let parts = [(range.start, key), (key, range.end)];
                let part = |(start, end)| (KeyRange::new(start, end), chain.clone());
                return routing.replace(self.at, parts.map(part).into());
            }
            ChainChange::Append(add) if chain.first() == Some(add) => chain.rotate_left(1),
            ChainChange::Append(add) => chain.push(*add),
            ChainChange::Remove(nodes) => chain.retain(|node| !nodes.contains(node)),
        }
        routing.replace(self.at, vec![(range, chain)])
    }
}

/// The next step of a shard that has a live server towards `wanted`, whose epochs do not matter.
/// Keys that `wanted` does not name stay where they are. A step that is under way is named again,
/// until it is done.
pub fn next_step(route: &Route, wanted: &Routing, live: &BTreeSet<NodeId>) -> Option<Step> {
    let (at, chain) = (route.at(), route.chain.iter().copied());
    let step = |change| Some(Step { at, change });
    let gone: Vec<NodeId> = chain.clone().filter(|node| !live.contains(node)).collect();
    if !gone.is_empty() {
        return step(ChainChange::Remove(gone));
    }
    let targets = wanted.overlapping(at.array, at.range);
    let mut borders = targets.flat_map(|target| [target.range.start, target.range.end]);
    if let Some(key) = borders.find(|&key| at.range.start < key && key < at.range.end) {
        return step(ChainChange::Split(key));
    }
    let target = &wanted.overlapping(at.array, at.range).next()?.chain;
    // From the tail on: a head that stays keeps the pushes it has not acknowledged.
    let surplus = chain.clone().rev().filter(|node| !target.contains(node));
    let excess = route.chain.len().saturating_sub(target.len());
    let surplus: Vec<NodeId> = surplus.take(excess).collect();
    if !surplus.is_empty() {
        return step(ChainChange::Remove(surplus));
    }
    let mut target = target.iter().filter(|node| live.contains(node));
    if let Some(missing) = target.clone().find(|node| !route.chain.contains(node)) {
        return step(ChainChange::Append(*missing));
    }
    let (first, head) = (target.next()?, route.head()?);
    (*first != head).then_some(Step { at, change: ChainChange::Append(head) })
}
