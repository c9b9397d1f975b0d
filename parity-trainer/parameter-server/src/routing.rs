//! Routing table: the servers that hold each range.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{ArrayId, Epoch, Key, KeyRange, NodeId, ShardRef};

/// A shard: a range of an array, and the chain of servers that holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    pub array: ArrayId,
    pub range: KeyRange,
    /// Raised by every change of the chain or the range.
    pub epoch: Epoch,
    /// Head (takes pushes) first, tail (takes pulls) last; never empty in a checked table.
    pub chain: Vec<NodeId>,
}

impl Route {
    pub const fn new(at: ShardRef, chain: Vec<NodeId>) -> Self {
        Self { array: at.array, range: at.range, epoch: at.epoch, chain }
    }

    pub const fn at(&self) -> ShardRef {
        ShardRef::new(self.array, self.range, self.epoch)
    }

    /// The server that takes pushes.
    pub fn head(&self) -> Option<NodeId> {
        self.chain.first().copied()
    }

    /// The server that takes pulls.
    pub fn tail(&self) -> Option<NodeId> {
        self.chain.last().copied()
    }
}

/// The routing table: all shards, by array and first key.
///
/// One registry changes it, by compare-and-swap on `version`. A change splits a range, takes
/// servers out of a chain (order kept), or appends one to which the tail has handed the range over.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct Routing {
    version: u64,
    routes: Vec<Route>,
}

#[derive(Deserialize)]
struct Unchecked {
    version: u64,
    routes: Vec<Route>,
}

impl TryFrom<Unchecked> for Routing {
    type Error = RoutingError;

    fn try_from(Unchecked { version, routes }: Unchecked) -> Result<Self, RoutingError> {
        Self::new(version, routes)
    }
}

impl Routing {
    /// Table of these routes. An array's ranges must not overlap, chains must name servers once.
    pub fn new(version: u64, mut routes: Vec<Route>) -> Result<Self, RoutingError> {
        routes.sort_by_key(|route| (route.array, route.range));
        for route in &routes {
            let different: BTreeSet<NodeId> = route.chain.iter().copied().collect();
            let is_chain = !different.is_empty() && different.len() == route.chain.len();
            let (array, range) = (route.array, route.range);
            if range.is_empty() || !is_chain {
                return Err(RoutingError::Malformed { array, range });
            }
        }
        for (a, b) in routes.iter().zip(routes.iter().skip(1)) {
            let (array, first, second) = (a.array, a.range, b.range);
            if array == b.array && first.end > second.start {
                return Err(RoutingError::Overlap { array, first, second });
            }
        }
        Ok(Self { version, routes })
    }

    /// Raised by every change.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// All routes, by array and first key.
    pub fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// The routes that hold keys of `range`, in order.
    pub fn overlapping(&self, array: ArrayId, range: KeyRange) -> impl Iterator<Item = &Route> {
        let is_before = |route: &Route| (route.array, route.range.end) <= (array, range.start);
        let first = self.routes.partition_point(is_before);
        let from = self.routes.get(first..).unwrap_or_default().iter();
        from.take_while(move |route| route.array == array && route.range.start < range.end)
    }

    /// The route of `key`.
    pub fn route(&self, array: ArrayId, key: Key) -> Option<&Route> {
        let range = KeyRange::new(key, key.saturating_add(1));
        self.overlapping(array, range).next()
    }

    /// The route of exactly this shard, at its epoch.
    pub fn exact(&self, at: ShardRef) -> Result<&Route, RoutingError> {
        let route = self.route(at.array, at.range.start);
        let exact = route.filter(|route| route.at() == at);
        exact.ok_or(RoutingError::Stale(at))
    }

    /// The next version, with the shard replaced by `parts`, all under the next epoch.
    ///
    /// The registry's compare-and-swap: fails if the shard has changed since its epoch.
    pub fn replace(
        &self,
        at: ShardRef,
        parts: Vec<(KeyRange, Vec<NodeId>)>,
    ) -> Result<Self, RoutingError> {
        self.exact(at)?;
        let mut routes = self.routes.clone();
        routes.retain(|route| route.at() != at);
        let epoch = at.epoch.next();
        let part = |(range, chain)| Route::new(ShardRef { range, epoch, ..at }, chain);
        routes.extend(parts.into_iter().map(part));
        self.with_routes(routes)
    }

    pub(crate) fn with_routes(&self, routes: Vec<Route>) -> Result<Self, RoutingError> {
        Self::new(self.version.saturating_add(1), routes)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RoutingError {
    #[error(
        "{array}, keys {range}: a route needs keys and a chain of one or more different servers"
    )]
    Malformed { array: ArrayId, range: KeyRange },
    #[error("{array}: the routes for keys {first} and {second} overlap: cut one of them")]
    Overlap { array: ArrayId, first: KeyRange, second: KeyRange },
    #[error(
        "{}, keys {}: no shard at {}: read the table again and decide anew", .0.array, .0.range,
        .0.epoch
    )]
    Stale(ShardRef),
}
