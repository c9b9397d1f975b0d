//! A server, driven message by message.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use parapet_parameter_server::{
    Action, Add, ArrayConfig, ArrayId, Clock, Consistency, Epoch, Event, KeyRange, Keys, Layout,
    Message, NodeId, Peer, Push, PushAck, Route, Routing, Rows, Server, ServerConfig, ShardRef,
    Values, WorkerId,
};

pub const ARRAY: ArrayId = ArrayId(0);
pub const RANGE: KeyRange = KeyRange { start: 0, end: 2 };
pub const REGISTRY: Peer = Peer::Server(NodeId(99));

pub fn at(epoch: u64) -> ShardRef {
    ShardRef {
        array: ARRAY,
        range: RANGE,
        epoch: Epoch(epoch),
    }
}

pub fn push(epoch: u64, worker: u64, clock: u64) -> Message {
    push_of(epoch, worker, clock, vec![1.0, 2.0])
}

pub fn push_of(epoch: u64, worker: u64, clock: u64, values: Vec<f32>) -> Message {
    Message::Push(Push {
        at: at(epoch),
        worker: WorkerId(worker),
        clock: Clock(clock),
        keys: Keys::All,
        values: Values::from(values),
    })
}

/// A server, and its time.
pub struct Node(pub Server, pub Duration);

impl Node {
    /// A server that knows two workers and this chain.
    pub fn new(node: u64, model: Consistency, epoch: u64, chain: &[u64]) -> Self {
        Self::bounded(node, model, epoch, chain, ServerConfig::default())
    }

    pub fn bounded(
        node: u64,
        model: Consistency,
        epoch: u64,
        chain: &[u64],
        config: ServerConfig,
    ) -> Self {
        Self::holding(Layout::dense(1, Add), node, model, epoch, chain, config)
    }

    /// A server whose array has this layout.
    pub fn holding(
        layout: Layout,
        node: u64,
        model: Consistency,
        epoch: u64,
        chain: &[u64],
        config: ServerConfig,
    ) -> Self {
        let array = ArrayConfig {
            layout,
            policy: Arc::new(model),
        };
        let mut server = Self(
            Server::new(NodeId(node), config, [(ARRAY, array)]),
            Duration::ZERO,
        );
        let workers = vec![(WorkerId(0), Clock(0)), (WorkerId(1), Clock(0))];
        server.tell(Event::Members {
            version: 1,
            workers,
        });
        server.route(epoch, chain);
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

    /// Lets time pass, and its timer go off if it is due.
    pub fn wait(&mut self, time: Duration) {
        self.1 += time;
        if self.0.next_timer().is_some_and(|due| due <= self.1) {
            self.tell(Event::Tick);
        }
    }

    pub fn copies(&self) -> Vec<(ShardRef, bool)> {
        self.0.copies().collect()
    }

    pub fn route(&mut self, epoch: u64, chain: &[u64]) -> Vec<(Peer, Message)> {
        let chain = chain.iter().copied().map(NodeId).collect();
        let route = Route {
            array: ARRAY,
            range: RANGE,
            epoch: Epoch(epoch),
            chain,
        };
        self.hear(
            REGISTRY,
            Message::Routing(Routing::new(epoch, vec![route]).unwrap()),
        )
    }

    pub fn rows(&self) -> Rows {
        self.0
            .shards()
            .next()
            .unwrap()
            .store
            .extract(RANGE, usize::MAX)
    }

    pub fn values(&self) -> Vec<f32> {
        let mut values = Vec::new();
        self.0
            .shards()
            .next()
            .unwrap()
            .store
            .read(RANGE, &Keys::All, &mut values);
        values
    }
}

pub fn sent(actions: Vec<Action>) -> Vec<(Peer, Message)> {
    let sent = |action| match action {
        Action::Send { to, message } => Some((to, message)),
        _ => None,
    };
    actions.into_iter().filter_map(sent).collect()
}

pub fn worker(id: u64) -> Peer {
    Peer::Worker(WorkerId(id))
}

pub fn server(id: u64) -> Peer {
    Peer::Server(NodeId(id))
}

pub fn ack(epoch: u64, id: u64, clock: u64) -> (Peer, Message) {
    (
        worker(id),
        Message::PushAck(PushAck {
            at: at(epoch),
            worker: WorkerId(id),
            clock: Clock(clock),
        }),
    )
}
