//! Moves of shards away from slow servers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{ClusterState, Coordinator};
use crate::load::{Plan, Servers, plan};
use crate::{LoadPlan, NodeId, Routing, next_step};

/// Part by which servers' times may differ by chance when shards have stood still for as long as
/// the wait between plans. It falls with the root of the time.
const CHANCE: f64 = 0.3;

/// Part of the slowest server's time that a load plan must save whatever is known, and seconds:
/// less is not worth copies, and such times are those of processors, of which none is seen for
/// which a server held a request.
const GAIN: f64 = 0.05;
pub(super) const GAIN_SECONDS: f64 = 3e-3;

/// Part of the slowest server's time that a plan must really have saved, or it is taken back. One
/// that only tries a server may take so many times as long.
const HELPED: f64 = 0.02;
const TRIES: f64 = 1.1;

/// Times the slowest server's time of before, from which the load counts as another one.
const CHANGED: f64 = 1.25;

/// Times the wait between plans: each that is taken back makes it longer, until the load changes.
const PATIENCE: u32 = 4;
const MOST_PATIENCE: u32 = 64;

/// Times the wait between plans for which servers with shards may be unknown.
const UNKNOWN: u32 = 5;

/// Times the wait between plans after which the load is looked at again.
const LOOKS: [u32; 8] = [1, 2, 4, UNKNOWN, 8, 16, 32, MOST_PATIENCE];

#[derive(Debug, Clone)]
pub(super) struct LoadMemory {
    /// When shards moved last, or this leader began.
    still: Option<Duration>,
    /// The slowest server's time when it was looked at last.
    slowest: f64,
    unproven: Option<Unproven>,
    patience: u32,
    /// Times at which standbys were taken in.
    pub(super) tried: BTreeMap<NodeId, Duration>,
}

/// The last plan, until it is known what it saves.
#[derive(Debug, Clone)]
struct Unproven {
    earlier: LoadPlan,
    /// The shards as they were before it.
    shards: Vec<(u64, Vec<NodeId>)>,
    /// The slowest server's time before it, and how long it may take now.
    before: f64,
    limit: f64,
    /// Part of the time that it is to save.
    gain: f64,
}

impl Default for LoadMemory {
    fn default() -> Self {
        let (slowest, tried) = (0.0, BTreeMap::new());
        Self { still: None, slowest, unproven: None, patience: 1, tried }
    }
}

impl LoadMemory {
    /// The moments at which a plan may be due.
    pub(super) fn timers(&self, every: Duration) -> impl Iterator<Item = Duration> {
        self.still.into_iter().flat_map(move |still| LOOKS.map(|times| still + every * times))
    }

    /// Takes in how long the slowest server takes now. Returns the plan before the last one if that
    /// turned out to save nothing; but not if the load has changed since, so that it would be slow
    /// now, too. What the plan was to save must be more than chance, or it is looked at again.
    fn judge(
        &mut self,
        now: Duration,
        chance: f64,
        slowest: f64,
        servers: &Servers,
    ) -> Option<LoadPlan> {
        let is_changed = slowest > std::mem::replace(&mut self.slowest, slowest) * CHANGED;
        let is_another_load =
            |plan: &Unproven| slowest.min(servers.slowest(&plan.shards)) > plan.before * CHANGED;
        let limit = |plan: &Unproven| match chance <= plan.gain {
            true => plan.limit,
            false => plan.limit * (1.0 + chance),
        };
        let is_good = |plan: &Unproven| slowest <= limit(plan) || is_another_load(plan);
        let is_judged = |plan: &mut Unproven| chance <= plan.gain || !is_good(plan);
        let last = self.unproven.take_if(is_judged);
        let had_plan = last.is_some();
        let Some(Unproven { earlier, before, .. }) = last.filter(|plan| !is_good(plan)) else {
            if is_changed || had_plan {
                self.patience = 1;
            }
            return None;
        };
        self.patience = (self.patience * PATIENCE).min(MOST_PATIENCE);
        self.still = Some(now);
        let (before_us, after_us) = (micros(slowest), micros(before));
        Some(LoadPlan { taken_back: true, before_us, after_us, ..earlier })
    }
}

/// The ring's table with the plan's chains, where they can be had: of these servers, and as long as
/// there should be `replicas`.
pub(super) fn planned(
    ring: &Routing,
    plan: &LoadPlan,
    servers: &BTreeMap<NodeId, u32>,
    replicas: usize,
) -> Option<Routing> {
    let chosen = plan.chains.iter().filter(|(.., chain)| {
        chain.len() == replicas && chain.iter().all(|node| servers.contains_key(node))
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
    /// The plan of a cluster that stands still, if another one is worth its moves: or the one
    /// before, if the last one turned out to save nothing.
    pub(super) fn replan(
        &mut self,
        cluster: &ClusterState,
        live: &BTreeSet<NodeId>,
        wanted: &Routing,
    ) -> Option<LoadPlan> {
        let (now, every) = (self.decided, self.config.replan?);
        let still = self.stands_still(every, cluster, live, wanted)?;
        let servers = self.measured(cluster, live)?;
        let routes = cluster.routing.routes();
        let shards = routes.iter().map(|route| (route.range.len(), route.chain.clone()));
        let shards = Vec::from_iter(shards);
        let chance = CHANCE * every.div_duration_f64(still).sqrt();
        let taken_back = self.load.judge(now, chance, servers.slowest(&shards), &servers);
        if taken_back.is_some() || still < every * self.load.patience {
            return taken_back;
        }
        let plan = plan(&shards, &servers, |before, after| {
            after < before * (1.0 - GAIN.max(chance)) && after < before - GAIN_SECONDS
        });
        let (plan, standbys) = plan
            .map(|plan| (plan, cluster.plan.standbys.clone()))
            .or_else(|| self.take_in(every, cluster, live, &shards))
            .or_else(|| self.let_go(cluster, live, &shards))?;
        let Plan { before, after, .. } = plan;
        self.load.still = Some(now);
        let helped = before * (1.0 - HELPED);
        let limit = match standbys == cluster.plan.standbys {
            true if after < helped => helped,
            true => after * TRIES,
            false => before * TRIES,
        };
        let moved = shards.iter().zip(&plan.chains).filter(|((_, old), new)| old != *new).count();
        let earlier = cluster.plan.clone();
        let gain = GAIN.max(1.0 - after / before);
        self.load.unproven = Some(Unproven { earlier, shards, before, limit, gain });
        let chains = routes.iter().zip(plan.chains);
        let chains = chains.map(|(route, chain)| (route.array, route.range, chain)).collect();
        let (before_us, after_us) = (micros(before), micros(after));
        Some(LoadPlan { chains, standbys, taken_back: false, moved, before_us, after_us })
    }

    /// Returns for how long no shard has moved, if that is long enough for the servers to be
    /// known: what was measured while shards moved is forgotten.
    fn stands_still(
        &mut self,
        every: Duration,
        cluster: &ClusterState,
        live: &BTreeSet<NodeId>,
        wanted: &Routing,
    ) -> Option<Duration> {
        let (now, services) = (self.decided, &cluster.services);
        if services.is_empty() {
            self.load.still = None;
            return None;
        }
        let routes = cluster.routing.routes().iter();
        let mut steps = routes.clone().filter_map(|route| next_step(route, wanted, live));
        if !cluster.hand_overs.is_empty() || steps.next().is_some() {
            self.load.still = Some(now);
            return None;
        }
        let still = now.saturating_sub(*self.load.still.get_or_insert(now));
        let mut members = routes.flat_map(|route| &route.chain);
        let are_known = members.all(|node| services.contains_key(node));
        let wait = if are_known { every } else { every * UNKNOWN };
        (still >= wait).then_some(still)
    }

    /// The servers that may hold shards. One that is not known counts as good as most.
    pub(super) fn measured(
        &self,
        cluster: &ClusterState,
        live: &BTreeSet<NodeId>,
    ) -> Option<Servers> {
        let services = &cluster.services;
        let mut known = Vec::from_iter(services.values().copied());
        known.sort_unstable();
        let usual = *known.get(known.len() / 2)?;
        let named = self.weights(cluster, live).into_keys();
        let time = |node| (node, services.get(&node).copied().unwrap_or(usual));
        let untried = live.iter().copied().filter(|node| !services.contains_key(node)).collect();
        Some(Servers { times: named.map(time).collect(), untried, executors: cluster.executors })
    }
}

fn micros(seconds: f64) -> u64 {
    (seconds * 1e6) as u64
}
