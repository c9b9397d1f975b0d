//! The registry, and what goes wrong.

use std::collections::{BTreeMap, BTreeSet};

use parapet_parameter_server::{
    ArrayId, Clock, Epoch, Event, KeyRange, Message, NodeId, Peer, Route, Routing, Server,
    ShardRef, WorkerId,
};
use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use super::{Bug, COUNTED, Due, KEYS, LAST, Simulation, TRAINED};

pub struct Registry {
    pub routing: Routing,
    pub members: Vec<(WorkerId, Clock)>,
    pub members_version: u64,
    /// Hand-overs that were asked for, and when.
    asked: BTreeMap<(ArrayId, KeyRange, Epoch), u64>,
}

impl Registry {
    pub fn new(rng: &mut ChaCha8Rng, servers: u64) -> Self {
        let mut route = |array| {
            let length = rng.random_range(1..=3);
            let first = rng.random_range(0..servers);
            let chain = (0..length).map(|i| NodeId((first + i) % servers)).collect();
            Route {
                array,
                range: KeyRange::new(0, KEYS),
                epoch: Epoch(1),
                chain,
            }
        };
        let routing = Routing::new(1, vec![route(COUNTED), route(TRAINED)]).unwrap();
        Self {
            routing,
            members: Vec::new(),
            members_version: 0,
            asked: BTreeMap::new(),
        }
    }

    fn replace(&mut self, route: &Route, parts: Vec<(KeyRange, Vec<NodeId>)>) -> bool {
        let changed = self
            .routing
            .replace(route.array, route.range, route.epoch, parts);
        let ok = changed.is_ok();
        self.routing = changed.unwrap_or_else(|_| self.routing.clone());
        ok
    }

    /// Appends a server to a chain, if the shard has not changed since it was copied.
    pub fn append(&mut self, at: ShardRef, add: NodeId) -> bool {
        let same = |route: &&Route| {
            (route.array, route.range, route.epoch) == (at.array, at.range, at.epoch)
        };
        let Some(route) = self.routing.routes().iter().find(same).cloned() else {
            return false;
        };
        let chain = route.chain.iter().copied().chain([add]).collect();
        self.replace(&route, vec![(route.range, chain)])
    }

    pub fn remove_from(&mut self, array: ArrayId, range: KeyRange, epoch: Epoch, node: NodeId) {
        let same =
            |route: &&Route| (route.array, route.range, route.epoch) == (array, range, epoch);
        if let Some(route) = self.routing.routes().iter().find(same).cloned() {
            let rest: Vec<NodeId> = route
                .chain
                .iter()
                .copied()
                .filter(|&other| other != node)
                .collect();
            self.replace(&route, vec![(range, rest)]);
        }
    }

    /// Takes a server out of every chain in which another one is alive.
    pub fn remove(&mut self, node: NodeId, alive: &BTreeSet<NodeId>) {
        for route in self.routing.routes().to_vec() {
            let others = route
                .chain
                .iter()
                .any(|other| *other != node && alive.contains(other));
            if route.chain.contains(&node) && others {
                self.remove_from(route.array, route.range, route.epoch, node);
            }
        }
    }

    /// Returns true if every shard of the server is also on another one that is alive.
    pub fn can_lose(&self, node: NodeId, alive: &BTreeSet<NodeId>) -> bool {
        let mut routes = self
            .routing
            .routes()
            .iter()
            .filter(|route| route.chain.contains(&node));
        routes.all(|route| {
            route
                .chain
                .iter()
                .any(|other| *other != node && alive.contains(other))
        })
    }
}

impl Simulation {
    pub fn start_server(&mut self) {
        let node = NodeId(self.next_server);
        self.next_server += 1;
        self.servers
            .insert(node, Server::new(node, self.config, self.arrays.clone()));
        self.report(|leading| leading.joined(node));
    }

    /// Tells everyone of the tables: at the start surely and at once, later with delays, or
    /// not at all.
    pub fn broadcast(&mut self, surely: bool) {
        let routing = self.registry.routing.clone();
        let members = Event::Members {
            version: self.registry.members_version,
            workers: self.registry.members.clone(),
        };
        let registry = Peer::Server(NodeId(u64::MAX));
        let nodes: Vec<NodeId> = self.servers.keys().copied().collect();
        for node in nodes {
            let table = Event::Received {
                from: registry,
                message: Message::Routing(routing.clone()),
            };
            for event in [table, members.clone()] {
                if surely || !self.cut_off.contains(&node) && !self.rng.random_bool(self.loss) {
                    let delay = if surely { 0 } else { self.delay() };
                    self.at(delay, Due::ToServer(node, event));
                }
            }
        }
        self.tell_of_hand_overs();
        let workers: Vec<WorkerId> = self.workers.keys().copied().collect();
        for worker in workers {
            if surely || !self.rng.random_bool(self.loss) {
                let delay = if surely { 0 } else { self.delay() };
                self.at(
                    delay,
                    Due::Deliver(
                        registry,
                        Peer::Worker(worker),
                        Message::Routing(routing.clone()),
                    ),
                );
            }
        }
    }

    /// Maintains the registry: removes the dead, ends hand-overs that hang, tells everyone.
    pub fn upkeep(&mut self) {
        if self.leading.is_some() {
            return self.broadcast(false);
        }
        let alive: BTreeSet<NodeId> = self.servers.keys().copied().collect();
        for route in self.registry.routing.routes().to_vec() {
            for node in route.chain.iter().filter(|node| !alive.contains(node)) {
                self.registry.remove(*node, &alive);
            }
        }
        let now = self.now;
        for route in self.registry.routing.routes().to_vec() {
            let asked = self
                .registry
                .asked
                .remove(&(route.array, route.range, route.epoch));
            match asked {
                Some(since) if now > since + 60_000 => {
                    self.registry
                        .replace(&route, vec![(route.range, route.chain.clone())]);
                }
                Some(since) => {
                    self.registry
                        .asked
                        .insert((route.array, route.range, route.epoch), since);
                }
                None => {}
            }
        }
        self.broadcast(false);
    }

    pub fn inject_fault(&mut self) {
        let alive: BTreeSet<NodeId> = self.servers.keys().copied().collect();
        let nodes: Vec<NodeId> = alive.iter().copied().collect();
        let &node = nodes.choose(&mut self.rng).unwrap();
        let kind = self.rng.random_range(0..12);
        if self.leading.is_some() && kind < 10 {
            return self.try_the_leader(kind, node);
        }
        let routes = self.registry.routing.routes().to_vec();
        let route = routes.choose(&mut self.rng).unwrap().clone();
        match kind {
            0 if self.registry.can_lose(node, &alive) && nodes.len() > 3 => self.crash(node),
            1 if self.registry.can_lose(node, &alive) && self.cut_off.is_empty() => {
                self.partition(node)
            }
            2 if route.range.len() > 2 && routes.len() < 7 => {
                self.tally.splits += 1;
                let key = self
                    .rng
                    .random_range(route.range.start + 1..route.range.end);
                let parts = vec![
                    (KeyRange::new(route.range.start, key), route.chain.clone()),
                    (KeyRange::new(key, route.range.end), route.chain.clone()),
                ];
                self.registry.replace(&route, parts);
                self.broadcast(false);
            }
            3..=7 if route.chain.len() < 3 && !route.chain.contains(&node) => {
                self.ask_to_hand_over(&route, node);
            }
            // Moves: the newcomer stays, an old one goes.
            8 | 9 => {
                let &gone = route.chain.choose(&mut self.rng).unwrap();
                if route
                    .chain
                    .iter()
                    .any(|other| *other != gone && alive.contains(other))
                {
                    self.registry
                        .remove_from(route.array, route.range, route.epoch, gone);
                    self.broadcast(false);
                }
            }
            10 if self.next_worker < super::COLUMNS as u64 => {
                let joined = self
                    .workers
                    .values()
                    .map(|worker| worker.clock)
                    .max()
                    .unwrap();
                if joined < LAST {
                    self.tally.worker_changes += 1;
                    self.start_worker(joined);
                    self.broadcast(false);
                }
            }
            11 if self.registry.members.len() > 1
                && self.rng.random_bool(0.3)
                && self.bug != Some(Bug::ReadsTooEarly) =>
            {
                let &(worker, _) = self.registry.members.choose(&mut self.rng).unwrap();
                self.lose_worker(worker);
            }
            _ => {}
        }
    }

    fn crash(&mut self, node: NodeId) {
        self.tally.crashes += 1;
        self.servers.remove(&node);
        self.cut_off.remove(&node);
        let detection = self.rng.random_range(1_000..30_000);
        self.at(detection, Due::Suspect(node));
        self.start_server();
    }

    fn partition(&mut self, node: NodeId) {
        self.tally.partitions += 1;
        self.cut_off.insert(node);
        let (suspicion, heal) = (
            self.rng.random_range(500..10_000),
            self.rng.random_range(10_000..80_000),
        );
        self.at(suspicion, Due::Suspect(node));
        self.at(heal, Due::Heal(node));
    }

    fn ask_to_hand_over(&mut self, route: &Route, node: NodeId) {
        let at = ShardRef {
            array: route.array,
            range: route.range,
            epoch: route.epoch,
        };
        self.registry
            .asked
            .entry((route.array, route.range, route.epoch))
            .or_insert(self.now);
        let delay = self.delay();
        self.at(
            delay,
            Due::ToServer(route.tail().unwrap(), Event::HandOver { at, to: node }),
        );
    }

    fn lose_worker(&mut self, worker: WorkerId) {
        let state = self.workers.get_mut(&worker).unwrap();
        if !state.gone {
            self.tally.worker_changes += 1;
            state.gone = true;
            let detection = self.rng.random_range(1_000..30_000);
            self.at(detection, Due::SuspectWorker(worker));
        }
    }
}
