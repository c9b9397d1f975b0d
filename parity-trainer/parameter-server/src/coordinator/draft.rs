//! Table that a decision leads to.

use std::collections::BTreeSet;

use super::{ClusterState, HandOver};
use crate::{ArrayId, NodeId, Route, Routing, RoutingError, ShardRef};

/// The table that comes to be; each shard of the present one is changed once at most.
pub(super) struct Draft<'a> {
    pub(super) cluster: &'a ClusterState,
    pub(super) live: BTreeSet<NodeId>,
    pub(super) routing: Routing,
    pub(super) touched: BTreeSet<ShardRef>,
    pub(super) hand_overs: Vec<HandOver>,
    pub(super) unrecoverable: BTreeSet<ShardRef>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(cluster: &'a ClusterState, live: BTreeSet<NodeId>) -> Self {
        Self {
            cluster,
            live,
            routing: cluster.routing.clone(),
            touched: BTreeSet::new(),
            hand_overs: cluster.hand_overs.clone(),
            unrecoverable: BTreeSet::new(),
        }
    }

    pub(super) fn has_live(&self, chain: &[NodeId]) -> bool {
        chain.iter().any(|node| self.live.contains(node))
    }

    /// Returns true if the shard was changed.
    pub(super) fn change(&mut self, at: ShardRef, next: Result<Routing, RoutingError>) -> bool {
        let Ok(next) = next else { return false };
        let changed = self.touched.insert(at);
        if changed {
            self.routing = next;
        }
        changed
    }

    /// Raises the shard's epoch under this chain.
    pub(super) fn set_chain(&mut self, at: ShardRef, chain: Vec<NodeId>) -> bool {
        let parts = vec![(at.range, chain)];
        let next = self.routing.replace(at, parts);
        self.change(at, next)
    }

    /// Takes servers out of chains to which they came without the shard's state.
    pub(super) fn take_out_empty(&mut self) {
        let cluster = self.cluster;
        for &(_, at) in &cluster.lost {
            let Ok(route) = cluster.routing.exact(at) else {
                continue;
            };
            let mut rest = route.chain.clone();
            rest.retain(|node| !cluster.lost.contains(&(*node, at)));
            if !self.has_live(&rest) {
                self.unrecoverable.insert(at);
            } else if rest.len() < route.chain.len() {
                self.set_chain(at, rest);
            }
        }
    }

    /// Appends the servers whose copies are complete. The shard stands still until its epoch is
    /// raised, so it is raised in any case.
    pub(super) fn accept_proposals(&mut self) {
        for &HandOver { at, to } in &self.cluster.proposals {
            let Ok(route) = self.routing.exact(at) else {
                continue;
            };
            let mut chain = route.chain.clone();
            if self.live.contains(&to) && !chain.contains(&to) {
                chain.push(to);
            }
            self.set_chain(at, chain);
        }
    }

    pub(super) fn drop_arrays(&mut self) {
        let arrays = &self.cluster.arrays;
        let is_dropped = |array| arrays.get(&array).is_some_and(|&(_, shards)| shards == 0);
        let mut routes = self.routing.routes().to_vec();
        routes.retain(|route| !is_dropped(route.array));
        self.set_routes(routes);
    }

    pub(super) fn add_new_arrays(&mut self, wanted: &Routing) {
        let mut routes: Vec<Route> = self.routing.routes().to_vec();
        let known: BTreeSet<ArrayId> = routes.iter().map(|route| route.array).collect();
        let new = wanted
            .routes()
            .iter()
            .filter(|route| !known.contains(&route.array));
        routes.extend(new.cloned());
        self.set_routes(routes);
    }

    fn set_routes(&mut self, routes: Vec<Route>) {
        if routes.len() != self.routing.routes().len()
            && let Ok(next) = self.routing.with_routes(routes)
        {
            self.routing = next;
        }
    }
}
