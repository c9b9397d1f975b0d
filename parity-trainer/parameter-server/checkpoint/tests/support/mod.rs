//! Clusters of servers without a network: every message arrives at once.

#![allow(unreachable_pub, dead_code, clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parapet_parameter_server::{
    Action, Adam, ArrayConfig, ArrayId, Clock, Consistency, Epoch, Event, Ftrl, KeyRange, Keys, Layout,
    Message, NodeId, Peer, Placement, Push, PushAck, RangedClocks, Refused, Routing, Server, ServerConfig,
    ShardRef, TransferId, Values, WorkerId,
};
use parapet_parameter_server_checkpoint::{
    ArrayEntry, CheckpointError, Checkpoints, Cut, Manifest, Restore, ShardState,
};

pub const DENSE: ArrayId = ArrayId(0);
pub const SPARSE: ArrayId = ArrayId(5);
pub const KEYS: u64 = 40;
/// The epoch of shards on their way from a checkpoint to servers.
pub const SENT: Epoch = Epoch(30);
pub const WORKERS: [WorkerId; 2] = [WorkerId(1), WorkerId(2)];

pub fn whole() -> KeyRange {
    KeyRange::new(0, KEYS)
}

/// As a manifest has them.
pub fn arrays() -> Vec<ArrayEntry> {
    [DENSE, SPARSE].map(|array| ArrayEntry::new(array, whole(), 4, String::new())).to_vec()
}

/// So many servers on a ring, arrays in so many shards.
pub fn table(servers: u64, points: u32, replicas: usize, shards: u64) -> Routing {
    let weights: BTreeMap<NodeId, u32> = (1..=servers).map(|node| (NodeId(node), 1)).collect();
    let ranges = [DENSE, SPARSE].into_iter().flat_map(|array| whole().cut(shards).map(move |r| (array, r)));
    Placement { points, replicas }.ring(&weights).routing(1, ranges).unwrap()
}

pub struct Cluster {
    pub servers: BTreeMap<NodeId, Server>,
    pub routing: Routing,
    pub acknowledged: Vec<PushAck>,
    pub refused: Vec<Refused>,
    members: u64,
}

impl Cluster {
    /// Servers that know nothing yet.
    pub fn empty(servers: u64) -> Self {
        let array = |layout| ArrayConfig { layout, policy: Arc::new(Consistency::Eventual) };
        let arrays = || {
            [
                (DENSE, array(Layout::dense(3, Adam::default()))),
                (SPARSE, array(Layout::sparse(2, Ftrl { alpha: 0.1, beta: 1.0, l1: 0.01, l2: 0.1 }))),
            ]
        };
        let server = |node| (NodeId(node), Server::new(NodeId(node), ServerConfig::default(), arrays()));
        let servers = (1..=servers).map(server).collect();
        let (acknowledged, refused) = (Vec::new(), Vec::new());
        Self { servers, routing: Routing::default(), acknowledged, refused, members: 0 }
    }

    pub fn new(servers: u64, routing: Routing) -> Self {
        let mut cluster = Self::empty(servers);
        cluster.route(routing);
        cluster.join_workers();
        cluster
    }

    pub fn route(&mut self, routing: Routing) {
        self.routing = routing.clone();
        for node in self.nodes() {
            self.tell(node, NodeId(0), Message::Routing(routing.clone()));
        }
    }

    pub fn join_workers(&mut self) {
        self.members += 1;
        let workers: Vec<(WorkerId, Clock)> = WORKERS.iter().map(|&worker| (worker, Clock(0))).collect();
        for node in self.nodes() {
            let event = Event::Members { version: self.members, workers: workers.clone() };
            let mut actions = Vec::new();
            self.servers.get_mut(&node).unwrap().handle(Duration::ZERO, event, &mut actions);
            self.run(node, actions);
        }
    }

    fn nodes(&self) -> Vec<NodeId> {
        self.servers.keys().copied().collect()
    }

    pub fn tell(&mut self, to: NodeId, from: NodeId, message: Message) {
        let event = Event::Received { from: Peer::Server(from), message };
        let mut actions = Vec::new();
        self.servers.get_mut(&to).unwrap().handle(Duration::ZERO, event, &mut actions);
        self.run(to, actions);
    }

    /// Delivers until nobody has anything to say.
    fn run(&mut self, node: NodeId, actions: Vec<Action>) {
        let mut queue: VecDeque<(NodeId, Action)> =
            actions.into_iter().map(|action| (node, action)).collect();
        while let Some((from, action)) = queue.pop_front() {
            let Action::Send { to, message } = action else { panic!("{action:?}") };
            match (to, message) {
                (Peer::Server(to), message) if self.servers.contains_key(&to) => {
                    let event = Event::Received { from: Peer::Server(from), message };
                    let mut actions = Vec::new();
                    self.servers.get_mut(&to).unwrap().handle(Duration::ZERO, event, &mut actions);
                    queue.extend(actions.into_iter().map(|action| (to, action)));
                }
                (Peer::Worker(_), Message::PushAck(ack)) => self.acknowledged.push(ack),
                (_, Message::Refused(refused)) => self.refused.push(refused),
                _ => {}
            }
        }
    }

    /// One worker's iteration: gradients made of `seed`, to every shard.
    pub fn push(&mut self, worker: WorkerId, clock: u64, seed: u64) {
        for route in self.routing.clone().routes() {
            let range = route.range;
            let at = ShardRef { array: route.array, range, epoch: route.epoch };
            let width = if route.array == DENSE { 3 } else { 2 };
            let number = |key: u64, column: u64| {
                let mixed = (key * 31 + column * 7 + clock * 13 + worker.0 * 17 + seed)
                    .wrapping_mul(0x9e37_79b9_7f4a_7c15);
                ((mixed >> 40) as f32) / ((1 << 24) as f32) - 0.5
            };
            let named = |key: &u64| route.array == DENSE || number(*key, 99) > 0.1;
            let keys: Vec<u64> = (range.start..range.end).filter(named).collect();
            let values: Vec<f32> =
                keys.iter().flat_map(|&key| (0..width).map(move |column| number(key, column))).collect();
            let keys = if route.array == DENSE { Keys::All } else { Keys::List(keys.into()) };
            let push = Push { at, worker, clock: Clock(clock), keys, values: Values::from(values) };
            let event = Event::Received { from: Peer::Worker(worker), message: Message::Push(push) };
            let head = route.head().unwrap();
            let mut actions = Vec::new();
            self.servers.get_mut(&head).unwrap().handle(Duration::ZERO, event, &mut actions);
            self.run(head, actions);
        }
    }

    /// What every tail holds.
    pub fn states(&self) -> Vec<ShardState> {
        let tail = |route: &parapet_parameter_server::Route| {
            let server = &self.servers[&route.tail().unwrap()];
            let view = server.shards().find(|v| v.at.array == route.array && v.at.range == route.range);
            ShardState::of(&view.unwrap_or_else(|| panic!("{route:?} is not held")))
        };
        self.routing.routes().iter().map(tail).collect()
    }

    /// All of an array with its clocks, whatever its shards.
    pub fn all(&self, array: ArrayId) -> (ShardState, RangedClocks) {
        let states: Vec<ShardState> =
            self.states().into_iter().filter(|state| state.array == array).collect();
        let mut all = ShardState::joined(&states).unwrap();
        let clocks = RangedClocks::from_entries(whole(), &std::mem::take(&mut all.clocks));
        (all, clocks)
    }

    pub async fn checkpoint(&self, checkpoints: &Checkpoints) -> Result<Manifest, CheckpointError> {
        self.checkpoint_of(checkpoints, &[DENSE, SPARSE]).await
    }

    /// Of these arrays alone.
    pub async fn checkpoint_of(
        &self,
        checkpoints: &Checkpoints,
        chosen: &[ArrayId],
    ) -> Result<Manifest, CheckpointError> {
        let number = checkpoints.begin().await?;
        let mut entries = Vec::new();
        for state in self.states().iter().filter(|state| chosen.contains(&state.array)) {
            entries.push(checkpoints.write_shard(number, state).await?);
        }
        let arrays = arrays().into_iter().filter(|entry| chosen.contains(&entry.array())).collect();
        checkpoints.commit(number, arrays, entries).await
    }

    /// A cluster that starts from the newest checkpoint.
    pub async fn restored(checkpoints: &Checkpoints, servers: u64, wanted: &Routing, piece: usize) -> Self {
        let manifest = checkpoints.newest().await.unwrap().newest.unwrap();
        let restore = Restore::new(manifest.clone(), piece);
        let mut cluster = Self::empty(servers);
        for route in wanted.routes() {
            let mut shards = Vec::new();
            for entry in restore.needed(route.array, route.range) {
                shards.push(checkpoints.read_shard(manifest.number, entry).await.unwrap());
            }
            let at = ShardRef { array: route.array, range: route.range, epoch: SENT };
            for &node in &route.chain {
                for piece in restore.pieces(at, TransferId(1), &shards).unwrap() {
                    cluster.tell(node, NodeId(0), Message::Snapshot(piece));
                }
            }
        }
        assert_eq!(cluster.refused, []);
        cluster.route(restore.table(&cluster.routing, SENT, wanted).unwrap());
        cluster.join_workers();
        cluster
    }
}

/// The cut that these states are of.
pub fn cut(states: &[ShardState]) -> Result<Cut, parapet_parameter_server_checkpoint::CutError> {
    Cut::of(states.iter().map(|state| (state.array, state.range(), &state.clocks[..])))
}
