//! Moves of shards away from slow servers.

use std::collections::{BTreeMap, BTreeSet};

use super::{ClusterState, Coordinator};
use crate::load::plan;
use crate::{LoadPlan, NodeId, Routing, next_step};

/// Part of the slowest server's time that a load plan must save, and seconds: less is not worth
/// the copies.
const GAIN: f64 = 0.1;
const GAIN_SECONDS: f64 = 5e-4;

/// The ring's table with the plan's chains, where they can be had: of servers with a weight, and as
/// long as there should be `replicas`.
pub(super) fn planned(
    ring: &Routing,
    plan: &LoadPlan,
    servers: &BTreeMap<NodeId, u32>,
    replicas: usize,
) -> Option<Routing> {
    let chosen = plan.chains.iter().filter(|(.., chain)| {
        let holds = |node| servers.get(node).is_some_and(|&weight| weight > 0);
        chain.len() == replicas && chain.iter().all(holds)
    });
    let chosen: BTreeMap<_, _> =
        chosen.map(|(array, range, chain)| ((*array, *range), chain)).collect();
    let mut routes = ring.routes().to_vec();
    for route in &mut routes {
        if let Some(&chain) = chosen.get(&(route.array, route.range)) {
            route.chain.clone_from(chain);
        }
    }
    Routing::new(0, routes).ok()
}

impl Coordinator {
    /// The plan of a cluster that stands still, if another one is worth its moves.
    pub(super) fn replan(
        &mut self,
        cluster: &ClusterState,
        live: &BTreeSet<NodeId>,
        wanted: &Routing,
    ) -> Option<LoadPlan> {
        let (now, replan) = (self.decided, self.config.replan?);
        let mut known = Vec::from_iter(cluster.services.values().copied());
        known.sort_unstable_by_key(|time| time.row_ns);
        // One that is not known is as good as most: it is tried, and found out.
        let usual = *known.get(known.len() / 2)?;
        let is_due = now >= *self.planned.get_or_insert(now) + replan;
        let routes = cluster.routing.routes();
        let mut steps = routes.iter().filter_map(|route| next_step(route, wanted, live));
        if !is_due || !cluster.hand_overs.is_empty() || steps.next().is_some() {
            return None;
        }
        let servers = self.liveness.weights(live, cluster).into_iter();
        let servers = servers.filter(|&(_, weight)| weight > 0);
        let time = |node| cluster.services.get(&node).copied().unwrap_or(usual);
        let servers = servers.map(|(node, _)| (node, time(node))).collect();
        let shards = routes.iter().map(|route| (route.range.len(), route.chain.clone()));
        let shards: Vec<_> = shards.collect();
        let is_untried = |node: &&NodeId| !cluster.services.contains_key(*node);
        let untried = live.iter().filter(is_untried).copied().collect();
        let plan = plan(&shards, &servers, &untried, GAIN)?;
        if plan.before - plan.after < GAIN_SECONDS {
            return None;
        }
        self.planned = Some(now);
        let micros = |seconds: f64| (seconds * 1e6) as u64;
        let moves = shards.iter().zip(&plan.chains).filter(|((_, old), new)| old != *new);
        let moved = moves.count();
        let chains = routes.iter().zip(plan.chains);
        let chains = chains.map(|(route, chain)| (route.array, route.range, chain)).collect();
        let (before_us, after_us) = (micros(plan.before), micros(plan.after));
        Some(LoadPlan { chains, moved, before_us, after_us })
    }
}
