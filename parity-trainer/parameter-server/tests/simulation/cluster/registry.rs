//! The registry, and what goes wrong.

use rand::seq::IndexedRandom;

use super::*;

pub struct Registry {
    pub routing: Routing,
    pub members: Members,
    /// Hand-overs that were asked for, and when.
    asked: BTreeMap<ShardRef, u64>,
}

impl Registry {
    pub fn new(rng: &mut ChaCha8Rng, servers: u64) -> Self {
        let mut route = |array| {
            let length = rng.random_range(1..=3);
            let first = rng.random_range(0..servers);
            let chain = (0..length).map(|i| NodeId((first + i) % servers)).collect();
            Route::new(ShardRef::new(array, ALL, Epoch(1)), chain)
        };
        Self {
            routing: Routing::new(1, [COUNTED, TRAINED, FACTORED].map(&mut route).into()).unwrap(),
            members: Members::default(),
            asked: BTreeMap::new(),
        }
    }

    /// Makes one change, unless the shard has changed since.
    pub fn change(&mut self, at: ShardRef, change: ChainChange) -> bool {
        let next = Step { at, change }.apply(&self.routing);
        next.map(|routing| self.routing = routing).is_ok()
    }

    /// Takes a server out of every chain in which another one is alive.
    pub fn remove(&mut self, node: NodeId, alive: &BTreeSet<NodeId>) {
        for route in self.routing.routes().to_vec() {
            if can_lose(&route, node, alive) {
                self.change(route.at(), ChainChange::Remove(vec![node]));
            }
        }
    }

    /// Returns true if every shard of the server is also on another one that is alive.
    pub fn can_lose(&self, node: NodeId, alive: &BTreeSet<NodeId>) -> bool {
        let mut routes = self.routing.routes().iter();
        routes.all(|route| !route.chain.contains(&node) || can_lose(route, node, alive))
    }
}

/// Returns true if the server holds the shard, and so does another one that is alive.
fn can_lose(route: &Route, node: NodeId, alive: &BTreeSet<NodeId>) -> bool {
    let mut chain = route.chain.iter();
    route.chain.contains(&node) && chain.any(|other| *other != node && alive.contains(other))
}

impl Simulation {
    pub fn alive(&self) -> BTreeSet<NodeId> {
        self.servers.keys().copied().collect()
    }

    pub fn start_server(&mut self) {
        let node = NodeId(self.next_server);
        self.next_server += 1;
        let server = Server::new(node, self.config, self.arrays.clone());
        self.servers.insert(node, server);
        self.report(|cluster| cluster.servers.insert(node, 1));
    }

    /// Tells all of the tables: at the start surely and at once, later with delays, or not at all.
    pub fn broadcast(&mut self, surely: bool) {
        let message = Message::Routing(self.registry.routing.clone());
        let members = Event::Members(self.registry.members.clone());
        for node in self.alive() {
            let (from, message) = (REGISTRY, message.clone());
            for event in [Event::Received { from, message }, members.clone()] {
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
                self.at(delay, Due::Deliver(REGISTRY, Peer::Worker(worker), message.clone()));
            }
        }
    }

    /// Maintains the registry: removes the dead, ends hand-overs that hang, tells all.
    pub fn upkeep(&mut self) {
        if self.leading.is_none() {
            let (alive, now) = (self.alive(), self.now);
            for route in self.registry.routing.routes().to_vec() {
                for node in route.chain.iter().filter(|node| !alive.contains(node)) {
                    self.registry.remove(*node, &alive);
                }
            }
            let routes = self.registry.routing.routes().to_vec();
            self.registry.asked.retain(|at, _| routes.iter().any(|route| route.at() == *at));
            for route in routes {
                let since = self.registry.asked.get(&route.at());
                if since.is_some_and(|since| now > since + 60_000) {
                    self.registry.change(route.at(), ChainChange::Remove(Vec::new()));
                }
            }
        }
        self.broadcast(false);
    }

    fn ask_to_hand_over(&mut self, from: NodeId, at: ShardRef, to: NodeId) {
        self.registry.asked.entry(at).or_insert(self.now);
        let delay = self.delay();
        self.at(delay, Due::ToServer(from, Event::HandOver { at, to }));
    }

    pub fn inject_fault(&mut self) {
        let alive = self.alive();
        let nodes: Vec<NodeId> = alive.iter().copied().collect();
        let &node = nodes.choose(&mut self.rng).unwrap();
        let kind = self.rng.random_range(0..13);
        if self.leading.is_some() && !(10..12).contains(&kind) {
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
                self.count("split");
                let key = self.rng.random_range(route.range.start + 1..route.range.end);
                self.registry.change(route.at(), ChainChange::Split(key));
                self.broadcast(false);
            }
            3..=7 if route.chain.len() < 3 && !route.chain.contains(&node) => {
                self.ask_to_hand_over(route.tail().unwrap(), route.at(), node);
            }
            12 if route.chain.len() > 1 => {
                let head = route.head().unwrap();
                self.ask_to_hand_over(head, route.at(), head);
            }
            // Moves: the newcomer stays, an old one goes.
            8 | 9 => {
                let &gone = route.chain.choose(&mut self.rng).unwrap();
                if can_lose(&route, gone, &alive) {
                    self.registry.change(route.at(), ChainChange::Remove(vec![gone]));
                    self.broadcast(false);
                }
            }
            10 if self.next_worker < COLUMNS as u64 => {
                let joined = self.workers.values().map(|worker| worker.clock).max().unwrap();
                if joined < LAST {
                    self.count("worker changed");
                    self.start_worker(joined);
                    self.broadcast(false);
                }
            }
            11 if self.registry.members.workers.len() > 1
                && self.rng.random_bool(0.3)
                && self.bug != Some(Bug::ReadsTooEarly) =>
            {
                let &(worker, _) = self.registry.members.workers.choose(&mut self.rng).unwrap();
                if !std::mem::replace(&mut self.workers.get_mut(&worker).unwrap().gone, true) {
                    self.count("worker changed");
                    let detection = self.rng.random_range(1_000..30_000);
                    self.at(detection, Due::SuspectWorker(worker));
                }
            }
            _ => {}
        }
    }

    pub fn crash(&mut self, node: NodeId) {
        self.count("crash");
        self.servers.remove(&node);
        self.cut_off.remove(&node);
        let detection = self.rng.random_range(1_000..30_000);
        self.at(detection, Due::Suspect(node));
        self.start_server();
    }

    pub fn partition(&mut self, node: NodeId) {
        self.count("partition");
        self.cut_off.insert(node);
        let suspicion = self.rng.random_range(500..10_000);
        self.at(suspicion, Due::Suspect(node));
        let heal = self.rng.random_range(10_000..80_000);
        self.at(heal, Due::Heal(node));
    }
}
