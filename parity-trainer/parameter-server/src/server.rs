//! A server of parameters: a state machine for the shards it holds.
//!
//! Each shard is held by a chain of servers (van Renesse & Schneider, "Chain Replication", OSDI
//! 2004). The head takes pushes, adds them up, and gives the sums places in its log (Li et al.,
//! OSDI 2014, section 4.3); each server applies an entry, sends it on, and forgets it when the tail
//! has it; then the head acknowledges the pushes in it. The tail answers pulls, so that no value is
//! read that could still be lost. The registry decides who is in a chain, by raising the shard's
//! epoch. Entries of an older epoch are refused, so that a head that was replaced can no longer
//! commit (PS-3). A tail that was replaced may go on answering pulls: its clocks say what its rows
//! contain.

mod replica;
mod shards;
mod transfer;

use std::fmt;
use std::time::Duration;

use crate::{
    Answer, ArrayId, Consistency, Key, Layout, Members, Message, NodeId, Peer, Pool, RangedClocks,
    Refusal, Request, Seq, ShardRef, Store,
};
use replica::Replica;
use shards::{Shards, exact};

#[derive(Debug, Clone)]
pub struct ArrayConfig {
    pub layout: Layout,
    pub consistency: Consistency,
}

/// Bounds and intervals of a server (PS-8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerConfig {
    /// After how long something without an answer is sent again to another server: at least, as a
    /// slow link is not made faster by sending everything twice.
    pub resend: Duration,
    /// After how long without another piece an incomplete copy is dropped; many times `resend`.
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

#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    Received {
        from: Peer,
        message: Message,
    },
    /// The registry's list of workers. Join a worker at the clock of the most advanced or later: no
    /// worker can be made to wait for what is past.
    Members(Members),
    /// The registry asks this server, the tail, to copy a shard to one that will join the chain; or
    /// the head to become the tail.
    HandOver {
        at: ShardRef,
        to: NodeId,
    },
    /// A connection was made: what was sent to this server before may be lost.
    Connected(NodeId),
    /// Time has passed; due by [`Server::next_timer`].
    Tick,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    Send {
        to: Peer,
        message: Message,
    },
    /// Ask the registry to put `add` at the end of the shard's chain, if it is still at this epoch.
    /// The shard stands still until its epoch is raised, by this change or another: it asks
    /// repeatedly.
    Propose {
        at: ShardRef,
        /// The server that has all of it.
        add: NodeId,
    },
    /// Tell the registry that the shard's state never came here, or is another than its head's.
    Lost {
        at: ShardRef,
    },
    /// Tell the operator that a server cannot join a shard's chain, which goes on without it.
    CopyRefused {
        at: ShardRef,
        to: NodeId,
        reason: Refusal,
    },
}

/// A look into a shard, for tests and metrics.
#[derive(Debug, Clone, Copy)]
pub struct ShardView<'a> {
    pub at: ShardRef,
    pub store: &'a Store,
    /// Clocks of each worker that the rows contain.
    pub clocks: &'a RangedClocks,
    /// The last log entry they contain.
    pub applied: Seq,
    /// The last log entry that is known to be in the whole chain.
    pub committed: Seq,
    pub accepts_pushes: bool,
}

/// When something that waits for an answer is sent again: twice as late each time, and no sooner
/// than answers have taken of late.
#[derive(Debug, Clone, Copy, Default)]
struct Resend {
    /// When it was sent first, or the last answer came.
    since: Duration,
    sent: Duration,
    wait: Duration,
}

impl Resend {
    /// Times the least wait, at most.
    const MOST: u32 = 64;

    /// Makes no answer worth waiting for: the last sending was in vain.
    fn hurry(&mut self) {
        self.wait = Duration::ZERO;
    }

    fn begin(&mut self, now: Duration) {
        (self.since, self.sent) = (now, now);
    }

    /// An answer came, maybe to what was sent last.
    fn answered(&mut self, now: Duration) {
        self.wait = (2 * now.saturating_sub(self.sent)).max(self.wait * 3 / 4);
        self.begin(now);
    }

    fn wait(&self, config: &ServerConfig) -> Duration {
        self.wait.clamp(config.resend, config.resend.saturating_mul(Self::MOST))
    }

    fn due(&self, config: &ServerConfig) -> Duration {
        self.sent + self.wait(config)
    }

    /// Returns true if it is to be sent again now.
    fn is_due(&mut self, now: Duration, config: &ServerConfig) -> bool {
        let is_due = now >= self.due(config);
        if is_due {
            (self.sent, self.wait) = (now, 2 * self.wait(config));
        }
        is_due
    }
}

struct Context {
    now: Duration,
    node: NodeId,
    config: ServerConfig,
    members: Members,
    transfers: u64,
    pool: Pool<f32>,
    actions: Vec<Action>,
}

impl Context {
    fn send(&mut self, to: Peer, message: Message) {
        self.actions.push(Action::Send { to, message });
    }

    fn answer(&mut self, to: Peer, at: ShardRef, request: Request, refusal: Option<Refusal>) {
        let answer = Answer { at, request, held_us: 0, copied_us: 0, refusal };
        self.send(to, Message::Answer(answer));
    }

    fn held_us(&self, received: Duration) -> u32 {
        u32::try_from(self.now.saturating_sub(received).as_micros()).unwrap_or(u32::MAX)
    }
}

pub struct Server {
    context: Context,
    shards: Shards,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (node, shards) = (self.node(), self.shards.held.len());
        write!(f, "{node} with {shards} shards")
    }
}

impl Server {
    /// A server of these arrays; it holds nothing before the first routing table.
    pub fn new(
        node: NodeId,
        config: ServerConfig,
        arrays: impl IntoIterator<Item = (ArrayId, ArrayConfig)>,
    ) -> Self {
        let context = Context {
            now: Duration::ZERO,
            node,
            config,
            members: Members::default(),
            transfers: 0,
            pool: Pool::new(config.pooled),
            actions: Vec::new(),
        };
        let shards = Shards::new(arrays.into_iter().collect());
        Self { context, shards }
    }

    /// Makes an array known, before the first routing table that names it. Nothing happens while
    /// shards of it are held.
    pub fn define(&mut self, array: ArrayId, config: ArrayConfig) {
        let shards = (array, Key::MIN)..=(array, Key::MAX);
        if self.shards.held.range(shards).next().is_none() {
            self.shards.arrays.insert(array, config);
        }
    }

    pub const fn node(&self) -> NodeId {
        self.context.node
    }

    pub fn shards(&self) -> impl Iterator<Item = ShardView<'_>> {
        self.shards.held.values().map(Replica::view)
    }

    /// Shards that are being copied to this server, and whether all of each is here.
    pub fn copies(&self) -> impl Iterator<Item = (ShardRef, bool)> {
        let incoming = self.shards.incoming.values();
        incoming.map(|copy| (copy.at, copy.is_complete()))
    }

    /// When [`Event::Tick`] is due, if anything waits for an answer.
    pub fn next_timer(&self) -> Option<Duration> {
        let (shards, config) = (&self.shards, &self.context.config);
        let (held, copies) = (shards.held.values(), shards.incoming.values());
        let resends = held.filter_map(|replica| replica.next_timer(config));
        let given_up = copies.filter_map(|copy| copy.given_up_at(config));
        resends.chain(given_up).min()
    }

    /// Handles an event at `now`, which never goes back, and appends what is to be done.
    pub fn handle(&mut self, now: Duration, event: Event, actions: &mut Vec<Action>) {
        let Self { context, shards } = self;
        context.now = now;
        match event {
            Event::Received { from, message } => shards.receive(from, message, context),
            Event::Members(members) => {
                if members.version > context.members.version {
                    context.members = members;
                }
                shards.each(|replica| replica.set_members(context));
            }
            Event::HandOver { at, to } => {
                if let Some(replica) = exact(&mut shards.held, at) {
                    replica.hand_over(to, context);
                }
            }
            Event::Connected(node) => shards.each(|replica| replica.connected(node, context)),
            Event::Tick => {
                shards.drop_given_up(context);
                shards.each(|replica| replica.tick(context));
            }
        }
        actions.append(&mut context.actions);
    }
}
