//! Routing table: the servers that hold each range.

use serde::{Deserialize, Serialize};

use crate::{ArrayId, Epoch, Key, KeyRange, NodeId};

/// A shard: a range of an array, and the chain of servers that holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Array of the route.
    pub array: ArrayId,
    /// Range of the route.
    pub range: KeyRange,
    /// Raised by every change of the chain or the range.
    pub epoch: Epoch,
    /// Head (takes pushes) first, tail (takes pulls) last; never empty in a checked table.
    pub chain: Vec<NodeId>,
}

impl Route {
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
/// One registry changes it, by compare-and-swap on `version`. A change may split a range, take
/// servers out of a chain (order kept), or append one server to which the tail has handed the range
/// over; never anything else at once.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "(u64, Vec<Route>)")]
pub struct Routing {
    version: u64,
    routes: Vec<Route>,
}

impl TryFrom<(u64, Vec<Route>)> for Routing {
    type Error = RoutingError;

    fn try_from((version, routes): (u64, Vec<Route>)) -> Result<Self, RoutingError> {
        Self::new(version, routes)
    }
}

impl Routing {
    /// A table of these routes. Ranges of one array must not overlap, chains must name
    /// each server once.
    pub fn new(version: u64, mut routes: Vec<Route>) -> Result<Self, RoutingError> {
        routes.sort_by_key(|route| (route.array, route.range));
        for route in &routes {
            let mut chain = route.chain.clone();
            chain.sort_unstable();
            chain.dedup();
            if route.range.is_empty() || chain.is_empty() || chain.len() != route.chain.len() {
                return Err(RoutingError::Malformed {
                    array: route.array,
                    range: route.range,
                });
            }
        }
        let overlapping = routes
            .iter()
            .zip(routes.iter().skip(1))
            .find(|(a, b)| a.array == b.array && a.range.end > b.range.start);
        match overlapping {
            Some((a, b)) => Err(RoutingError::Overlap {
                array: a.array,
                first: a.range,
                second: b.range,
            }),
            None => Ok(Self { version, routes }),
        }
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
        let first = self
            .routes
            .partition_point(|route| (route.array, route.range.end) <= (array, range.start));
        self.routes
            .iter()
            .skip(first)
            .take_while(move |route| route.array == array && route.range.start < range.end)
    }

    /// The route of `key`.
    pub fn route(&self, array: ArrayId, key: Key) -> Option<&Route> {
        self.overlapping(array, KeyRange::new(key, key.saturating_add(1)))
            .next()
    }

    /// The next version, with the shard `(array, range)` at `epoch` replaced by `routes`, all under
    /// the next epoch.
    ///
    /// The registry's compare-and-swap: fails if the shard has changed since `epoch`.
    pub fn replace(
        &self,
        array: ArrayId,
        range: KeyRange,
        epoch: Epoch,
        parts: Vec<(KeyRange, Vec<NodeId>)>,
    ) -> Result<Self, RoutingError> {
        let mut routes = self.routes.clone();
        let stale = RoutingError::Stale {
            array,
            range,
            epoch,
        };
        let at = routes
            .iter()
            .position(|r| r.array == array && r.range == range && r.epoch == epoch)
            .ok_or(stale)?;
        let parts = parts.into_iter().map(|(range, chain)| Route {
            array,
            range,
            epoch: epoch.next(),
            chain,
        });
        routes.splice(at..=at, parts);
        Self::new(self.version.saturating_add(1), routes)
    }
}

/// Errors of a routing table or a change of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RoutingError {
    /// An empty range, an empty chain, or a server twice in one chain.
    #[error(
        "{array}, keys {range}: a route needs keys and a chain of one or more different servers"
    )]
    Malformed {
        /// Array of the route.
        array: ArrayId,
        /// Range of the route.
        range: KeyRange,
    },
    /// Two routes for one key.
    #[error("{array}: the routes for keys {first} and {second} overlap: cut one of them")]
    Overlap {
        /// Array of the routes.
        array: ArrayId,
        /// One route's keys.
        first: KeyRange,
        /// Range of the other route.
        second: KeyRange,
    },
    /// The shard is not there, or no longer at this epoch.
    #[error("{array}, keys {range}: no shard at {epoch}: read the table again and decide anew")]
    Stale {
        /// Array of the route.
        array: ArrayId,
        /// Range of the route.
        range: KeyRange,
        /// Epoch that the change was based on.
        epoch: Epoch,
    },
}
