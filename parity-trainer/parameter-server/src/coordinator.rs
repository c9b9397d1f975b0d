//! Decisions of a cluster's leader: which servers are alive, which hold each shard, and which
//! hand-overs are given up.
//!
//! [`Coordinator::decide`] looks at all that the registry knows ([`ClusterState`]) and says how the
//! routing table should be changed ([`Change`]), whenever the registry changes or a timer is due. A
//! change that is lost to a race is decided anew. All that it remembers is since when something has
//! been so; a new leader begins with nothing and waits a little longer.
//!
//! - A suspected server leaves all chains in one change of the table, which raises its shards'
//!   epochs; the old head cannot commit alone, because its successor refuses the old epoch (PS-3).
//! - A suspected server that has a shard alone keeps it. The shard is lost once the registry misses
//!   that server, too; until then its link may only be slow.
//! - A server that only the registry misses gets time to come back, because the registry may have
//!   been away itself; and no further shards meanwhile, because it may be dead.
//! - While its last changes are copied, a shard takes no pushes until its epoch is raised. So a
//!   hand-over whose receiver dies or hangs, or is not wanted any longer, ends with such a raise.

mod liveness;
mod replan;
mod standby;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    ArrayId, ChainChange, Epoch, Key, KeyRange, LoadPlan, NodeId, Peer, Placement, Route, Routing,
    RoutingError, ServiceTime, ShardRef, Step, StepTimes, WorkerId, next_step,
};
use liveness::Liveness;
use replan::{LoadMemory, planned};

/// A shard on its way to a server that will join the end of its chain, or go there from its head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HandOver {
    /// The shard, at its epoch before; its tail copies, unless the head is to go there.
    pub at: ShardRef,
    pub to: NodeId,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterState {
    /// The servers that have joined, each with its weight; one of weight 0 is to be emptied.
    pub servers: BTreeMap<NodeId, u32>,
    /// The servers among them that hold nothing unless they are needed.
    pub standbys: BTreeSet<NodeId>,
    /// The arrays: the shards that they are to be cut into; none: the array is to go, with all it
    /// holds.
    pub arrays: BTreeMap<ArrayId, Vec<KeyRange>>,
    pub routing: Routing,
    /// The hand-overs that tails have been told of.
    pub hand_overs: Vec<HandOver>,
    /// Suspicions held at this moment: the holder, and the server it takes for dead.
    pub suspicions: BTreeSet<(Peer, NodeId)>,
    /// Changes that tails propose when a hand-over is complete.
    pub proposals: BTreeSet<HandOver>,
    /// Servers that were named for a shard whose state never came to them.
    pub lost: BTreeSet<(NodeId, ShardRef)>,
    pub present_workers: BTreeSet<WorkerId>,
    /// Number of those whose pushes make a step.
    pub executors: u64,
    /// Medians of the service times that workers have measured.
    pub services: BTreeMap<NodeId, ServiceTime>,
    /// Steps under this routing table, as the training's leader has timed them.
    pub steps: Option<StepTimes>,
    pub plan: LoadPlan,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The routing table as it should be. All at once: it is one compare-and-swap.
    pub routing: Routing,
    /// The hand-overs that tails should work on.
    pub hand_overs: Vec<HandOver>,
    /// Shards whose servers are all gone, and missed by the registry.
    pub unrecoverable: Vec<ShardRef>,
    pub plan: LoadPlan,
}

/// Settings of a [`Coordinator`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoordinatorConfig {
    pub placement: Placement,
    /// Shards that are copied at the same time, at most.
    pub max_copies: usize,
    /// Limit of the time that the registry may miss a server that is not suspected.
    pub absence: Duration,
    /// For how long a server is not believed that suspects all of two or more others: if it is cut
    /// off itself, they have noticed, too, and said so by then.
    pub doubt: Duration,
    /// After how long a hand-over is first given up; twice as long each time after, up to 64 times.
    pub hand_over: Duration,
    /// Time that a new shard is left alone, so that its servers learn of its first epoch.
    pub birth: Duration,
    /// Arrays are born when there are this many servers.
    pub min_servers: usize,
    /// Time from one load plan to the next, at least; `None` to leave shards where the ring says.
    pub replan: Option<Duration>,
}

impl CoordinatorConfig {
    /// The usual one in a cluster whose nodes give a sign of life this often. What nodes notice
    /// goes by multiples of it; [`Self::absence`] lasts longer than the registry's leases.
    pub fn of_heartbeat(heartbeat: Duration) -> Self {
        Self {
            placement: Placement::default(),
            max_copies: 4,
            absence: Duration::from_secs(3),
            doubt: heartbeat.saturating_mul(3),
            hand_over: heartbeat.saturating_mul(300),
            birth: heartbeat.saturating_mul(10),
            min_servers: 1,
            replan: Some(Duration::from_secs(2)),
        }
    }
}

impl Default for CoordinatorConfig {
    /// With signs of life every 100 ms.
    fn default() -> Self {
        Self::of_heartbeat(Duration::from_millis(100))
    }
}

#[derive(Debug, Clone, Default)]
pub struct Coordinator {
    config: CoordinatorConfig,
    liveness: Liveness,
    since: BTreeMap<HandOver, Duration>,
    /// Number of hand-overs to each server that were given up, by range.
    given_up: BTreeMap<(ArrayId, KeyRange, NodeId), u32>,
    /// When shards that are still at their first epoch were first seen.
    born: BTreeMap<(ArrayId, Key), Duration>,
    load: LoadMemory,
    decided: Duration,
}

fn track<K: Ord>(since: &mut BTreeMap<K, Duration>, now: Duration, current: BTreeSet<K>) {
    since.retain(|key, _| current.contains(key));
    for key in current {
        since.entry(key).or_insert(now);
    }
}

impl Coordinator {
    pub fn new(config: CoordinatorConfig) -> Self {
        Self { config, liveness: Liveness::new(config.absence, config.doubt), ..Self::default() }
    }

    /// When to decide again even if nothing changes.
    pub fn next_timer(&self) -> Option<Duration> {
        let ends = |(hand_over, &since)| since + self.patience(hand_over);
        let births = self.born.values().map(|&since| since + self.config.birth);
        let replan = self.config.replan.and_then(|every| self.load.timer(self.decided, every));
        let timers = self.liveness.timers().chain(births).chain(replan);
        let timers = timers.chain(self.since.iter().map(ends));
        timers.filter(|&timer| timer > self.decided).min()
    }

    /// Decides on changes to `cluster` at the time `now`, which never goes back.
    pub fn decide(&mut self, now: Duration, cluster: &ClusterState) -> Change {
        self.decided = now;
        let live = self.liveness.servers(now, cluster);
        self.remember(now, cluster);
        let wanted = self.wanted(cluster, &live);
        let plan = wanted.as_ref().and_then(|wanted| self.replan(cluster, &live, wanted));
        let mut draft = Draft::new(cluster, live);
        draft.drop_arrays();
        draft.take_out_empty();
        draft.accept_proposals();
        if let Some(wanted) = &wanted {
            self.give_up(wanted, &mut draft);
            draft.add_new_arrays(wanted);
        }
        let wanted = wanted.as_ref().unwrap_or(&cluster.routing);
        for route in cluster.routing.routes() {
            if !draft.has_live(&route.chain) {
                if !route.chain.iter().any(|node| cluster.servers.contains_key(node)) {
                    draft.unrecoverable.insert(route.at());
                }
            } else if let Some(step) = next_step(route, wanted, &draft.live) {
                self.carry_out(&step, &mut draft);
            }
        }
        let (routing, mut hand_overs) = (draft.routing, draft.hand_overs);
        hand_overs.retain(|hand_over| routing.exact(hand_over.at).is_ok());
        let unrecoverable = draft.unrecoverable.into_iter().collect();
        let mut plan = plan.unwrap_or_else(|| cluster.plan.clone());
        let is_there =
            |array: &ArrayId| cluster.arrays.get(array).is_some_and(|shards| !shards.is_empty());
        plan.chains.retain(|(array, ..)| is_there(array));
        plan.standbys.retain(|node| draft.live.contains(node));
        Change { routing, hand_overs, unrecoverable, plan }
    }

    /// The table as it should be in the end; `None` while there are no or too few servers.
    fn wanted(&self, cluster: &ClusterState, live: &BTreeSet<NodeId>) -> Option<Routing> {
        let servers = self.weights(cluster, live);
        let is_first = cluster.routing.routes().is_empty();
        if servers.is_empty() || (is_first && servers.len() < self.config.min_servers) {
            return None;
        }
        let arrays = cluster.arrays.iter();
        let ranges =
            arrays.flat_map(|(&array, shards)| shards.iter().map(move |&range| (array, range)));
        let ring = self.config.placement.ring(&servers).routing(0, ranges).ok()?;
        if self.config.replan.is_none() {
            return Some(ring);
        }
        let replicas = self.config.placement.replicas.clamp(1, servers.len());
        planned(&ring, &cluster.plan, &servers, replicas)
    }

    fn remember(&mut self, now: Duration, cluster: &ClusterState) {
        let routing = &cluster.routing;
        let hand_overs = cluster.hand_overs.iter().copied();
        track(&mut self.since, now, hand_overs.collect());
        self.given_up.retain(|&(array, range, to), _| {
            let route = routing.route(array, range.start);
            route.is_some_and(|route| route.range == range && !route.chain.contains(&to))
        });
        let is_newborn = |route: &&Route| route.epoch == Epoch(1);
        let newborn = routing.routes().iter().filter(is_newborn);
        let newborn = newborn.map(|route| (route.array, route.range.start));
        track(&mut self.born, now, newborn.collect());
    }

    fn patience(&self, hand_over: &HandOver) -> Duration {
        let slot = (hand_over.at.array, hand_over.at.range, hand_over.to);
        let times = self.given_up.get(&slot).copied().unwrap_or(0).min(6);
        self.config.hand_over.saturating_mul(1 << times)
    }

    fn give_up(&mut self, wanted: &Routing, draft: &mut Draft<'_>) {
        for &hand_over in &draft.cluster.hand_overs {
            let HandOver { at, to } = hand_over;
            let Ok(route) = draft.cluster.routing.exact(at) else {
                continue;
            };
            let since = self.since.get(&hand_over);
            let is_late = |since| self.decided >= since + self.patience(&hand_over);
            let hangs = since.copied().is_some_and(is_late);
            let mut targets = wanted.overlapping(at.array, at.range);
            let is_wanted =
                route.head() == Some(to) || targets.any(|target| target.chain.contains(&to));
            let goes_on = draft.live.contains(&to) && is_wanted && !hangs;
            if !goes_on && draft.set_chain(at, route.chain.clone()) && hangs {
                *self.given_up.entry((at.array, at.range, to)).or_default() += 1;
            }
        }
    }

    fn carry_out(&mut self, step: &Step, draft: &mut Draft<'_>) {
        let (at, now) = (step.at, self.decided);
        let only_live_servers_leave = match &step.change {
            ChainChange::Remove(nodes) => nodes.iter().all(|node| draft.live.contains(node)),
            _ => true,
        };
        if at.epoch == Epoch(1) && only_live_servers_leave {
            let born = self.born.get(&(at.array, at.range.start));
            if born.is_none_or(|&since| now < since + self.config.birth) {
                return;
            }
        }
        match &step.change {
            ChainChange::Remove(nodes) if leaves_the_missing(draft.cluster, at, nodes) => {}
            &ChainChange::Append(to) => {
                let is_under_way = draft.hand_overs.iter().any(|hand_over| hand_over.at == at);
                let is_first = !is_under_way && !draft.touched.contains(&at);
                let has_room = draft.hand_overs.len() < self.config.max_copies;
                if is_first && has_room && draft.cluster.servers.contains_key(&to) {
                    draft.hand_overs.push(HandOver { at, to });
                    self.since.insert(HandOver { at, to }, now);
                }
            }
            ChainChange::Split(_) | ChainChange::Remove(_) => {
                draft.change(at, step.apply(&draft.routing));
            }
        }
    }
}

/// Returns true if of this shard's chain only servers would be left that the registry misses,
/// while it knows one of those that are to go: what is said of that one may be wrong, and the
/// others may be dead.
fn leaves_the_missing(cluster: &ClusterState, at: ShardRef, nodes: &[NodeId]) -> bool {
    let is_known = |node: &NodeId| cluster.servers.contains_key(node);
    let Ok(route) = cluster.routing.exact(at) else {
        return false;
    };
    let mut rest = route.chain.iter().filter(|node| !nodes.contains(node));
    nodes.iter().any(is_known) && !rest.any(is_known)
}

/// The table that comes to be; each shard of the present one is changed once at most.
struct Draft<'a> {
    cluster: &'a ClusterState,
    live: BTreeSet<NodeId>,
    routing: Routing,
    touched: BTreeSet<ShardRef>,
    hand_overs: Vec<HandOver>,
    unrecoverable: BTreeSet<ShardRef>,
}

impl<'a> Draft<'a> {
    fn new(cluster: &'a ClusterState, live: BTreeSet<NodeId>) -> Self {
        Self {
            cluster,
            live,
            routing: cluster.routing.clone(),
            touched: BTreeSet::new(),
            hand_overs: cluster.hand_overs.clone(),
            unrecoverable: BTreeSet::new(),
        }
    }

    fn has_live(&self, chain: &[NodeId]) -> bool {
        chain.iter().any(|node| self.live.contains(node))
    }

    fn change(&mut self, at: ShardRef, next: Result<Routing, RoutingError>) -> bool {
        let Ok(next) = next else { return false };
        let changed = self.touched.insert(at);
        if changed {
            self.routing = next;
        }
        changed
    }

    /// Raises the shard's epoch under this chain.
    fn set_chain(&mut self, at: ShardRef, chain: Vec<NodeId>) -> bool {
        let parts = vec![(at.range, chain)];
        let next = self.routing.replace(at, parts);
        self.change(at, next)
    }

    /// Takes servers out of chains to which they came without the shard's state.
    fn take_out_empty(&mut self) {
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

    /// Appends the servers whose copies are complete, and heads that are to be tails. The shard
    /// stands still until its epoch is raised, so it is raised in any case.
    fn accept_proposals(&mut self) {
        for &HandOver { at, to } in &self.cluster.proposals {
            let Ok(route) = self.routing.exact(at) else {
                continue;
            };
            let mut chain = route.chain.clone();
            if self.live.contains(&to) {
                chain.retain(|&node| node != to);
                chain.push(to);
            }
            self.set_chain(at, chain);
        }
    }

    fn drop_arrays(&mut self) {
        let arrays = &self.cluster.arrays;
        let is_dropped = |array| arrays.get(&array).is_some_and(Vec::is_empty);
        let mut routes = self.routing.routes().to_vec();
        routes.retain(|route| !is_dropped(route.array));
        self.set_routes(routes);
    }

    fn add_new_arrays(&mut self, wanted: &Routing) {
        let mut routes = self.routing.routes().to_vec();
        let known: BTreeSet<ArrayId> = routes.iter().map(|route| route.array).collect();
        let new = wanted.routes().iter();
        routes.extend(new.filter(|route| !known.contains(&route.array)).cloned());
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
