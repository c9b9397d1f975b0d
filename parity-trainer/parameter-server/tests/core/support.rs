//! Builders of messages and tables, and a server that is driven message by message.

pub use std::collections::{BTreeMap, BTreeSet};
pub use std::time::Duration;

pub use parapet_parameter_server::*;
pub use proptest::prelude::*;
pub use proptest::test_runner::TestCaseError;

pub const ARRAY: ArrayId = ArrayId(0);
pub const RANGE: KeyRange = KeyRange::new(0, 2);
pub const REGISTRY: Peer = Peer::Server(NodeId(99));
pub const FTRL: Ftrl = Ftrl { alpha: 0.1, beta: 1.0, l1: 0.5, l2: 0.3 };

/// Asks for rows.
pub const PULL: Work = Work::Pull { held: Clock(0) };

pub fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub fn worker(id: u64) -> Peer {
    Peer::Worker(WorkerId(id))
}

pub fn server(id: u64) -> Peer {
    Peer::Server(NodeId(id))
}

pub fn nodes(numbers: &[u64]) -> Vec<NodeId> {
    numbers.iter().copied().map(NodeId).collect()
}

pub fn list(keys: impl IntoIterator<Item = Key>) -> Keys {
    Keys::List(keys.into_iter().collect::<Vec<Key>>().into())
}

pub fn shard(start: Key, end: Key, epoch: u64) -> ShardRef {
    ShardRef::new(ARRAY, KeyRange::new(start, end), Epoch(epoch))
}

/// The shard of [`RANGE`].
pub fn at(epoch: u64) -> ShardRef {
    shard(RANGE.start, RANGE.end, epoch)
}

pub fn table(version: u64, routes: impl IntoIterator<Item = Route>) -> Routing {
    Routing::new(version, routes.into_iter().collect()).unwrap()
}

pub fn push_rows(at: ShardRef, worker: u64, clock: u64, keys: Keys, values: Values) -> Push {
    Push { at, worker: WorkerId(worker), clock: Clock(clock), keys, values }
}

pub fn push_of(epoch: u64, worker: u64, clock: u64, values: [f32; 2]) -> Message {
    let values = Values::from(values.to_vec());
    Message::Push(push_rows(at(epoch), worker, clock, Keys::All, values))
}

pub fn push(epoch: u64, worker: u64, clock: u64) -> Message {
    push_of(epoch, worker, clock, [1.0, 2.0])
}

pub fn push_ack(at: ShardRef, worker: u64, clock: u64) -> Message {
    let (worker, clock) = (WorkerId(worker), Clock(clock));
    answer(at, Request::Push { worker, clock }, None)
}

pub fn answer(at: ShardRef, request: Request, refusal: Option<Refusal>) -> Message {
    Message::Answer(Answer { at, request, held_us: 0, copied_us: 0, refusal })
}

/// The acknowledgement of a push to its worker.
pub fn ack(epoch: u64, id: u64, clock: u64) -> (Peer, Message) {
    (worker(id), push_ack(at(epoch), id, clock))
}

pub fn replicated(epoch: u64, seq: u64) -> Message {
    answer(at(epoch), Request::Replicate { seq: Seq(seq) }, None)
}

/// The log entry of worker 0's push of clock 1.
pub fn entry(seq: u64, values: [f32; 2]) -> Message {
    update(seq, &[0], Keys::All, values.to_vec().into())
}

/// A log entry of these workers' pushes of clock 1.
pub fn update(seq: u64, workers: &[u64], keys: Keys, values: Values) -> Message {
    let clocks = workers.iter().map(|&id| (WorkerId(id), Clock(1)));
    let update = Update { range: RANGE, clocks: clocks.collect(), keys, values };
    replicate(seq, Operation::Update(update))
}

pub fn replicate(seq: u64, operation: Operation) -> Message {
    Message::Replicate(Replicate { at: at(1), seq: Seq(seq), operation })
}

pub fn members(version: u64, workers: &[u64]) -> Members {
    let workers = workers.iter().map(|&id| (WorkerId(id), Clock(0))).collect();
    Members { version, workers }
}

pub fn hand_over(to: u64) -> Event {
    let (at, to) = (at(1), NodeId(to));
    Event::HandOver { at, to }
}

pub fn read(store: &Store, range: KeyRange) -> Vec<f32> {
    let mut values = Vec::new();
    store.read(range, &Keys::All, &mut values);
    values
}

pub fn array(layout: Layout, consistency: Consistency) -> ArrayConfig {
    ArrayConfig { layout, consistency }
}

/// A server, and its time.
pub struct Node(pub Server, pub Duration);

impl Node {
    /// A server that knows two workers and this chain, in epoch 1.
    pub fn new(node: u64, model: Consistency, chain: &[u64]) -> Self {
        Self::bounded(node, model, chain, ServerConfig::default())
    }

    pub fn bounded(node: u64, model: Consistency, chain: &[u64], config: ServerConfig) -> Self {
        Self::holding(array(Layout::dense(1, Add), model), node, chain, config)
    }

    pub fn holding(array: ArrayConfig, node: u64, chain: &[u64], config: ServerConfig) -> Self {
        let mut server = Self(Server::new(NodeId(node), config, [(ARRAY, array)]), ms(0));
        server.tell(Event::Members(members(1, &[0, 1])));
        server.route(1, chain);
        server
    }

    pub fn tell(&mut self, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        self.0.handle(self.1, event, &mut actions);
        actions
    }

    pub fn hear(&mut self, from: Peer, message: Message) -> Vec<(Peer, Message)> {
        sent(self.tell(Event::Received { from, message }))
    }

    /// Hears a message to which there is one answer.
    pub fn ask(&mut self, from: Peer, message: Message) -> Message {
        let mut answers = self.hear(from, message);
        assert_eq!(answers.len(), 1, "{answers:?}");
        answers.remove(0).1
    }

    /// Lets time pass, and its timer go off if it is due.
    pub fn wait(&mut self, time: Duration) -> Vec<(Peer, Message)> {
        self.1 += time;
        let is_due = self.0.next_timer().is_some_and(|due| due <= self.1);
        if is_due { sent(self.tell(Event::Tick)) } else { Vec::new() }
    }

    pub fn copies(&self) -> Vec<(ShardRef, bool)> {
        self.0.copies().collect()
    }

    pub fn route(&mut self, epoch: u64, chain: &[u64]) -> Vec<(Peer, Message)> {
        let routes = table(epoch, [Route::new(at(epoch), nodes(chain))]);
        self.hear(REGISTRY, Message::Routing(routes))
    }

    fn store(&self) -> &Store {
        self.0.shards().next().unwrap().store
    }

    pub fn rows(&self) -> Rows {
        self.store().extract(RANGE, usize::MAX)
    }

    pub fn values(&self) -> Vec<f32> {
        read(self.store(), RANGE)
    }
}

pub fn sent(actions: Vec<Action>) -> Vec<(Peer, Message)> {
    let sent = |action| match action {
        Action::Send { to, message } => Some((to, message)),
        _ => None,
    };
    actions.into_iter().filter_map(sent).collect()
}

/// The reason of a refusal.
pub fn refusal(answer: &Message) -> Option<Refusal> {
    match answer {
        Message::Answer(answer) => answer.refusal,
        _ => None,
    }
}
