//! Detection of dead servers and workers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::ClusterState;
use crate::{NodeId, Peer, WorkerId};

#[derive(Debug, Clone)]
struct Known {
    weight: u32,
    /// Since when the registry misses it.
    missing: Option<Duration>,
}

/// Memory of the liveness of servers and workers.
///
/// A suspicion counts as long as it is held. One server's is enough, for it must be acted upon
/// within a second; workers' count if all of them agree, because servers do not watch workers in
/// turn. Suspicions held by a suspected server do not count. Nor is, for a while, a server that
/// suspects all of two or more others: if it is cut off itself, they will say so. If they do not,
/// it is the last that lives: the dead are listed for as long as their leases last.
#[derive(Debug, Clone)]
pub(super) struct Liveness {
    absence: Duration,
    doubt: Duration,
    servers: BTreeMap<NodeId, Known>,
    /// Servers that suspect all others, and the time since they do.
    alone: BTreeMap<NodeId, Duration>,
    suspects: BTreeSet<NodeId>,
    missing_workers: BTreeMap<WorkerId, Duration>,
}

impl Liveness {
    pub(super) fn new(absence: Duration, doubt: Duration) -> Self {
        Self {
            absence,
            doubt,
            servers: BTreeMap::new(),
            alone: BTreeMap::new(),
            suspects: BTreeSet::new(),
            missing_workers: BTreeMap::new(),
        }
    }

    /// When those that are missing will have been missing for too long, and those that are
    /// alone are believed.
    pub(super) fn timers(&self) -> impl Iterator<Item = Duration> + '_ {
        let servers = self.servers.values().filter_map(|known| known.missing);
        let missing = servers.chain(self.missing_workers.values().copied());
        let alone = self.alone.values().map(|&since| since + self.doubt);
        missing.map(|since| since + self.absence).chain(alone)
    }

    /// The servers that live.
    pub(super) fn servers(&mut self, now: Duration, cluster: &ClusterState) -> BTreeSet<NodeId> {
        for (&node, &weight) in &cluster.servers {
            self.servers.insert(
                node,
                Known {
                    weight,
                    missing: None,
                },
            );
        }
        // A new leader finds servers in the table of which the registry has never told it.
        let named: BTreeSet<NodeId> = cluster
            .routing
            .routes()
            .iter()
            .flat_map(|route| route.chain.iter().copied())
            .collect();
        for &node in &named {
            self.servers.entry(node).or_insert(Known {
                weight: 1,
                missing: Some(now),
            });
        }
        self.servers.retain(|node, known| {
            if !cluster.servers.contains_key(node) {
                known.missing.get_or_insert(now);
                // Nothing is lost with one that holds nothing, and much is if a shard is copied to
                // one that is dead.
                return named.contains(node);
            }
            true
        });
        self.alone.retain(|&node, _| is_alone(cluster, node));
        for &node in cluster
            .servers
            .keys()
            .filter(|&&node| is_alone(cluster, node))
        {
            self.alone.entry(node).or_insert(now);
        }
        self.judge(now, cluster);
        // One that has been missing for too long stays so for as long as the table names it.
        let is_gone = |known: &Known| {
            known
                .missing
                .is_some_and(|since| now >= since + self.absence)
        };
        let live = self
            .servers
            .iter()
            .filter(|&(node, known)| !self.suspects.contains(node) && !is_gone(known));
        live.map(|(&node, _)| node).collect()
    }

    /// Returns the weights of the servers that may be given shards.
    pub(super) fn weights(
        &self,
        live: &BTreeSet<NodeId>,
        cluster: &ClusterState,
    ) -> BTreeMap<NodeId, u32> {
        let may = |node: NodeId| live.contains(&node) && !self.is_doubtful(cluster, node);
        let among = |(&node, known): (&NodeId, &Known)| may(node).then_some((node, known.weight));
        self.servers.iter().filter_map(among).collect()
    }

    /// Returns true if a server that holds nothing was found dead by one that may have died itself
    /// since: what they said goes with their leases, in the order of their deaths.
    fn is_doubtful(&self, cluster: &ClusterState, node: NodeId) -> bool {
        let is_cut_off = |by: &NodeId| self.suspects.contains(by) && self.alone.contains_key(by);
        let counts = |&(by, accused): &(Peer, NodeId)| {
            accused == node && matches!(by, Peer::Server(by) if !is_cut_off(&by))
        };
        !cluster
            .routing
            .routes()
            .iter()
            .any(|route| route.chain.contains(&node))
            && cluster.suspicions.iter().any(counts)
    }

    /// The server with the most accusers is judged first, and its own suspicions do not count
    /// from then on.
    fn judge(&mut self, now: Duration, cluster: &ClusterState) {
        let before = std::mem::take(&mut self.suspects);
        loop {
            let accused = cluster.suspicions.iter().map(|&(_, node)| node);
            let fresh: BTreeSet<NodeId> = accused
                .filter(|node| !self.suspects.contains(node))
                .collect();
            // Of two that accuse each other, the one that was judged before stays judged.
            let case = |node| {
                (
                    self.accusers(now, cluster, node),
                    before.contains(&node),
                    node,
                )
            };
            let worst = fresh
                .into_iter()
                .map(case)
                .max()
                .filter(|&(accusers, ..)| accusers > 0);
            let Some((.., node)) = worst else { return };
            self.suspects.insert(node);
        }
    }

    /// Number of suspicions of `node` that count.
    fn accusers(&self, now: Duration, cluster: &ClusterState, node: NodeId) -> usize {
        let holders = || {
            cluster
                .suspicions
                .iter()
                .filter(|&&(_, accused)| accused == node)
                .map(|&(by, _)| by)
        };
        let believed = |peer: &Peer| match peer {
            Peer::Server(by) => {
                cluster.servers.contains_key(by)
                    && !self.suspects.contains(by)
                    && self
                        .alone
                        .get(by)
                        .is_none_or(|&since| now >= since + self.doubt)
            }
            Peer::Worker(_) => false,
        };
        let workers = holders().filter(
            |peer| matches!(peer, Peer::Worker(worker) if cluster.present_workers.contains(worker)),
        );
        let workers = workers.count();
        let unanimous = workers > 0 && workers >= cluster.present_workers.len();
        holders().filter(believed).count() + if unanimous { workers } else { 0 }
    }

    /// The workers that the registry has missed for too long.
    pub(super) fn gone_workers(&mut self, now: Duration, cluster: &ClusterState) -> Vec<WorkerId> {
        self.missing_workers.retain(|worker, _| {
            cluster.workers.contains(worker) && !cluster.present_workers.contains(worker)
        });
        for &worker in cluster.workers.difference(&cluster.present_workers) {
            self.missing_workers.entry(worker).or_insert(now);
        }
        let absence = self.absence;
        self.missing_workers
            .iter()
            .filter(|&(_, &since)| now >= since + absence)
            .map(|(&worker, _)| worker)
            .collect()
    }
}

/// Returns true if this server suspects all others, and there are two or more.
fn is_alone(cluster: &ClusterState, by: NodeId) -> bool {
    let others = || cluster.servers.keys().filter(|&&node| node != by);
    others().count() >= 2
        && others().all(|&node| cluster.suspicions.contains(&(Peer::Server(by), node)))
}
