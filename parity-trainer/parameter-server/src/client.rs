//! A worker's side: asynchronous tasks that push and pull (Li et al., OSDI 2014, section 3.3).
//!
//! A task is cut into parts by the routing table, one for each shard. A part is sent again until it
//! is answered, and cut anew when the table changes: the clocks at the server make that harmless.
//! Parts that may be sent go by clock; a push never overtakes an earlier one of the same keys.

mod progress;
mod routes;
mod served;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::{
    ArrayId, Clock, Consistency, Factors, KeyRange, Keys, Message, NodeId, PullReply, Refusal,
    Routing, ServedBy, Shared, Values, WorkerId,
};
use progress::{Counted, Index, Part, State};
use routes::SendWindow;
use served::Served;

/// A task, for those that wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(u64);

/// Times `resend` that an answer is waited for, at most.
const PATIENCE: u32 = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientArray {
    /// Numbers in a row.
    pub width: usize,
    /// Consistency model: decides whether rows that a server sent of its own accord are fresh.
    pub consistency: Consistency,
}

/// Bounds and intervals of a client (PS-8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientConfig {
    /// Time until an unanswered part is resent, at least.
    pub resend: Duration,
    /// After how long a part that was refused for now is sent again.
    pub retry: Duration,
    /// Parts of pulls that are under way at a time. Pushes have no such window, only `max_tasks`: a
    /// pull may wait for a push of the same worker, and a push (BSP) for one of another worker that
    /// has sent other parts first, so that full windows would wait for each other forever.
    pub max_pulls: usize,
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

#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// Adds `keys x width` gradients at the end of iteration `clock`; see [`crate::Push`].
    Push(Values),
    /// Asks for the rows that iteration `clock` may read, or for the updates since `held`; see
    /// [`crate::Pull`].
    Pull { held: Clock },
}

#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    pub work: Work,
    pub array: ArrayId,
    pub range: KeyRange,
    /// Keys of those rows that exist here.
    pub keys: Keys,
    pub clock: Clock,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Pulled {
    /// Every live worker's updates up to this clock are contained.
    pub clock: Clock,
    /// The same for the rows furthest ahead: no shard contains more than others if it is `clock`.
    pub newest: Clock,
    /// This worker's updates up to this clock are contained.
    pub own: Clock,
    /// `keys x width` parameters; zeros where there are updates.
    pub values: Shared<f32>,
    /// Updates in place of parameters; see [`crate::Mirror`].
    pub updates: Vec<(KeyRange, Factors)>,
    /// Work of servers since the pull before.
    pub served: Vec<ServedBy>,
}

/// End of a task: the rows of a pull, nothing for a safe push, or why a server refuses it for good.
pub type TaskOutcome = Result<Option<Pulled>, Refusal>;

/// Reason why a task cannot be submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    #[error("{limit} tasks are unfinished: wait for some before submitting more")]
    Full { limit: usize },
    #[error("{0} is not configured: name it when the client is made")]
    UnknownArray(ArrayId),
    #[error(transparent)]
    Malformed(Refusal),
}

#[derive(Debug, Clone, PartialEq)]
pub enum ClientEvent {
    /// A message came: an answer, or a routing table.
    Received(Message),
    /// The way to this server was lost, and what was on it.
    Disconnected(NodeId),
    /// There are ways to these servers and no others, and each takes about this many bytes now.
    /// Parts that find no room wait in line. Before the first such event, everything is sent.
    SendRoom(BTreeMap<NodeId, usize>),
    /// Time has passed; due by [`Client::next_timer`].
    Tick,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ClientAction {
    Send { to: NodeId, message: Message },
    Done { handle: Handle, outcome: TaskOutcome },
}

#[derive(Debug)]
struct Running {
    task: Task,
    submitted: Duration,
    parts: Vec<Part>,
    counted: Counted,
}

impl Running {
    const fn is_pull(&self) -> bool {
        matches!(self.task.work, Work::Pull { .. })
    }
}

/// State machine of a worker.
#[derive(Debug, Default)]
pub struct Client {
    worker: WorkerId,
    config: ClientConfig,
    arrays: BTreeMap<ArrayId, ClientArray>,
    routing: Routing,
    tasks: BTreeMap<Handle, Running>,
    index: Index,
    /// Rows that servers sent of their own accord: one reply for each shard that is read.
    fresh: BTreeMap<(ArrayId, KeyRange), PullReply>,
    send_window: SendWindow,
    served: Served,
    next_handle: u64,
    next_request: u64,
    /// Time that a server's answer may take: twice what others took, and twice as long with each
    /// resend. What is large and slow should not be made slower by sending it over and over.
    waits: BTreeMap<NodeId, Duration>,
    now: Duration,
    actions: Vec<ClientAction>,
}

impl Client {
    /// A worker that uses these arrays; it sends nothing before the first routing table.
    pub fn new(
        worker: WorkerId,
        config: ClientConfig,
        arrays: impl IntoIterator<Item = (ArrayId, ClientArray)>,
    ) -> Self {
        Self { worker, config, arrays: arrays.into_iter().collect(), ..Self::default() }
    }

    pub fn unfinished(&self) -> usize {
        self.tasks.len()
    }

    /// The servers to which parts wait for room ([`ClientEvent::SendRoom`]).
    pub const fn held_back(&self) -> &BTreeSet<NodeId> {
        &self.send_window.held_back
    }

    /// Takes over a task; [`ClientAction::Done`] tells of its end.
    pub fn submit(
        &mut self,
        now: Duration,
        task: Task,
        actions: &mut Vec<ClientAction>,
    ) -> Result<Handle, SubmitError> {
        let array = self.arrays.get(&task.array);
        let array = array.ok_or(SubmitError::UnknownArray(task.array))?;
        let limit = self.config.max_tasks;
        if self.tasks.len() >= limit {
            return Err(SubmitError::Full { limit });
        }
        if !task.keys.are_valid(task.range) || task.range.is_empty() {
            return Err(SubmitError::Malformed(Refusal::BadKeys));
        }
        if let Work::Push(values) = &task.work {
            let fits = values.check(task.keys.len(task.range), array.width);
            fits.map_err(|error| SubmitError::Malformed(error.into()))?;
            self.served.begin(task.clock);
        }
        let handle = Handle(self.next_handle);
        self.next_handle += 1;
        let (parts, counted) = (self.cut(task.array, task.range), Counted::default());
        let running = Running { parts, task, submitted: now, counted };
        self.tasks.insert(handle, running);
        self.note(handle);
        self.now = now;
        self.send_ready();
        actions.append(&mut self.actions);
        Ok(handle)
    }

    /// Handles an event at `now`, which never goes back, and appends what is to be done.
    pub fn handle(&mut self, now: Duration, event: ClientEvent, actions: &mut Vec<ClientAction>) {
        self.now = now;
        match event {
            ClientEvent::Received(Message::PullReply(reply)) => self.pulled(reply),
            ClientEvent::Received(Message::Answer(answer)) => self.answered(answer),
            ClientEvent::Received(Message::Routing(routing)) => self.set_routing(routing),
            ClientEvent::Received(_) => {}
            ClientEvent::Disconnected(node) => {
                self.send_again(|client, running, part| {
                    let route = client.route(running.task.array, part.range);
                    route.is_some_and(|(epoch, head, tail)| {
                        let to = if running.is_pull() { tail } else { head };
                        part.is_under_way(epoch) && to == node
                    })
                });
            }
            ClientEvent::SendRoom(rooms) => self.send_window.set(rooms),
            ClientEvent::Tick => {
                self.send_again(|client, _, part| client.due(part).is_some_and(|due| due <= now));
            }
        }
        self.send_ready();
        actions.append(&mut self.actions);
    }

    /// When [`ClientEvent::Tick`] is due, if anything is under way. Looks at all tasks: ask rarely.
    pub fn next_timer(&self) -> Option<Duration> {
        let parts = self.tasks.values().flat_map(|running| &running.parts);
        parts.filter_map(|part| self.due(part)).min()
    }

    fn due(&self, part: &Part) -> Option<Duration> {
        part.due(self.wait(part.to))
    }

    fn wait(&self, to: Option<NodeId>) -> Duration {
        let wait = to.and_then(|to| self.waits.get(&to)).copied().unwrap_or_default();
        wait.clamp(self.config.resend, PATIENCE * self.config.resend)
    }

    fn send_again(&mut self, is_one: impl Fn(&Self, &Running, &Part) -> bool) {
        let (mut changed, mut asked) = (Vec::new(), BTreeSet::new());
        for (&handle, running) in &self.tasks {
            for (place, part) in running.parts.iter().enumerate() {
                if is_one(self, running, part) {
                    changed.push((handle, place));
                    asked.extend(part.to.filter(|_| matches!(part.state, State::Sent { .. })));
                }
            }
        }
        for to in asked {
            self.waits.insert(to, 2 * self.wait(Some(to)));
        }
        for (handle, place) in changed {
            let running = self.tasks.get_mut(&handle);
            if let Some(part) = running.and_then(|running| running.parts.get_mut(place)) {
                part.state = State::Ready;
            }
            self.note(handle);
        }
    }

    fn note(&mut self, handle: Handle) {
        if let Some(running) = self.tasks.get_mut(&handle) {
            self.index.note(handle, running);
        }
    }
}
