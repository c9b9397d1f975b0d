//! Moves of shards away from slow servers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{ClusterState, Coordinator};
use crate::load::{Plan, Servers, plan};
use crate::{LoadPlan, NodeId, Routing, StepTimes, median, next_step};

/// Part by which servers' times may differ by chance when shards have stood still for as long as
/// the wait between plans. It falls with the root of the time.
const CHANCE: f64 = 0.3;

/// Part of the slowest server's time that a load plan must save whatever is known, and seconds:
/// less is not worth copies, and such times are those of processors, of which none is seen for
/// which a server held a request.
const GAIN: f64 = 0.05;
pub(super) const GAIN_SECONDS: f64 = 3e-3;

/// Part by which steps must be shorter under a plan for it to count as good; and by which they must
/// be longer for it to be taken back, as moves back cost as much.
const HELPED: f64 = 0.02;
const HARMED: f64 = 0.05;

/// Times the slowest server's time of before, from which it has become slower by itself.
const SLOWER: f64 = 1.1;

/// Times the slowest server's time of before, from which the load counts as another one.
const CHANGED: f64 = 1.25;

/// Factor by which each plan after the first makes the wait for the next one longer, until steps
/// are shorter or the load changes; and the most plans for which it does.
const PATIENCE: u32 = 4;
const MOST_PLANS: u32 = 4;

/// Times the wait between plans for which servers with shards may be unknown.
const UNKNOWN: u32 = 5;

#[derive(Debug, Clone, Default)]
pub(super) struct LoadMemory {
    /// When shards moved last, or this leader began.
    still: Option<Duration>,
    /// The slowest server's time when it was looked at last.
    slowest: f64,
    unproven: Option<Unproven>,
    /// Plans that make the wait longer.
    plans: u32,
    /// Times at which standbys were taken in.
    pub(super) tried: BTreeMap<NodeId, Duration>,
}

/// The last plan, until it is known what it saves.
#[derive(Debug, Clone)]
struct Unproven {
    earlier: LoadPlan,
    /// The shards as they were before it, and the slowest server's time.
    shards: Vec<(u64, Vec<NodeId>)>,
    before: f64,
    plans: u32,
}

impl LoadMemory {
    /// The next moment at which a plan may be due.
    pub(super) fn timer(&self, now: Duration, every: Duration) -> Option<Duration> {
        let waits = |still| now.saturating_sub(still).div_duration_f64(every) as u32;
        self.still.map(|still| still + every * waits(still).saturating_add(1))
    }

    /// Takes in how long the slowest server takes now, and steps. Returns the plan before the last
    /// one if steps are longer since; but not if the load has changed, so that they would be with
    /// that one, too.
    fn judge(
        &mut self,
        now: Duration,
        steps: Option<StepTimes>,
        slowest: f64,
        servers: &Servers,
    ) -> Option<LoadPlan> {
        if slowest > std::mem::replace(&mut self.slowest, slowest) * CHANGED {
            self.plans = 0;
        }
        let change = steps?.change()?;
        let is_known = |_: &mut Unproven| !(-HELPED..HARMED).contains(&change);
        let Unproven { earlier, shards, before, plans } = self.unproven.take_if(is_known)?;
        if change < 0.0 || slowest.min(servers.slowest(&shards)) > before * SLOWER {
            self.plans = 0;
            return None;
        }
        self.plans = plans.max(1) + 1;
        self.still = Some(now);
        let StepTimes { before_us, after_us, .. } = steps?;
        Some(LoadPlan { taken_back: true, before_us: after_us, after_us: before_us, ..earlier })
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
        let taken_back = self.load.judge(now, cluster.steps, servers.slowest(&shards), &servers);
        let patience = PATIENCE.pow(self.load.plans.clamp(1, MOST_PLANS) - 1);
        if taken_back.is_some() || still < every * patience {
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
        let moved = shards.iter().zip(&plan.chains).filter(|((_, old), new)| old != *new).count();
        let earlier = cluster.plan.clone();
        let plans = self.load.plans;
        // One that only tries a server saves nothing yet.
        self.load.plans += u32::from(after < before * (1.0 - GAIN));
        self.load.unproven = Some(Unproven { earlier, shards, before, plans });
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
        let usual = median(services.values().copied())?;
        let named = self.weights(cluster, live).into_keys();
        let time = |node| (node, services.get(&node).copied().unwrap_or(usual));
        let untried = live.iter().copied().filter(|node| !services.contains_key(node)).collect();
        Some(Servers { times: named.map(time).collect(), untried, executors: cluster.executors })
    }
}

fn micros(seconds: f64) -> u64 {
    (seconds * 1e6) as u64
}
