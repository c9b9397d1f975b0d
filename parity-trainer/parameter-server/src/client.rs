//! A worker's side: tasks that push and pull, asynchronous, with dependencies (Li et al., OSDI
//! 2014, section 3.3).
//!
//! A task is cut into parts by the routing table, one for each shard. A part is sent again until it
//! is answered, and cut anew when the table changes: the clocks at the server make that harmless.
//! Parts that may be sent go by clock, then by priority; a push never overtakes an earlier one of
//! the same keys.

mod answers;
mod index;
mod part;
mod routes;
mod send_window;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use crate::{
    ArrayId, Clock, Consistency, KeyRange, Keys, Message, NodeId, Refusal, RequestId, Routing,
    Shared, Values, WorkerId,
};
use index::Index;
use part::{Part, State};
use send_window::SendWindow;

/// A task, for those that wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(u64);

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task {}", self.0)
    }
}

/// An array, as its workers know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientArray {
    /// Numbers in a row.
    pub width: usize,
    /// Consistency model of this worker: decides whether rows that a server sent of its own accord
    /// are fresh enough.
    pub consistency: Consistency,
}

/// Bounds and intervals of a client (PS-8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientConfig {
    /// After how long a part without an answer is sent again. While answers to others come, it may
    /// be their turn first: it is waited for up to 16 times as long.
    pub resend: Duration,
    /// After how long a part that was refused for now is sent again.
    pub retry: Duration,
    /// Parts of pulls that are under way at a time. Pushes have no such window, only `max_tasks`:
    /// what a pull waits for may be a push of the same worker, and what a push waits for (BSP)
    /// one of another worker that has sent other parts first, so that full windows would wait for
    /// each other forever.
    pub max_pulls: usize,
    /// Tasks that are not finished.
    pub max_tasks: usize,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            resend: Duration::from_millis(100),
            retry: Duration::from_millis(50),
            max_pulls: 256,
            max_tasks: 4096,
        }
    }
}

/// Work of a task.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// Adds `keys x width` gradients at the end of iteration `clock`; see [`crate::Push`].
    Push(Values),
    /// Asks for the rows that iteration `clock` may read.
    Pull,
}

/// A task to submit.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// Push or pull to do.
    pub work: Work,
    /// Array that the task is on.
    pub array: ArrayId,
    /// The keys that it is about.
    pub range: KeyRange,
    /// Keys of those rows that exist here.
    pub keys: Keys,
    /// Iteration that the task belongs to.
    pub clock: Clock,
    /// Tasks that must have ended before this one is sent.
    pub after: Vec<Handle>,
    /// Of the tasks of one clock, lower ones are sent first.
    pub priority: u32,
}

/// Outcome of a task.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskOutcome {
    /// The push is safe.
    Pushed,
    /// Rows that were pulled.
    Pulled {
        /// Every live worker's updates up to this clock are contained.
        clock: Clock,
        /// The same for the rows that are furthest ahead: no shard contains more than the others if
        /// it is `clock`.
        newest: Clock,
        /// This worker's updates up to this clock are contained.
        own: Clock,
        /// `keys x width` parameters.
        values: Shared<f32>,
    },
    /// A server refused it for good.
    Refused(Refusal),
    /// A task that it waited for failed.
    DependencyFailed(Handle),
}

/// Reason why a task cannot be submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// Too many are unfinished.
    #[error("{limit} tasks are unfinished: wait for some before submitting more")]
    Full {
        /// Limit of unfinished tasks.
        limit: usize,
    },
    /// The cluster has no such array.
    #[error("{0} is not configured: name it when the client is made")]
    UnknownArray(ArrayId),
    /// Keys or values that do not fit, as a server would find.
    #[error("{0}")]
    Malformed(Refusal),
}

/// Event that a client handles.
#[derive(Debug, Clone, PartialEq)]
#[allow(
    clippy::large_enum_variant,
    reason = "passed on at once: a box would cost an allocation for each message"
)]
pub enum ClientEvent {
    /// A message came: an answer, or a routing table.
    Received(Message),
    /// The way to this server was lost, and what was on it.
    Disconnected(NodeId),
    /// There are ways to these servers and no others, and each takes about this many bytes
    /// now. Parts that find no room wait in line. Before the first such event, all that may
    /// be sent is sent.
    SendRoom(BTreeMap<NodeId, usize>),
    /// Time has passed; due by [`Client::next_timer`].
    Tick,
}

/// Action that a client asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientAction {
    /// Send a message.
    Send {
        /// Server to send it to.
        to: NodeId,
        /// Message to send.
        message: Message,
    },
    /// A task has ended.
    Done {
        /// Handle of the task.
        handle: Handle,
        /// Outcome of the task.
        outcome: TaskOutcome,
    },
    /// Fetch the routing table: a server has another one.
    FetchRouting,
}

struct Running {
    task: Task,
    parts: Vec<Part>,
    /// Number of unfinished tasks that it waits for.
    waits_for: usize,
}

/// Rows that a server sent of its own accord.
struct Fresh {
    clock: Clock,
    own: Clock,
    keys: Keys,
    values: Values,
}

/// State machine of a worker.
pub struct Client {
    worker: WorkerId,
    config: ClientConfig,
    arrays: BTreeMap<ArrayId, ClientArray>,
    routing: Routing,
    tasks: BTreeMap<Handle, Running>,
    index: Index,
    fresh: BTreeMap<(ArrayId, KeyRange), Fresh>,
    send_window: SendWindow,
    next_handle: u64,
    next_request: u64,
    /// When the last answer came.
    answered: Duration,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tasks = self
            .tasks
            .iter()
            .map(|(handle, Running { task, parts, .. })| {
                let what = if task.work == Work::Pull {
                    "pull"
                } else {
                    "push"
                };
                (
                    handle.to_string(),
                    (what, task.array, task.range, task.clock, parts),
                )
            });
        write!(f, "{} with ", self.worker)?;
        f.debug_map().entries(tasks).finish()
    }
}

impl Client {
    /// A worker that uses these arrays; it sends nothing before the first routing table.
    pub fn new(
        worker: WorkerId,
        config: ClientConfig,
        arrays: impl IntoIterator<Item = (ArrayId, ClientArray)>,
    ) -> Self {
        Self {
            worker,
            config,
            arrays: arrays.into_iter().collect(),
            routing: Routing::default(),
            tasks: BTreeMap::new(),
            index: Index::default(),
            fresh: BTreeMap::new(),
            send_window: SendWindow::default(),
            next_handle: 0,
            next_request: 0,
            answered: Duration::ZERO,
        }
    }

    /// Number of unfinished tasks.
    pub fn unfinished(&self) -> usize {
        self.tasks.len()
    }

    /// The servers to which parts wait for room ([`ClientEvent::SendRoom`]).
    pub const fn held_back(&self) -> &BTreeSet<NodeId> {
        self.send_window.held_back()
    }

    /// Takes over a task; [`ClientAction::Done`] tells of its end.
    pub fn submit(
        &mut self,
        now: Duration,
        task: Task,
        actions: &mut Vec<ClientAction>,
    ) -> Result<Handle, SubmitError> {
        let array = self
            .arrays
            .get(&task.array)
            .ok_or(SubmitError::UnknownArray(task.array))?;
        if self.tasks.len() >= self.config.max_tasks {
            return Err(SubmitError::Full {
                limit: self.config.max_tasks,
            });
        }
        if !task.keys.are_valid(task.range) || task.range.is_empty() {
            return Err(SubmitError::Malformed(Refusal::BadKeys));
        }
        if let Work::Push(values) = &task.work {
            let fits = values.check(task.keys.len(task.range), array.width);
            fits.map_err(|error| SubmitError::Malformed(error.into()))?;
        }
        let handle = Handle(self.next_handle);
        self.next_handle += 1;
        let parts = self.cut(task.array, task.range);
        let waits_for = self.index.wait(
            handle,
            task.after
                .iter()
                .filter(|after| self.tasks.contains_key(after)),
        );
        self.tasks.insert(
            handle,
            Running {
                task,
                parts,
                waits_for,
            },
        );
        self.note(handle);
        self.send_ready(now, actions);
        Ok(handle)
    }

    /// Takes note of an event at `now`, which never goes back, and appends what is to be done.
    pub fn handle(&mut self, now: Duration, event: ClientEvent, actions: &mut Vec<ClientAction>) {
        match event {
            ClientEvent::Received(Message::PushAck(ack)) => self.pushed(now, ack, actions),
            ClientEvent::Received(Message::PullReply(reply)) => self.pulled(now, reply, actions),
            ClientEvent::Received(Message::Refused(refused)) => self.refused(now, refused, actions),
            ClientEvent::Received(Message::Routing(routing)) => self.set_routing(routing),
            ClientEvent::Received(_) => {}
            ClientEvent::Disconnected(node) => self.disconnected(node),
            ClientEvent::SendRoom(rooms) => self.send_window.set(rooms),
            ClientEvent::Tick => self.time_out(now),
        }
        self.send_ready(now, actions);
    }

    /// When [`ClientEvent::Tick`] is due, if anything is under way. It looks at every task: ask
    /// once in a while.
    pub fn next_timer(&self) -> Option<Duration> {
        let parts = self.tasks.values().flat_map(|running| &running.parts);
        parts.filter_map(|part| self.due(part)).min()
    }

    fn due(&self, part: &Part) -> Option<Duration> {
        part.due(self.config.resend, self.answered)
    }

    fn time_out(&mut self, now: Duration) {
        self.change_parts(|client, _, part| client.due(part).is_some_and(|due| due <= now));
    }

    fn disconnected(&mut self, node: NodeId) {
        self.change_parts(|client, task, part| {
            client
                .route(task.array, part.range)
                .is_some_and(|(epoch, head, tail)| {
                    let to = if task.work == Work::Pull { tail } else { head };
                    part.is_under_way(epoch) && to == node
                })
        });
    }

    /// Makes the parts ready for which `is_ready`.
    fn change_parts(&mut self, is_ready: impl Fn(&Self, &Task, &Part) -> bool) {
        let mut changed = Vec::new();
        for (&handle, running) in &self.tasks {
            let parts = running.parts.iter().enumerate();
            changed.extend(
                parts
                    .filter(|(_, part)| is_ready(self, &running.task, part))
                    .map(|(place, _)| (handle, place)),
            );
        }
        for (handle, place) in changed {
            if let Some(part) = self
                .tasks
                .get_mut(&handle)
                .and_then(|running| running.parts.get_mut(place))
            {
                part.state = State::Ready;
            }
            self.note(handle);
        }
    }

    /// Tells the index of a change.
    fn note(&mut self, handle: Handle) {
        if let Some(running) = self.tasks.get(&handle) {
            self.index.note(handle, running);
        }
    }

    fn request(&mut self) -> RequestId {
        self.next_request += 1;
        RequestId(self.next_request)
    }
}
