//! Standbys: servers that hold nothing until the load, or the loss of others, makes them needed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::replan::GAIN_SECONDS;
use super::{ClusterState, Coordinator};
use crate::NodeId;
use crate::load::{Plan, Shards, best, plan, without};

/// Part of a step that a standby must save, as predicted, to be taken in.
const TAKES_IN: f64 = 0.05;

/// Part by which a step may be longer than the shortest one with it, so that it is let go.
const LETS_GO: f64 = 0.01;

/// Times the wait between plans until one that was taken in may be taken in again.
const AGAIN: u32 = 150;

/// A plan, and the standbys that it needs.
pub(super) type Staffed = (Plan, BTreeSet<NodeId>);

impl Coordinator {
    /// Weights of the servers that may be given shards. Of standbys these are the ones that the
    /// plan has taken in, and as many more as servers are missing for all replicas.
    pub(super) fn weights(
        &self,
        cluster: &ClusterState,
        live: &BTreeSet<NodeId>,
    ) -> BTreeMap<NodeId, u32> {
        let weights = self.liveness.weights(live, cluster).into_iter();
        let (spare, mut weights): (BTreeMap<_, _>, BTreeMap<_, _>) =
            weights.partition(|(node, _)| is_spare(cluster, *node));
        let missing = self.config.placement.replicas.saturating_sub(weights.len());
        weights.extend(spare.into_iter().take(missing));
        weights
    }

    /// The plan with one more standby, if it is much better than the best without it.
    pub(super) fn take_in(
        &mut self,
        every: Duration,
        cluster: &ClusterState,
        live: &BTreeSet<NodeId>,
        shards: &Shards,
    ) -> Option<Staffed> {
        let (now, mut more) = (self.decided, cluster.clone());
        self.load.tried.retain(|_, &mut since| now < since + every * AGAIN);
        let is_tried = |node: &&NodeId| self.load.tried.contains_key(node);
        let mut spare = cluster.standbys.iter().filter(|&&node| is_spare(cluster, node));
        let new = *spare.find(|node| live.contains(node) && !is_tried(node))?;
        more.plan.standbys.insert(new);
        let servers = self.measured(&more, live)?;
        let alone = without(shards, &servers, new)?.after;
        let plan = plan(shards, &servers, |_, after| {
            after < alone * (1.0 - TAKES_IN) && after < alone - GAIN_SECONDS
        })?;
        self.load.tried.insert(new, now);
        Some((plan, more.plan.standbys))
    }

    /// The plan with one standby less, if that costs next to nothing.
    pub(super) fn let_go(
        &self,
        cluster: &ClusterState,
        live: &BTreeSet<NodeId>,
        shards: &Shards,
    ) -> Option<Staffed> {
        let servers = self.measured(cluster, live)?;
        let best = best(shards, &servers)?.after;
        cluster.plan.standbys.iter().find_map(|node| {
            cluster.services.get(node)?;
            let plan = without(shards, &servers, *node)?;
            let mut rest = cluster.plan.standbys.clone();
            rest.remove(node);
            (plan.after < best * (1.0 + LETS_GO)).then_some((plan, rest))
        })
    }
}

/// Returns true if this server is a standby that no plan has taken in.
fn is_spare(cluster: &ClusterState, node: NodeId) -> bool {
    cluster.standbys.contains(&node) && !cluster.plan.standbys.contains(&node)
}
