//! A server of parameters: a state machine for the shards it holds.
//!
//! Each shard is held by a chain of servers (van Renesse & Schneider, "Chain Replication", OSDI
//! 2004). The head takes pushes, adds them up, and gives the sums places in its log; each server
//! applies an entry, sends it on, and forgets it when the tail has it; then the head acknowledges
//! the pushes in it. The tail answers pulls, so that no value is read that could still be lost.
//! Compared with sending every push to every replica, the head's sums save the copies (Li et al.,
//! OSDI 2014, section 4.3).
//!
//! A server never decides who is in a chain: the registry does, by raising the shard's epoch.
//! Entries of an older epoch are refused, so that a head that was replaced, and does not know it,
//! can no longer commit (PS-3). A tail that was replaced may go on answering pulls: its clocks say
//! what its rows contain, so that a stale one only makes readers wait.

mod log;
mod lookup;
mod replica;
mod resend;
mod routes;
mod transfer;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{
    ArrayId, Clock, ConsistencyPolicy, Key, Layout, Message, NodeId, Peer, Pool, Push, PushAck,
    Refusal, Refused, Request, Routing, ShardRef, WorkerId,
};
pub use lookup::ShardView;
use replica::{Context, Replica};
use transfer::Incoming;

/// An array, as every server knows it.
#[derive(Debug, Clone)]
pub struct ArrayConfig {
    /// Layout of its rows.
    pub layout: Layout,
    /// Consistency model of its readers.
    pub policy: Arc<dyn ConsistencyPolicy>,
}

/// Bounds and intervals of a server (PS-8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerConfig {
    /// After how long something without an answer is sent again to another server.
    pub resend: Duration,
    /// After how long without another piece a copy of a shard that is not complete is dropped; many
    /// times `resend`.
    pub forget: Duration,
    /// Log entries of a shard that the tail has not acknowledged.
    pub max_log: usize,
    /// Pushes of a worker to a shard that wait for other workers' of the same clock.
    pub max_pending: usize,
    /// Bytes of either: one more entry, or push, is taken while there are fewer.
    pub max_bytes: usize,
    /// Pulls of a shard that wait for updates.
    pub max_waiting: usize,
    /// Rows in one piece of a shard that is copied to another server.
    pub copy_rows: usize,
    /// Bytes in one, where a row has fewer.
    pub copy_bytes: usize,
    /// Bytes of vectors that are kept to be used again, for sums and answers.
    pub pooled: usize,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            resend: Duration::from_millis(50),
            forget: Duration::from_secs(30),
            max_log: 1024,
            max_pending: 1024,
            max_bytes: 64 << 20,
            max_waiting: 4096,
            copy_rows: 16_384,
            copy_bytes: 4 << 20,
            pooled: 32 << 20,
        }
    }
}

/// Event that a server handles.
#[derive(Debug, Clone, PartialEq)]
#[allow(
    clippy::large_enum_variant,
    reason = "passed on at once: a box would cost an allocation for each message"
)]
pub enum Event {
    /// A message has arrived.
    Received {
        /// Sender of the message.
        from: Peer,
        /// Message that arrived.
        message: Message,
    },
    /// The registry's list of workers, with the clocks they joined at. Join a worker at the clock
    /// of the most advanced or later: no worker can be made to wait for what is past.
    Members {
        /// Raised by every change.
        version: u64,
        /// Workers and the clocks that they have finished.
        workers: Vec<(WorkerId, Clock)>,
    },
    /// The registry asks this server, the tail, to copy a shard to a server that will join the
    /// chain after it.
    HandOver {
        /// The shard, at its epoch.
        at: ShardRef,
        /// The server that joins.
        to: NodeId,
    },
    /// Time has passed; due by [`Server::next_timer`].
    Tick,
}

/// Action that a server asks for.
#[derive(Debug, Clone, PartialEq)]
#[allow(
    clippy::large_enum_variant,
    reason = "passed on at once: a box would cost an allocation for each message"
)]
pub enum Action {
    /// Send a message.
    Send {
        /// Receiver of the message.
        to: Peer,
        /// Message to send.
        message: Message,
    },
    /// Ask the registry to append `add` to the shard's chain, if the shard is still at this epoch.
    /// The shard stands still until its epoch is raised, by this change or by another, for which it
    /// is asked again and again.
    Propose {
        /// Shard that is concerned.
        at: ShardRef,
        /// The server that has all of it.
        add: NodeId,
    },
    /// Tell the registry that it named this server for a shard whose state never came here, or is
    /// another than its head's.
    Lost {
        /// Shard that is concerned.
        at: ShardRef,
    },
    /// Tell the operator that a server cannot join a shard's chain.
    CopyRefused {
        /// The shard, which goes on without it.
        at: ShardRef,
        /// The server that was to join.
        to: NodeId,
        /// Cause of the refusal.
        reason: Refusal,
    },
}

/// State machine of a server.
pub struct Server {
    node: NodeId,
    config: ServerConfig,
    arrays: BTreeMap<ArrayId, ArrayConfig>,
    routing: Routing,
    members: (u64, Vec<(WorkerId, Clock)>),
    /// By array and first key.
    replicas: BTreeMap<(ArrayId, Key), Replica>,
    /// Shards that are being copied to this server.
    incoming: BTreeMap<(ArrayId, Key), Incoming>,
    transfers: u64,
    pool: Pool<f32>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {} shards", self.node, self.replicas.len())
    }
}

impl Server {
    /// A server of these arrays; it holds nothing before the first routing table.
    pub fn new(
        node: NodeId,
        config: ServerConfig,
        arrays: impl IntoIterator<Item = (ArrayId, ArrayConfig)>,
    ) -> Self {
        Self {
            node,
            config,
            arrays: arrays.into_iter().collect(),
            routing: Routing::default(),
            members: (0, Vec::new()),
            replicas: BTreeMap::new(),
            incoming: BTreeMap::new(),
            transfers: 0,
            pool: Pool::new(config.pooled),
        }
    }

    /// Makes an array known, before the first routing table that names it. Nothing happens while
    /// shards of it are held.
    pub fn define(&mut self, array: ArrayId, config: ArrayConfig) {
        if self
            .replicas
            .range((array, Key::MIN)..=(array, Key::MAX))
            .next()
            .is_none()
        {
            self.arrays.insert(array, config);
        }
    }

    /// Returns the server's node.
    pub const fn node(&self) -> NodeId {
        self.node
    }

    /// Takes note of an event at `now`, which never goes back, and appends what is to be done.
    pub fn handle(&mut self, now: Duration, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::Received { from, message } => self.receive(now, from, message, actions),
            Event::Members { version, workers } => {
                if version > self.members.0 {
                    self.members = (version, workers);
                    self.each(now, actions, |replica, context, members| {
                        replica.set_members(members, context)
                    });
                }
            }
            Event::HandOver { at, to } => {
                let transfer = self.next_transfer();
                if let Some((replica, mut context)) = self.exact(now, at, actions) {
                    replica.hand_over(to, transfer, &mut context);
                }
            }
            Event::Tick => {
                self.drop_given_up(now);
                self.each(now, actions, |replica, context, _| replica.tick(context));
            }
        }
    }

    fn receive(&mut self, now: Duration, from: Peer, message: Message, actions: &mut Vec<Action>) {
        match message {
            Message::Push(push) => self.push(now, from, push, actions),
            Message::Pull(pull) => {
                let result = match self.covering(now, pull.at, actions) {
                    Ok((replica, mut context)) => replica.pull(from, pull.clone(), &mut context),
                    Err(reason) => Err(reason),
                };
                refuse(
                    from,
                    pull.at,
                    Request::Pull {
                        request: pull.request,
                    },
                    result.err(),
                    actions,
                );
            }
            Message::Replicate(entry) => {
                let (at, seq) = (entry.at, entry.seq);
                let result = match self.exact(now, at, actions) {
                    Some((replica, mut context)) => replica.replicate(from, entry, &mut context),
                    None => Err(self.why_not(at)),
                };
                refuse(from, at, Request::Replicate { seq }, result.err(), actions);
            }
            Message::ReplicateAck(ack) => {
                if let Some((replica, mut context)) = self.exact(now, ack.at, actions) {
                    replica.acknowledged(from, ack.seq, &mut context);
                }
            }
            Message::Snapshot(piece) => self.take_over(now, from, piece, actions),
            Message::SnapshotAck(ack) => {
                if let Some((replica, mut context)) = self.exact(now, ack.at, actions) {
                    replica.copied(from, ack.transfer, ack.part, &mut context);
                }
            }
            Message::Routing(routing) => self.set_routing(now, routing, actions),
            Message::Refused(refused) => {
                let Refused {
                    at,
                    request,
                    reason,
                } = refused;
                match (request, reason) {
                    (Request::Replicate { .. }, Refusal::WrongEpoch { current }) => {
                        if let Some((replica, _)) = self.exact(now, at, actions) {
                            replica.fence(from, current);
                        }
                    }
                    (Request::Snapshot { transfer, part }, Refusal::UnknownRange) => {
                        let (again, members) = (self.next_transfer(), self.members.clone());
                        if let Some((replica, mut context)) = self.exact(now, at, actions) {
                            replica.copy_again(
                                from,
                                (transfer, part),
                                again,
                                &members,
                                &mut context,
                            );
                        }
                    }
                    (Request::Snapshot { transfer, part }, reason) if !reason.is_retryable() => {
                        let members = self.members.clone();
                        if let Some((replica, mut context)) = self.exact(now, at, actions) {
                            replica.end_copy(
                                from,
                                (transfer, part),
                                reason,
                                &members,
                                &mut context,
                            );
                        }
                    }
                    _ => {}
                }
            }
            // Meant for workers.
            Message::PushAck(_) | Message::PullReply(_) => {}
        }
    }

    fn push(&mut self, now: Duration, from: Peer, push: Push, actions: &mut Vec<Action>) {
        let (at, worker, clock) = (push.at, push.worker, push.clock);
        let result = match self.covering(now, at, actions) {
            Ok((replica, mut context)) => replica.push(push, &mut context),
            Err(reason) => Err(reason),
        };
        match result {
            Ok(true) => actions.push(Action::Send {
                to: from,
                message: Message::PushAck(PushAck { at, worker, clock }),
            }),
            Ok(false) => {}
            Err(reason) => refuse(
                from,
                at,
                Request::Push { worker, clock },
                Some(reason),
                actions,
            ),
        }
    }

    /// Does `act` to each shard.
    fn each(
        &mut self,
        now: Duration,
        actions: &mut Vec<Action>,
        act: impl Fn(&mut Replica, &mut Context<'_>, &(u64, Vec<(WorkerId, Clock)>)),
    ) {
        for (&(array_id, _), replica) in &mut self.replicas {
            if let Some(array) = self.arrays.get(&array_id) {
                let mut context = Context {
                    now,
                    node: self.node,
                    config: &self.config,
                    policy: &*array.policy,
                    pool: &mut self.pool,
                    actions: &mut *actions,
                };
                act(replica, &mut context, &self.members);
            }
        }
    }
}

fn refuse(
    to: Peer,
    at: ShardRef,
    request: Request,
    reason: Option<Refusal>,
    actions: &mut Vec<Action>,
) {
    if let Some(reason) = reason {
        actions.push(Action::Send {
            to,
            message: Message::Refused(Refused {
                at,
                request,
                reason,
            }),
        });
    }
}
