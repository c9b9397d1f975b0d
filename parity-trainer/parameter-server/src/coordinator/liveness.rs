//! Detection of dead servers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{ClusterState, track};
use crate::{NodeId, Peer};

/// Memory of the liveness of servers.
///
/// A suspicion counts as long as it is held. One server's is enough, for it must be acted upon
/// within a second; workers' count if all of them agree, because servers do not watch workers in
/// turn. Suspicions held by a suspected server do not count. Nor do, for a while, those of a server
/// that suspects all of two or more others: if it is cut off itself, they will say so. If they do
/// not, it is the last that lives: the dead are listed for as long as their leases last.
#[derive(Debug, Clone, Default)]
pub(super) struct Liveness {
    absence: Duration,
    doubt: Duration,
    weights: BTreeMap<NodeId, u32>,
    /// Servers that the registry misses, and the time since it does.
    missing: BTreeMap<NodeId, Duration>,
    /// Servers that suspect all others, and the time since they do.
    alone: BTreeMap<NodeId, Duration>,
    suspects: BTreeSet<NodeId>,
}

impl Liveness {
    pub(super) fn new(absence: Duration, doubt: Duration) -> Self {
        Self { absence, doubt, ..Self::default() }
    }

    /// When those missing will have been missing for too long, and those alone are believed.
    pub(super) fn timers(&self) -> impl Iterator<Item = Duration> + '_ {
        let missing = self.missing.values().map(|&since| since + self.absence);
        missing.chain(self.alone.values().map(|&since| since + self.doubt))
    }

    pub(super) fn servers(&mut self, now: Duration, cluster: &ClusterState) -> BTreeSet<NodeId> {
        let present = &cluster.servers;
        self.weights.extend(present);
        // A new leader finds servers in the table of which the registry has never told it.
        let routes = cluster.routing.routes().iter();
        let named: BTreeSet<NodeId> = routes.flat_map(|route| route.chain.clone()).collect();
        for &node in &named {
            self.weights.entry(node).or_insert(1);
        }
        // Nothing is lost with a missing one that holds nothing, and much is if a shard is copied
        // to one that is dead.
        let is_missing = |node: &NodeId| !present.contains_key(node);
        self.weights.retain(|node, _| !is_missing(node) || named.contains(node));
        let missing = self.weights.keys().copied().filter(is_missing);
        track(&mut self.missing, now, missing.collect());
        let mut alone: BTreeSet<NodeId> = present.keys().copied().collect();
        alone.retain(|&node| is_alone(cluster, node));
        track(&mut self.alone, now, alone);
        self.judge(now, cluster);
        // One that has been missing for too long stays so for as long as the table names it.
        let mut live: BTreeSet<NodeId> = self.weights.keys().copied().collect();
        live.retain(|node| {
            let since = self.missing.get(node);
            let is_gone = since.is_some_and(|&since| now >= since + self.absence);
            !is_gone && !self.suspects.contains(node)
        });
        live
    }

    /// Returns the weights of the servers that may be given shards.
    pub(super) fn weights(
        &self,
        live: &BTreeSet<NodeId>,
        cluster: &ClusterState,
    ) -> BTreeMap<NodeId, u32> {
        let mut weights = self.weights.clone();
        weights.retain(|node, weight| {
            *weight > 0 && live.contains(node) && !self.is_doubtful(cluster, *node)
        });
        weights
    }

    /// Returns true if a server that holds nothing was found dead by one that may have died itself
    /// since: what they said goes with their leases, in the order of their deaths.
    fn is_doubtful(&self, cluster: &ClusterState, node: NodeId) -> bool {
        let is_cut_off = |by: &NodeId| self.suspects.contains(by) && self.alone.contains_key(by);
        let counts = |&(by, accused): &(Peer, NodeId)| {
            accused == node && matches!(by, Peer::Server(by) if !is_cut_off(&by))
        };
        let mut routes = cluster.routing.routes().iter();
        let holds = routes.any(|route| route.chain.contains(&node));
        !holds && cluster.suspicions.iter().any(counts)
    }

    /// The server with the most accusers is judged first, and its own suspicions no longer count.
    fn judge(&mut self, now: Duration, cluster: &ClusterState) {
        let before = std::mem::take(&mut self.suspects);
        loop {
            let accused = cluster.suspicions.iter().map(|&(_, node)| node);
            let fresh = accused.filter(|node| !self.suspects.contains(node));
            // Of two that accuse each other, the one that was judged before stays judged.
            let case = |node| {
                let accusers = self.accusers(now, cluster, node);
                (accusers, before.contains(&node), node)
            };
            match fresh.map(case).max() {
                Some((accusers, _, node)) if accusers > 0 => self.suspects.insert(node),
                _ => return,
            };
        }
    }

    /// Number of suspicions of `node` that count.
    fn accusers(&self, now: Duration, cluster: &ClusterState, node: NodeId) -> usize {
        let (mut servers, mut workers) = (0, 0);
        let suspicions = cluster.suspicions.iter();
        for (by, _) in suspicions.filter(|&&(_, accused)| accused == node) {
            match by {
                Peer::Server(by) => servers += usize::from(self.is_believed(now, cluster, by)),
                Peer::Worker(by) => workers += usize::from(cluster.present_workers.contains(by)),
            }
        }
        let is_unanimous = workers >= cluster.present_workers.len();
        servers + if is_unanimous { workers } else { 0 }
    }

    fn is_believed(&self, now: Duration, cluster: &ClusterState, by: &NodeId) -> bool {
        let alone = self.alone.get(by);
        cluster.servers.contains_key(by)
            && !self.suspects.contains(by)
            && alone.is_none_or(|&since| now >= since + self.doubt)
    }
}

/// Returns true if this server suspects all others, and there are two or more.
fn is_alone(cluster: &ClusterState, by: NodeId) -> bool {
    let others = || cluster.servers.keys().filter(|&&node| node != by);
    let suspects = |&node: &NodeId| cluster.suspicions.contains(&(Peer::Server(by), node));
    others().count() >= 2 && others().all(suspects)
}
