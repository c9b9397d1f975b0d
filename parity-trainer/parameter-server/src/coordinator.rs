//! Decisions of a cluster's leader: which servers are alive, which hold each shard, and which
//! hand-overs are given up.
//!
//! [`Coordinator::decide`] looks at all that the registry knows ([`ClusterState`]) and says how the
//! routing table should be changed ([`Change`]). It is asked again whenever the registry changes,
//! or a timer is due, and asks for nothing twice that has happened: a change that is lost to a race
//! is decided anew on what is there then. All that it remembers is since when something has been
//! so; a new leader begins with nothing and waits a little longer.
//!
//! - A suspected server leaves all chains in one change of the table, which raises the epochs of
//!   its shards; the old head cannot commit alone, because its successor refuses the old epoch
//!   (PS-3).
//! - A server that only the registry misses gets time to come back, because the registry may have
//!   been away itself; and no further shards meanwhile, because it may be dead.
//! - While its last changes are copied, a shard takes no pushes, and only a raised epoch ends that.
//!   So a hand-over whose receiver dies or hangs, or is not wanted any longer, ends with a raise of
//!   the epoch under the same chain.

mod draft;
mod liveness;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    ArrayId, Epoch, Key, KeyRange, NodeId, Peer, Placement, Planner, Route, Routing, ShardRef,
    Step, WorkerId,
};
use draft::{Draft, route};
use liveness::Liveness;

/// A shard on its way to a server that will join the end of its chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HandOver {
    /// The shard, at its epoch before the join; its tail copies.
    pub at: ShardRef,
    /// The server that joins.
    pub to: NodeId,
}

/// State of a cluster in the registry.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterState {
    /// The servers that have joined, each with its weight; one of weight 0 is to be emptied.
    pub servers: BTreeMap<NodeId, u32>,
    /// The arrays: their keys, and into how many shards they are to be cut; 0: the array is to go,
    /// with all it holds.
    pub arrays: BTreeMap<ArrayId, (KeyRange, u64)>,
    /// Routing table.
    pub routing: Routing,
    /// The hand-overs that tails have been told of.
    pub hand_overs: Vec<HandOver>,
    /// Suspicions held at this moment: the holder, and the server it takes for dead.
    pub suspicions: BTreeSet<(Peer, NodeId)>,
    /// Changes that tails propose when a hand-over is complete.
    pub proposals: BTreeSet<HandOver>,
    /// Servers that were named for a shard whose state never came to them.
    pub lost: BTreeSet<(NodeId, ShardRef)>,
    /// The workers whose clocks count.
    pub workers: BTreeSet<WorkerId>,
    /// The workers that the registry hears from.
    pub present_workers: BTreeSet<WorkerId>,
}

/// Changes that the leader decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The routing table as it should be. All at once: it is one compare-and-swap.
    pub routing: Routing,
    /// The hand-overs that tails should work on.
    pub hand_overs: Vec<HandOver>,
    /// Workers that others wait for no longer.
    pub gone_workers: Vec<WorkerId>,
    /// Shards whose servers are all gone.
    pub unrecoverable: Vec<ShardRef>,
}

/// Settings of a [`Coordinator`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoordinatorConfig {
    /// Placement of ranges on servers.
    pub placement: Placement,
    /// Shards that are copied at the same time, at most.
    pub max_copies: usize,
    /// Limit of the time that the registry may miss a server or worker that is not suspected.
    pub absence: Duration,
    /// For how long a server is not believed that suspects all of two or more others: if it is cut
    /// off itself, they have noticed, too, and said so by then.
    pub doubt: Duration,
    /// After how long a hand-over is given up the first time; twice as long each time after, up
    /// to 64 times.
    pub hand_over: Duration,
    /// Time that a new shard is left alone, so that its servers learn of its first epoch.
    pub birth: Duration,
    /// Arrays are born when there are this many servers.
    pub min_servers: usize,
}

impl CoordinatorConfig {
    /// The usual one in a cluster whose nodes give a sign of life this often. All that depends on
    /// what nodes notice is a multiple of it; what depends on the registry ([`Self::absence`]) has
    /// to last longer than its leases do.
    pub fn of_heartbeat(heartbeat: Duration) -> Self {
        Self {
            placement: Placement::default(),
            max_copies: Planner::default().max_copies,
            absence: Duration::from_secs(3),
            doubt: heartbeat.saturating_mul(3),
            hand_over: heartbeat.saturating_mul(300),
            birth: heartbeat.saturating_mul(10),
            min_servers: 1,
        }
    }
}

impl Default for CoordinatorConfig {
    /// With signs of life every 100 ms.
    fn default() -> Self {
        Self::of_heartbeat(Duration::from_millis(100))
    }
}

/// Memory of the leader.
#[derive(Debug, Clone)]
pub struct Coordinator {
    config: CoordinatorConfig,
    liveness: Liveness,
    /// When hand-overs were first seen.
    since: BTreeMap<HandOver, Duration>,
    /// Number of hand-overs to each server that were given up, by range.
    given_up: BTreeMap<(ArrayId, KeyRange, NodeId), u32>,
    /// When shards that are still at their first epoch were first seen.
    born: BTreeMap<(ArrayId, Key), Duration>,
    decided: Duration,
}

impl Coordinator {
    /// One that has seen nothing.
    pub fn new(config: CoordinatorConfig) -> Self {
        let liveness = Liveness::new(config.absence, config.doubt);
        let (since, given_up, born) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self {
            config,
            liveness,
            since,
            given_up,
            born,
            decided: Duration::ZERO,
        }
    }

    /// When to decide again even if nothing changes.
    pub fn next_timer(&self) -> Option<Duration> {
        let hand_overs = self
            .since
            .iter()
            .map(|(hand_over, &since)| since + self.patience(hand_over));
        let births = self.born.values().map(|&since| since + self.config.birth);
        let passed = self.decided;
        hand_overs
            .chain(births)
            .chain(self.liveness.timers())
            .filter(|&timer| timer > passed)
            .min()
    }

    /// Decides on changes to `cluster` at the time `now`, which never goes back.
    pub fn decide(&mut self, now: Duration, cluster: &ClusterState) -> Change {
        self.decided = now;
        let live = self.liveness.servers(now, cluster);
        let gone_workers = self.liveness.gone_workers(now, cluster);
        self.remember(now, cluster);
        let mut draft = Draft {
            routing: cluster.routing.clone(),
            touched: BTreeSet::new(),
            hand_overs: cluster.hand_overs.clone(),
        };
        let mut unrecoverable = Vec::new();
        let wanted = self.wanted(cluster, &live);

        draft.drop_arrays(&cluster.arrays);
        self.take_out_empty(cluster, &live, &mut draft, &mut unrecoverable);
        draft.accept(&cluster.proposals, &live);
        if let Some(wanted) = &wanted {
            self.give_up(now, cluster, wanted, &live, &mut draft);
            draft.add_new_arrays(wanted);
        }
        let planner = Planner {
            max_copies: usize::MAX,
        };
        let plan = planner.plan(
            &cluster.routing,
            wanted.as_ref().unwrap_or(&cluster.routing),
            &live,
        );
        unrecoverable.extend(plan.lost);
        for step in plan.steps {
            self.carry_out(now, &step, cluster, &live, &mut draft);
        }
        let routing = &draft.routing;
        draft
            .hand_overs
            .retain(|hand_over| route(routing, hand_over.at).is_some());
        unrecoverable.sort_unstable();
        unrecoverable.dedup();
        Change {
            routing: draft.routing,
            hand_overs: draft.hand_overs,
            gone_workers,
            unrecoverable,
        }
    }

    /// The table as it should be in the end; `None` while there are no or too few servers.
    fn wanted(&self, cluster: &ClusterState, live: &BTreeSet<NodeId>) -> Option<Routing> {
        let servers: BTreeMap<NodeId, u32> = self.liveness.weights(live, cluster);
        let named = servers.values().filter(|&&weight| weight > 0).count();
        let first = cluster.routing.routes().is_empty();
        if named == 0 || (first && named < self.config.min_servers) {
            return None;
        }
        let ranges = cluster
            .arrays
            .iter()
            .filter(|(_, (_, shards))| *shards > 0)
            .flat_map(|(&array, &(keys, shards))| {
                keys.cut(shards).map(move |range| (array, range))
            });
        self.config.placement.ring(&servers).routing(0, ranges).ok()
    }

    fn remember(&mut self, now: Duration, cluster: &ClusterState) {
        self.since
            .retain(|hand_over, _| cluster.hand_overs.contains(hand_over));
        for &hand_over in &cluster.hand_overs {
            self.since.entry(hand_over).or_insert(now);
        }
        let routing = &cluster.routing;
        self.given_up.retain(|&(array, range, to), _| {
            routing
                .route(array, range.start)
                .is_some_and(|r| r.range == range && !r.chain.contains(&to))
        });
        let is_newborn = |route: &&Route| route.epoch == Epoch(1);
        self.born.retain(|&(array, first), _| {
            routing.route(array, first).as_ref().is_some_and(is_newborn)
        });
        for route in routing.routes().iter().filter(is_newborn) {
            self.born
                .entry((route.array, route.range.start))
                .or_insert(now);
        }
    }

    fn patience(&self, hand_over: &HandOver) -> Duration {
        let slot = (hand_over.at.array, hand_over.at.range, hand_over.to);
        let times = self.given_up.get(&slot).copied().unwrap_or(0).min(6);
        self.config.hand_over.saturating_mul(1 << times)
    }

    /// Takes servers out of chains to which they came without the shard's state.
    fn take_out_empty(
        &self,
        cluster: &ClusterState,
        live: &BTreeSet<NodeId>,
        draft: &mut Draft,
        unrecoverable: &mut Vec<ShardRef>,
    ) {
        for &(_, at) in &cluster.lost {
            let Some(route) = route(&cluster.routing, at) else {
                continue;
            };
            let empty = |node: &NodeId| cluster.lost.contains(&(*node, at));
            let rest: Vec<NodeId> = route
                .chain
                .iter()
                .copied()
                .filter(|node| !empty(node))
                .collect();
            if !rest.iter().any(|node| live.contains(node)) {
                unrecoverable.push(at);
            } else if rest.len() < route.chain.len() {
                draft.replace(at, vec![(at.range, rest)]);
            }
        }
    }

    /// Ends hand-overs that will not end by themselves.
    fn give_up(
        &mut self,
        now: Duration,
        cluster: &ClusterState,
        wanted: &Routing,
        live: &BTreeSet<NodeId>,
        draft: &mut Draft,
    ) {
        for hand_over in &cluster.hand_overs {
            let HandOver { at, to } = *hand_over;
            let Some(route) = route(&cluster.routing, at) else {
                continue;
            };
            let hangs = self
                .since
                .get(hand_over)
                .is_some_and(|&s| now >= s + self.patience(hand_over));
            let mut targets = wanted.overlapping(at.array, at.range);
            let is_wanted = targets.any(|target| target.chain.contains(&to));
            let ends = live.contains(&to) && is_wanted && !hangs;
            if !ends && draft.replace(at, vec![(at.range, route.chain.clone())]) && hangs {
                *self.given_up.entry((at.array, at.range, to)).or_default() += 1;
            }
        }
    }

    fn carry_out(
        &mut self,
        now: Duration,
        step: &Step,
        cluster: &ClusterState,
        live: &BTreeSet<NodeId>,
        draft: &mut Draft,
    ) {
        let at = step.at();
        let only_live_servers_leave = match step {
            Step::Remove { nodes, .. } => nodes.iter().all(|node| live.contains(node)),
            _ => true,
        };
        if at.epoch == Epoch(1) && only_live_servers_leave {
            let born = self.born.get(&(at.array, at.range.start));
            if born.is_none_or(|&since| now < since + self.config.birth) {
                return;
            }
        }
        let under_way = draft.hand_overs.iter().any(|hand_over| hand_over.at == at);
        match step {
            Step::Remove { nodes, .. } if leaves_the_missing(cluster, at, nodes) => {}
            Step::Append { add, .. } => {
                if !under_way
                    && cluster.servers.contains_key(add)
                    && !draft.touched.contains(&at)
                    && draft.hand_overs.len() < self.config.max_copies
                {
                    draft.hand_overs.push(HandOver { at, to: *add });
                    self.since.insert(HandOver { at, to: *add }, now);
                }
            }
            Step::Split { .. } | Step::Remove { .. } => draft.apply(step),
        }
    }
}

/// Returns true if of this shard's chain only servers would be left that the registry misses,
/// while it knows one of those that are to go: what is said of that one may be wrong, and the
/// others may be dead.
fn leaves_the_missing(cluster: &ClusterState, at: ShardRef, nodes: &[NodeId]) -> bool {
    let is_known = |node: &NodeId| cluster.servers.contains_key(node);
    let rest = |route: &Route| {
        route
            .chain
            .iter()
            .any(|node| !nodes.contains(node) && is_known(node))
    };
    nodes.iter().any(is_known) && route(&cluster.routing, at).is_some_and(|route| !rest(route))
}
