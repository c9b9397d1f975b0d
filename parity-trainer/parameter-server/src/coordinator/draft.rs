//! Table that a decision leads to.

use std::collections::{BTreeMap, BTreeSet};

use super::HandOver;
use crate::{ArrayId, KeyRange, NodeId, Route, Routing, RoutingError, ShardRef, Step};

/// The table that comes to be; each shard of the present one is changed once at most.
pub(super) struct Draft {
    pub(super) routing: Routing,
    pub(super) touched: BTreeSet<ShardRef>,
    pub(super) hand_overs: Vec<HandOver>,
}

impl Draft {
    /// Returns true if the shard was changed.
    pub(super) fn take(&mut self, at: ShardRef, next: Result<Routing, RoutingError>) -> bool {
        let Ok(next) = next else { return false };
        let changed = self.touched.insert(at);
        if changed {
            self.routing = next;
        }
        changed
    }

    pub(super) fn replace(&mut self, at: ShardRef, parts: Vec<(KeyRange, Vec<NodeId>)>) -> bool {
        let next = self.routing.replace(at.array, at.range, at.epoch, parts);
        self.take(at, next)
    }

    pub(super) fn apply(&mut self, step: &Step) {
        let next = step.apply(&self.routing);
        self.take(step.at(), next);
    }

    /// Appends the servers whose copies are complete. The shard stands still until its epoch is
    /// raised, so it is raised in any case.
    pub(super) fn accept(&mut self, proposals: &BTreeSet<HandOver>, live: &BTreeSet<NodeId>) {
        for &HandOver { at, to } in proposals {
            let Some(route) = route(&self.routing, at) else {
                continue;
            };
            let joins = live.contains(&to) && !route.chain.contains(&to);
            let chain = route
                .chain
                .iter()
                .copied()
                .chain(joins.then_some(to))
                .collect();
            self.replace(at, vec![(at.range, chain)]);
        }
    }

    pub(super) fn drop_arrays(&mut self, arrays: &BTreeMap<ArrayId, (KeyRange, u64)>) {
        let stays = |route: &&Route| {
            arrays
                .get(&route.array)
                .is_none_or(|&(_, shards)| shards > 0)
        };
        let routes: Vec<Route> = self
            .routing
            .routes()
            .iter()
            .filter(stays)
            .cloned()
            .collect();
        if routes.len() < self.routing.routes().len()
            && let Ok(next) = Routing::new(self.routing.version().saturating_add(1), routes)
        {
            self.routing = next;
        }
    }

    pub(super) fn add_new_arrays(&mut self, wanted: &Routing) {
        let known: BTreeSet<ArrayId> = self
            .routing
            .routes()
            .iter()
            .map(|route| route.array)
            .collect();
        let new: Vec<Route> = wanted
            .routes()
            .iter()
            .filter(|route| !known.contains(&route.array))
            .cloned()
            .collect();
        if new.is_empty() {
            return;
        }
        let routes = self.routing.routes().iter().cloned().chain(new).collect();
        if let Ok(next) = Routing::new(self.routing.version().saturating_add(1), routes) {
            self.routing = next;
        }
    }
}

/// The route of exactly this shard, at its epoch.
pub(super) fn route(routing: &Routing, at: ShardRef) -> Option<&Route> {
    let route = routing.route(at.array, at.range.start)?;
    (route.range == at.range && route.epoch == at.epoch).then_some(route)
}
