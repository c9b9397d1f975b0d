//! Runs in which a `Coordinator` decides what becomes of the routing table: servers join, leave,
//! weigh more or less and fall silent, leaders change and are overtaken, hand-overs hang.

use std::collections::BTreeSet;
use std::time::Duration;

use parapet_parameter_server::{
    Change, ClusterState, Coordinator, CoordinatorConfig, Event, HandOver, KeyRange, NodeId, Peer,
    Placement, Routing, ShardRef, WorkerId,
};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::{COUNTED, Due, KEYS, Simulation, TRAINED};

/// A decision on its way to the registry.
pub struct Decision {
    /// Revision that it is based on.
    revision: u64,
    change: Change,
}

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
}

impl Leading {
    pub fn new(rng: &mut ChaCha8Rng) -> Self {
        let config = CoordinatorConfig {
            placement: Placement {
                points: 4,
                replicas: rng.random_range(2..=3),
            },
            max_copies: rng.random_range(1..4),
            absence: Duration::from_millis(60),
            doubt: Duration::from_millis(5),
            hand_over: Duration::from_millis(30),
            birth: Duration::ZERO,
            min_servers: 1,
        };
        let shards = rng.random_range(1..4);
        let arrays = [COUNTED, TRAINED].map(|array| (array, (KeyRange::new(0, KEYS), shards)));
        let cluster = ClusterState {
            arrays: arrays.into(),
            ..ClusterState::default()
        };
        let (coordinator, leaving) = (Coordinator::new(config), BTreeSet::new());
        Self {
            config,
            coordinator,
            cluster,
            revision: 0,
            under_way: 0,
            leaving,
        }
    }

    pub fn joined(&mut self, node: NodeId) {
        self.cluster.servers.insert(node, 1);
    }

    pub fn hears_of(&mut self, worker: WorkerId) {
        self.cluster.present_workers.insert(worker);
    }

    pub fn misses(&mut self, worker: WorkerId) {
        self.cluster.present_workers.remove(&worker);
    }

    pub fn proposed(&mut self, at: ShardRef, to: NodeId) {
        self.cluster.proposals.insert(HandOver { at, to });
    }

    pub fn lost(&mut self, node: NodeId, at: ShardRef) {
        self.cluster.lost.insert((node, at));
    }

    pub fn healed(&mut self, node: NodeId) {
        self.cluster
            .suspicions
            .retain(|&(by, of)| by != Peer::Server(node) && of != node);
    }

    pub fn lapsed(&mut self, node: NodeId) {
        self.cluster.servers.remove(&node);
        self.healed(node);
        self.leaving.remove(&node);
    }

    /// Returns true if one more fault is survivable: the registry knows of all those before.
    fn is_quiet(&self, alive: &BTreeSet<NodeId>) -> bool {
        self.under_way == 0
            && self.cluster.suspicions.is_empty()
            && self
                .cluster
                .servers
                .keys()
                .copied()
                .eq(alive.iter().copied())
    }

    fn cluster(&self, routing: &Routing, workers: impl Iterator<Item = WorkerId>) -> ClusterState {
        ClusterState {
            routing: routing.clone(),
            workers: workers.collect(),
            ..self.cluster.clone()
        }
    }
}

impl Simulation {
    /// The registry hears something.
    pub fn report(&mut self, report: impl FnOnce(&mut Leading)) {
        self.leading.as_mut().map(report);
    }

    /// Makes the first table.
    pub fn begin_to_lead(&mut self) {
        let Some(leading) = &mut self.leading else {
            return;
        };
        let cluster = leading.cluster(&Routing::default(), std::iter::empty());
        self.registry.routing = leading.coordinator.decide(Duration::ZERO, &cluster).routing;
        self.at(1_000, Due::Lead);
    }

    pub fn lead(&mut self) {
        let now = self.time();
        let Some(leading) = &mut self.leading else {
            return;
        };
        let workers = self.registry.members.iter().map(|&(worker, _)| worker);
        let cluster = leading.cluster(&self.registry.routing, workers);
        let change = leading.coordinator.decide(now, &cluster);
        for HandOver { at, to } in change
            .hand_overs
            .iter()
            .filter(|new| !cluster.hand_overs.contains(new))
        {
            // Otherwise the shard stands still for ever.
            assert!(
                cluster.servers.contains_key(to),
                "{at:?} is to be copied to {to}, which is not there"
            );
        }
        let is_new = change.routing != cluster.routing
            || change.hand_overs != cluster.hand_overs
            || !change.gone_workers.is_empty();
        if is_new {
            leading.under_way += 1;
            let decision = Decision {
                revision: leading.revision,
                change,
            };
            let delay = self.delay();
            self.at(delay, Due::Commit(Box::new(decision)));
        }
        let next = self.rng.random_range(1_000..8_000);
        self.at(next, Due::Lead);
    }

    /// Compares and swaps the registry's table.
    pub fn commit(&mut self, Decision { revision, change }: Decision) {
        let Some(leading) = &mut self.leading else {
            return;
        };
        leading.under_way -= 1;
        if leading.revision != revision {
            self.tally.overtaken += 1;
            return;
        }
        let before = std::mem::replace(&mut self.registry.routing, change.routing);
        let routing = &self.registry.routing;
        for old in before.routes() {
            let Some(new) = routing
                .route(old.array, old.range.start)
                .filter(|new| new.epoch > old.epoch)
            else {
                continue;
            };
            self.tally.splits += usize::from(new.range != old.range);
            self.tally.joins += usize::from(new.chain.len() > old.chain.len());
            self.tally.given_up += usize::from(new.range == old.range && new.chain == old.chain);
        }
        leading.cluster.hand_overs = change.hand_overs;
        leading.revision += 1;
        let is_current = |at: ShardRef| {
            routing
                .route(at.array, at.range.start)
                .is_some_and(|r| r.epoch <= at.epoch)
        };
        leading
            .cluster
            .proposals
            .retain(|hand_over| is_current(hand_over.at));
        leading.cluster.lost.retain(|&(_, at)| is_current(at));
        self.tally.decisions += 1;
        if !change.gone_workers.is_empty() {
            self.registry
                .members
                .retain(|(worker, _)| !change.gone_workers.contains(worker));
            self.registry.members_version += 1;
        }
        let emptied: Vec<NodeId> = leading
            .leaving
            .iter()
            .copied()
            .filter(|node| {
                !routing
                    .routes()
                    .iter()
                    .any(|route| route.chain.contains(node))
            })
            .collect();
        for node in emptied {
            leading.lapsed(node);
            self.servers.remove(&node);
            self.cut_off.remove(&node);
            self.tally.leaves += 1;
        }
        self.broadcast(false);
    }

    /// Tails hear what they should hand over, or do not.
    pub fn tell_of_hand_overs(&mut self) {
        let Some(leading) = &self.leading else { return };
        let hand_overs = leading.cluster.hand_overs.clone();
        for HandOver { at, to } in hand_overs {
            let tail = self
                .registry
                .routing
                .route(at.array, at.range.start)
                .and_then(|route| route.tail());
            let Some(tail) = tail.filter(|tail| !self.cut_off.contains(tail)) else {
                continue;
            };
            if !self.rng.random_bool(self.loss) {
                let delay = self.delay();
                self.at(delay, Due::ToServer(tail, Event::HandOver { at, to }));
            }
        }
    }

    /// Servers notice that they do not hear of one another.
    pub fn suspect(&mut self, node: NodeId) {
        let others: Vec<NodeId> = self
            .servers
            .keys()
            .copied()
            .filter(|&other| other != node)
            .collect();
        let is_cut_off = self.cut_off.contains(&node);
        let Some(leading) = &mut self.leading else {
            return;
        };
        if !is_cut_off && self.servers.contains_key(&node) {
            // It is back already.
            return;
        }
        for other in others {
            if self.rng.random_bool(0.7) {
                leading
                    .cluster
                    .suspicions
                    .insert((Peer::Server(other), node));
            }
            if is_cut_off && self.rng.random_bool(0.5) {
                leading
                    .cluster
                    .suspicions
                    .insert((Peer::Server(node), other));
            }
        }
    }

    /// The end of what goes wrong.
    pub fn calm_down(&mut self) {
        self.report(|leading| leading.cluster.suspicions.clear());
    }

    /// Returns true if the table is as the leader wants it.
    pub fn has_led(&mut self) -> bool {
        let now = self.time();
        let Some(leading) = &self.leading else {
            return true;
        };
        let workers = self.registry.members.iter().map(|&(worker, _)| worker);
        let cluster = leading.cluster(&self.registry.routing, workers);
        let change = leading.coordinator.clone().decide(now, &cluster);
        assert!(
            change.unrecoverable.is_empty(),
            "a shard is lost: {:?}",
            change.unrecoverable
        );
        change.routing == cluster.routing && change.hand_overs.is_empty() && leading.under_way == 0
    }

    pub fn try_the_leader(&mut self, kind: u32, node: NodeId) {
        let alive: BTreeSet<NodeId> = self.servers.keys().copied().collect();
        let Some(leading) = &mut self.leading else {
            return;
        };
        let survivable = leading.is_quiet(&alive)
            && self.cut_off.is_empty()
            && alive.len() > 3
            && self.registry.can_lose(node, &alive);
        match kind {
            0 | 1 if survivable => {
                self.tally.crashes += 1;
                self.servers.remove(&node);
                let detection = self.rng.random_range(1_000..30_000);
                self.at(detection, Due::Suspect(node));
                let lease = self.rng.random_range(20_000..90_000);
                self.at(lease, Due::Lapse(node));
                self.start_server();
            }
            2 | 3 if survivable => {
                self.tally.partitions += 1;
                self.cut_off.insert(node);
                let suspicion = self.rng.random_range(500..10_000);
                let heal = self.rng.random_range(10_000..80_000);
                self.at(suspicion, Due::Suspect(node));
                self.at(heal, Due::Heal(node));
            }
            4 => {
                let array = if self.rng.random() { COUNTED } else { TRAINED };
                let shards = self.rng.random_range(1..5);
                leading
                    .cluster
                    .arrays
                    .insert(array, (KeyRange::new(0, KEYS), shards));
            }
            5 if alive.len() < 7 => self.start_server(),
            6 if alive.len() > 4 && leading.leaving.is_empty() => {
                leading
                    .cluster
                    .servers
                    .entry(node)
                    .and_modify(|weight| *weight = 0);
                leading.leaving.insert(node);
            }
            7 => {
                let weight = self.rng.random_range(1..4);
                if !leading.leaving.contains(&node) {
                    leading
                        .cluster
                        .servers
                        .entry(node)
                        .and_modify(|held| *held = weight);
                }
            }
            8 => {
                self.tally.new_leaders += 1;
                leading.coordinator = Coordinator::new(leading.config);
            }
            _ => {}
        }
    }
}
