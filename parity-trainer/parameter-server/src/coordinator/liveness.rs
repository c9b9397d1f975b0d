//! Who is alive.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Cluster;
use crate::{NodeId, Peer, WorkerId};

#[derive(Debug, Clone)]
struct Known {
    weight: u32,
    /// Since when the registry misses it.
    missing: Option<Duration>,
}

/// What is remembered of servers and workers.
///
/// A suspicion counts as long as it is held. One server's is enough, for it must be acted upon within a second; workers'
/// count if all of them agree, because servers do not watch workers in turn. Whoever is suspected is not believed, nor is
/// a server that suspects all of two or more others: it is cut off itself.
#[derive(Debug, Clone)]
pub(super) struct Liveness {
    absence: Duration,
    servers: BTreeMap<NodeId, Known>,
    suspects: BTreeSet<NodeId>,
    missing_workers: BTreeMap<WorkerId, Duration>,
}

impl Liveness {
    pub(super) fn new(absence: Duration) -> Self {
        Self {
            absence,
            servers: BTreeMap::new(),
            suspects: BTreeSet::new(),
            missing_workers: BTreeMap::new(),
        }
    }

    /// When those that are missing will have been missing for too long.
    pub(super) fn timers(&self) -> impl Iterator<Item = Duration> + '_ {
        let servers = self.servers.values().filter_map(|known| known.missing);
        servers.chain(self.missing_workers.values().copied()).map(|since| since + self.absence)
    }

    /// The servers that live.
    pub(super) fn servers(&mut self, now: Duration, cluster: &Cluster) -> BTreeSet<NodeId> {
        for (&node, &weight) in &cluster.servers {
            self.servers.insert(node, Known { weight, missing: None });
        }
        // A new leader finds servers in the table of which the registry has never told it.
        for &node in cluster.routing.routes().iter().flat_map(|route| &route.chain) {
            self.servers.entry(node).or_insert(Known { weight: 1, missing: Some(now) });
        }
        let absence = self.absence;
        self.servers.retain(|node, known| {
            if !cluster.servers.contains_key(node) {
                return now < *known.missing.get_or_insert(now) + absence;
            }
            true
        });
        self.judge(cluster);
        self.servers.keys().copied().filter(|node| !self.suspects.contains(node)).collect()
    }

    /// What each of these servers weighs.
    pub(super) fn weights(&self, live: &BTreeSet<NodeId>) -> BTreeMap<NodeId, u32> {
        let among = |(&node, known): (&NodeId, &Known)| live.contains(&node).then_some((node, known.weight));
        self.servers.iter().filter_map(among).collect()
    }

    /// Whoever has the most accusers is judged first, and is not believed from then on.
    fn judge(&mut self, cluster: &Cluster) {
        let before = std::mem::take(&mut self.suspects);
        loop {
            let accused = cluster.suspicions.iter().map(|&(_, node)| node);
            let fresh: BTreeSet<NodeId> = accused.filter(|node| !self.suspects.contains(node)).collect();
            // Of two that accuse each other, the one that was judged before stays judged.
            let case = |node| (accusers(cluster, &self.suspects, node), before.contains(&node), node);
            let worst = fresh.into_iter().map(case).max().filter(|&(accusers, ..)| accusers > 0);
            let Some((.., node)) = worst else { return };
            self.suspects.insert(node);
        }
    }

    /// The workers that the registry has missed for too long.
    pub(super) fn gone_workers(&mut self, now: Duration, cluster: &Cluster) -> Vec<WorkerId> {
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

/// How many suspicions of `node` count.
fn accusers(cluster: &Cluster, suspects: &BTreeSet<NodeId>, node: NodeId) -> usize {
    let holders = || cluster.suspicions.iter().filter(|&&(_, accused)| accused == node).map(|&(by, _)| by);
    let believed = |peer: &Peer| match peer {
        Peer::Server(by) => {
            cluster.servers.contains_key(by) && !suspects.contains(by) && !is_alone(cluster, *peer)
        }
        Peer::Worker(_) => false,
    };
    let workers = holders()
        .filter(|peer| matches!(peer, Peer::Worker(worker) if cluster.present_workers.contains(worker)));
    let workers = workers.count();
    let unanimous = workers > 0 && workers >= cluster.present_workers.len();
    holders().filter(believed).count() + if unanimous { workers } else { 0 }
}

/// Whether this server suspects all others, and there are two or more.
fn is_alone(cluster: &Cluster, by: Peer) -> bool {
    let others = || cluster.servers.keys().filter(|&&node| Peer::Server(node) != by);
    others().count() >= 2 && others().all(|&node| cluster.suspicions.contains(&(by, node)))
}
