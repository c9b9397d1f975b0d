//! Runs in which a `Coordinator` decides what becomes of the routing table: servers join, leave,
//! weigh more or less and fall silent, leaders change and are overtaken, hand-overs hang.

use super::*;

/// A decision on its way to the registry, and the revision that it is based on.
pub type Decision = (u64, Change);

pub struct Leading {
    config: CoordinatorConfig,
    coordinator: Coordinator,
    /// State of the registry, but for the routing table and the list of workers.
    cluster: ClusterState,
    /// Raised by every change of the table or the hand-overs.
    revision: u64,
    /// Decisions on their way.
    under_way: usize,
    /// Servers that are being emptied.
    leaving: BTreeSet<NodeId>,
    /// Since when the registry misses workers.
    missing: BTreeMap<WorkerId, Duration>,
}

impl Leading {
    pub fn new(rng: &mut ChaCha8Rng) -> Self {
        let placement = Placement { points: 4, replicas: rng.random_range(2..=3) };
        let config = CoordinatorConfig {
            placement,
            max_copies: rng.random_range(1..4),
            absence: ms(60),
            doubt: ms(5),
            hand_over: ms(30),
            birth: Duration::ZERO,
            min_servers: 1,
            replan: Some(ms(10)),
        };
        let shards = rng.random_range(1..4);
        let cluster = ClusterState {
            arrays: [COUNTED, TRAINED, FACTORED]
                .map(|array| (array, ALL.cut(shards).collect()))
                .into(),
            ..ClusterState::default()
        };
        Self {
            config,
            coordinator: Coordinator::new(config),
            cluster,
            revision: 0,
            under_way: 0,
            leaving: BTreeSet::new(),
            missing: BTreeMap::new(),
        }
    }

    fn cluster(&self, registry: &Registry) -> ClusterState {
        ClusterState { routing: registry.routing.clone(), ..self.cluster.clone() }
    }
}

/// Suspicions of this server, and by it, are over.
fn heal(cluster: &mut ClusterState, node: NodeId) {
    cluster.suspicions.retain(|&(by, of)| by != Peer::Server(node) && of != node);
}

impl Simulation {
    /// The registry hears something.
    pub fn report<R>(&mut self, report: impl FnOnce(&mut ClusterState) -> R) {
        if let Some(leading) = &mut self.leading {
            report(&mut leading.cluster);
        }
    }

    pub fn healed(&mut self, node: NodeId) {
        self.report(|cluster| heal(cluster, node));
    }

    /// The registry has not heard of a server for too long.
    pub fn lapsed(&mut self, node: NodeId) {
        self.healed(node);
        if let Some(leading) = &mut self.leading {
            leading.cluster.servers.remove(&node);
            leading.leaving.remove(&node);
        }
    }

    /// Makes the first table.
    pub fn begin_to_lead(&mut self) {
        if let Some(leading) = &mut self.leading {
            let cluster = leading.cluster.clone();
            self.registry.routing = leading.coordinator.decide(Duration::ZERO, &cluster).routing;
            self.at(1_000, Due::Lead);
        }
    }

    /// Takes workers off the list that the registry has missed for long.
    fn drop_gone_workers(&mut self, now: Duration) {
        let Some(leading) = &mut self.leading else {
            return;
        };
        let (present, missing) = (&leading.cluster.present_workers, &mut leading.missing);
        missing.retain(|worker, _| !present.contains(worker));
        let members = &mut self.registry.members;
        let before = members.workers.len();
        members.workers.retain(|(worker, _)| {
            present.contains(worker) || now < *missing.entry(*worker).or_insert(now) + ms(60)
        });
        if members.workers.len() < before {
            members.version += 1;
            self.broadcast(false);
        }
    }

    pub fn lead(&mut self) {
        self.drop_gone_workers(self.time());
        let now = self.time();
        let Some(leading) = &mut self.leading else {
            return;
        };
        let cluster = leading.cluster(&self.registry);
        let change = leading.coordinator.decide(now, &cluster);
        let after_us = self.rng.random_range(500..2_000);
        let rank = if after_us > 1_000 { 900 } else { -900 };
        leading.cluster.steps = Some(StepTimes { before_us: 1_000, after_us, rank });
        for new in change.hand_overs.iter().filter(|new| !cluster.hand_overs.contains(new)) {
            // Otherwise the shard stands still for ever.
            assert!(cluster.servers.contains_key(&new.to), "{new:?} to none");
        }
        let is_new = change.routing != cluster.routing
            || change.hand_overs != cluster.hand_overs
            || change.plan != cluster.plan;
        if is_new {
            leading.under_way += 1;
            let decision = (leading.revision, change);
            let delay = self.delay();
            self.at(delay, Due::Commit(Box::new(decision)));
        }
        let next = self.rng.random_range(1_000..8_000);
        self.at(next, Due::Lead);
    }

    /// Compares and swaps the registry's table.
    pub fn commit(&mut self, (revision, change): Decision) {
        let Some(leading) = &mut self.leading else {
            return;
        };
        leading.under_way -= 1;
        if leading.revision != revision {
            return self.count("overtaken");
        }
        let before = std::mem::replace(&mut self.registry.routing, change.routing);
        let routing = &self.registry.routing;
        let mut events = vec!["decision"];
        for old in before.routes() {
            let new = routing.route(old.array, old.range.start);
            let Some(new) = new.filter(|new| new.epoch > old.epoch) else {
                continue;
            };
            if new.range != old.range {
                events.push("split");
            } else if new.chain == old.chain {
                events.push("given up");
            }
            if new.chain.len() > old.chain.len() {
                events.push("join");
            }
            if new.chain.first() != old.chain.first() && new.chain.last() == old.chain.first() {
                events.push("head became tail");
            }
        }
        leading.cluster.hand_overs = change.hand_overs;
        if leading.cluster.plan.chains != change.plan.chains {
            events.push("load plan");
        }
        if leading.cluster.plan.standbys != change.plan.standbys {
            events.push("standby");
        }
        if change.plan.taken_back && !leading.cluster.plan.taken_back {
            events.push("plan taken back");
        }
        leading.cluster.plan = change.plan;
        leading.revision += 1;
        let is_current = |at: ShardRef| {
            let route = routing.route(at.array, at.range.start);
            route.is_some_and(|route| route.epoch <= at.epoch)
        };
        leading.cluster.proposals.retain(|hand_over| is_current(hand_over.at));
        leading.cluster.lost.retain(|&(_, at)| is_current(at));
        let is_empty = |node: &NodeId| !routing.routes().iter().any(|r| r.chain.contains(node));
        let emptied: Vec<NodeId> = leading.leaving.iter().copied().filter(is_empty).collect();
        for node in emptied {
            self.lapsed(node);
            self.servers.remove(&node);
            self.cut_off.remove(&node);
            events.push("leave");
        }
        events.into_iter().for_each(|event| self.count(event));
        self.broadcast(false);
    }

    /// Tails hear what they should hand over, or do not.
    pub fn tell_of_hand_overs(&mut self) {
        let Some(leading) = &self.leading else { return };
        for HandOver { at, to } in leading.cluster.hand_overs.clone() {
            let route = self.registry.routing.route(at.array, at.range.start);
            let head = route.and_then(Route::head).filter(|&head| head == to);
            let from = head.or(route.and_then(Route::tail));
            let Some(from) = from.filter(|from| !self.cut_off.contains(from)) else {
                continue;
            };
            if !self.rng.random_bool(self.loss) {
                let delay = self.delay();
                self.at(delay, Due::ToServer(from, Event::HandOver { at, to }));
            }
        }
    }

    /// Servers notice that they do not hear of one another.
    pub fn suspect(&mut self, node: NodeId) {
        let mut others = self.alive();
        let is_cut_off = self.cut_off.contains(&node);
        let Some(leading) = &mut self.leading else {
            return;
        };
        if others.remove(&node) && !is_cut_off {
            // It is back already.
            return;
        }
        let suspicions = &mut leading.cluster.suspicions;
        for other in others {
            if self.rng.random_bool(0.7) {
                suspicions.insert((Peer::Server(other), node));
            }
            if is_cut_off && self.rng.random_bool(0.5) {
                suspicions.insert((Peer::Server(node), other));
            }
        }
    }

    /// Returns true if the table is as the leader wants it.
    pub fn has_led(&mut self) -> bool {
        let now = self.time();
        let Some(leading) = &self.leading else {
            return true;
        };
        let cluster = leading.cluster(&self.registry);
        let change = leading.coordinator.clone().decide(now, &cluster);
        assert_eq!(change.unrecoverable, [], "a shard is lost");
        change.routing == cluster.routing && change.hand_overs.is_empty() && leading.under_way == 0
    }

    pub fn try_the_leader(&mut self, kind: u32, node: NodeId) {
        let alive = self.alive();
        let Some(leading) = &mut self.leading else {
            return;
        };
        let cluster = &mut leading.cluster;
        // One more fault is survivable if the registry knows of all those before.
        let is_quiet = leading.under_way == 0
            && cluster.suspicions.is_empty()
            && cluster.servers.keys().eq(&alive)
            && self.cut_off.is_empty();
        let is_survivable = is_quiet && alive.len() > 3 && self.registry.can_lose(node, &alive);
        let is_leaving = leading.leaving.contains(&node);
        match kind {
            0 | 1 if is_survivable => {
                self.crash(node);
                let lease = self.rng.random_range(20_000..90_000);
                self.at(lease, Due::Lapse(node));
            }
            2 | 3 if is_survivable => self.partition(node),
            4 => {
                let array = [COUNTED, TRAINED, FACTORED][self.rng.random_range(0..3)];
                cluster.arrays.insert(array, ALL.cut(self.rng.random_range(1..5)).collect());
            }
            5 if alive.len() < 7 => self.start_server(),
            6 if alive.len() > 4 && leading.leaving.is_empty() => {
                cluster.servers.entry(node).and_modify(|weight| *weight = 0);
                leading.leaving.insert(node);
            }
            7 if !is_leaving => {
                let new = self.rng.random_range(1..4);
                cluster.servers.entry(node).and_modify(|weight| *weight = new);
            }
            9 => {
                let row_ns = 1 << self.rng.random_range(15..28);
                cluster.services.insert(node, ServiceTime { push_ns: row_ns, read_ns: row_ns });
            }
            12 => cluster.standbys = &cluster.standbys ^ &[node].into(),
            8 => {
                leading.coordinator = Coordinator::new(leading.config);
                self.count("new leader");
            }
            _ => {}
        }
    }
}
