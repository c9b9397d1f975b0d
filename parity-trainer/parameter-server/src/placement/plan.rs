//! From the routing table that is to the one that should be, one allowed change of each shard at a
//! time.
//!
//! A plan names, for each shard, the next change alone: every change raises the shard's epoch, and
//! copying takes time in which servers come and go. The registry's leader plans again after each
//! change, so that a plan needs no memory and a new leader simply goes on.
//!
//! In this order, for each shard:
//! 1. servers that are gone leave the chain, if another one lives;
//! 2. a shard that crosses the border of a wanted range is split there (shards are never joined:
//!    one that is smaller than the wanted range goes where that range goes);
//! 3. while the chain is longer than wanted, servers leave it that should not hold it;
//! 4. a server that should hold it is appended.
//!
//! So a chain never has fewer live servers than before or than wanted, whichever is less, and at
//! most one more than wanted. The order within a chain is left as it comes: putting a server first
//! would cost another copy.

use std::collections::BTreeSet;

use crate::{Key, KeyRange, NodeId, Route, Routing, RoutingError, ShardRef};

/// One change of one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Cut the shard at a key inside it; both parts keep the chain.
    Split {
        /// Shard to change.
        at: ShardRef,
        /// The first key of the upper part.
        key: Key,
    },
    /// Tell the tail to hand the shard over to `add`, and append `add` when the tail proposes it.
    Append {
        /// Shard to change.
        at: ShardRef,
        /// Not in the chain.
        add: NodeId,
    },
    /// Take servers out of the chain.
    Remove {
        /// Shard to change.
        at: ShardRef,
        /// Some of the chain, not all.
        nodes: Vec<NodeId>,
    },
}

impl Step {
    /// Returns the shard.
    pub const fn at(&self) -> ShardRef {
        match self {
            Self::Split { at, .. } | Self::Append { at, .. } | Self::Remove { at, .. } => *at,
        }
    }

    /// The table after this change. An append must wait for the tail's proposal: until then the new
    /// server has nothing.
    ///
    /// Fails if the shard has changed since the plan was made.
    pub fn apply(&self, routing: &Routing) -> Result<Routing, RoutingError> {
        let at @ ShardRef {
            array,
            range,
            epoch,
        } = self.at();
        let route = routing
            .route(array, range.start)
            .filter(|route| shard(route) == at);
        let route = route.ok_or(RoutingError::Stale {
            array,
            range,
            epoch,
        })?;
        let parts = match self {
            Self::Split { key, .. } => {
                if *key <= range.start || range.end <= *key {
                    return Err(RoutingError::Malformed { array, range });
                }
                let (lower, upper) = (
                    KeyRange::new(range.start, *key),
                    KeyRange::new(*key, range.end),
                );
                vec![(lower, route.chain.clone()), (upper, route.chain.clone())]
            }
            Self::Append { add, .. } => {
                vec![(range, route.chain.iter().copied().chain([*add]).collect())]
            }
            Self::Remove { nodes, .. } => {
                vec![(
                    range,
                    route
                        .chain
                        .iter()
                        .copied()
                        .filter(|node| !nodes.contains(node))
                        .collect(),
                )]
            }
        };
        routing.replace(array, range, epoch, parts)
    }
}

/// Steps that a planner proposes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// By array and key, one for each shard at most.
    pub steps: Vec<Step>,
    /// Shards whose servers are all gone.
    pub lost: Vec<ShardRef>,
}

/// Planner of changes to the routing table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planner {
    /// Shards that are copied at the same time, at most: copying takes a part of the servers' time
    /// and of the network.
    pub max_copies: usize,
}

impl Default for Planner {
    fn default() -> Self {
        Self { max_copies: 4 }
    }
}

impl Planner {
    /// The next steps from `present` to `wanted`, whose epochs do not matter. Keys that `wanted`
    /// does not name stay where they are; none are added. A step that is under way is named again,
    /// until it is done.
    pub fn plan(&self, present: &Routing, wanted: &Routing, live: &BTreeSet<NodeId>) -> Plan {
        let mut plan = Plan::default();
        let mut copies = 0;
        for route in present.routes() {
            if !route.chain.iter().any(|node| live.contains(node)) {
                plan.lost.push(shard(route));
                continue;
            }
            let Some(step) = next(route, wanted, live) else {
                continue;
            };
            if matches!(step, Step::Append { .. }) {
                copies += 1;
                if copies > self.max_copies {
                    continue;
                }
            }
            plan.steps.push(step);
        }
        plan
    }
}

const fn shard(route: &Route) -> ShardRef {
    ShardRef {
        array: route.array,
        range: route.range,
        epoch: route.epoch,
    }
}

/// The next step for a shard that is not lost.
fn next(route: &Route, wanted: &Routing, live: &BTreeSet<NodeId>) -> Option<Step> {
    let at = shard(route);
    let gone: Vec<NodeId> = route
        .chain
        .iter()
        .copied()
        .filter(|node| !live.contains(node))
        .collect();
    if !gone.is_empty() {
        return Some(Step::Remove { at, nodes: gone });
    }
    let mut borders = wanted
        .overlapping(at.array, at.range)
        .flat_map(|target| [target.range.start, target.range.end]);
    if let Some(key) = borders.find(|&key| at.range.start < key && key < at.range.end) {
        return Some(Step::Split { at, key });
    }
    let target = wanted.overlapping(at.array, at.range).next()?;
    let excess = route.chain.len().saturating_sub(target.chain.len());
    // From the tail on: a head that stays keeps the pushes it has not acknowledged.
    let surplus: Vec<NodeId> = route
        .chain
        .iter()
        .rev()
        .copied()
        .filter(|node| !target.chain.contains(node))
        .take(excess)
        .collect();
    if !surplus.is_empty() {
        return Some(Step::Remove { at, nodes: surplus });
    }
    let missing = target
        .chain
        .iter()
        .copied()
        .find(|node| live.contains(node) && !route.chain.contains(node));
    missing.map(|add| Step::Append { at, add })
}
