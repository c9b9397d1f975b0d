//! A worker's side: tasks that push and pull, asynchronous, with dependencies (Li et al., OSDI 2014, section 3.3).
//!
//! A task is cut into parts by the routing table, one for each shard. A part is sent again until it is answered, and
//! cut anew when the table changes: the clocks at the server make that harmless. Parts that may be sent go by clock, then by
//! priority; a push never overtakes an earlier one of the same keys.

mod part;
mod routes;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::{
    ArrayId, Clock, Consistency, KeyRange, Keys, Message, NodeId, PullReply, PushAck, Refusal, Refused,
    Request, RequestId, Routing, Values, WorkerId,
};
use part::{Part, State};

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
    /// What this worker may miss: decides whether rows that a server sent of its own accord are fresh enough.
    pub consistency: Consistency,
}

/// Bounds and intervals of a client (PS-8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientConfig {
    /// After how long a part without an answer is sent again.
    pub resend: Duration,
    /// Parts of pulls that are under way at a time. Pushes have no such window, only `max_tasks`: what a pull waits for
    /// may be a push of the same worker, and what a push waits for (BSP) one of another worker that has sent other parts
    /// first, so that full windows would wait for each other forever.
    pub max_pulls: usize,
    /// Tasks that are not finished.
    pub max_tasks: usize,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self { resend: Duration::from_millis(100), max_pulls: 256, max_tasks: 4096 }
    }
}

/// What a task does.
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
    /// What.
    pub work: Work,
    /// The array.
    pub array: ArrayId,
    /// The keys that it is about.
    pub range: KeyRange,
    /// Those of them that have a row here.
    pub keys: Keys,
    /// The iteration.
    pub clock: Clock,
    /// Tasks that must have ended before this one is sent.
    pub after: Vec<Handle>,
    /// Of the tasks of one clock, lower ones are sent first.
    pub priority: u32,
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The push is safe.
    Pushed,
    /// The rows.
    Pulled {
        /// Every live worker's updates up to this clock are contained.
        clock: Clock,
        /// `keys x width` parameters.
        values: Vec<f32>,
    },
    /// A server refused it for good.
    Refused(Refusal),
    /// A task that it waited for failed.
    DependencyFailed(Handle),
}

/// Why a task cannot be submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// Too many are unfinished.
    #[error("{limit} tasks are unfinished: wait for some before submitting more")]
    Full {
        /// The bound.
        limit: usize,
    },
    /// Unknown array.
    #[error("{0} is not configured: name it when the client is made")]
    UnknownArray(ArrayId),
    /// Keys or values that do not fit, as a server would find.
    #[error("{0}")]
    Malformed(Refusal),
}

/// What a client is told.
#[derive(Debug, Clone, PartialEq)]
#[allow(
    clippy::large_enum_variant,
    reason = "passed on at once: a box would cost an allocation for each message"
)]
pub enum ClientEvent {
    /// A message came: an answer, or a routing table.
    Received(Message),
    /// Time has passed; due by [`Client::next_timer`].
    Tick,
}

/// What a client wants done.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientAction {
    /// Send this.
    Send {
        /// To whom.
        to: NodeId,
        /// What.
        message: Message,
    },
    /// A task ended.
    Done {
        /// Which.
        handle: Handle,
        /// How.
        outcome: Outcome,
    },
    /// Fetch the routing table: a server has another one.
    FetchRouting,
}

struct Running {
    task: Task,
    parts: Vec<Part>,
}

/// Rows that a server sent of its own accord.
struct Fresh {
    clock: Clock,
    own: Clock,
    keys: Keys,
    values: Values,
}

/// A worker's state.
pub struct Client {
    worker: WorkerId,
    config: ClientConfig,
    arrays: BTreeMap<ArrayId, ClientArray>,
    routing: Routing,
    tasks: BTreeMap<Handle, Running>,
    fresh: BTreeMap<(ArrayId, KeyRange), Fresh>,
    next_handle: u64,
    next_request: u64,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tasks = self.tasks.iter().map(|(handle, Running { task, parts })| {
            let what = if task.work == Work::Pull { "pull" } else { "push" };
            (handle.to_string(), (what, task.array, task.range, task.clock, parts))
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
            fresh: BTreeMap::new(),
            next_handle: 0,
            next_request: 0,
        }
    }

    /// How many tasks are unfinished.
    pub fn unfinished(&self) -> usize {
        self.tasks.len()
    }

    /// Takes over a task; [`ClientAction::Done`] tells of its end.
    pub fn submit(
        &mut self,
        now: Duration,
        task: Task,
        actions: &mut Vec<ClientAction>,
    ) -> Result<Handle, SubmitError> {
        let array = self.arrays.get(&task.array).ok_or(SubmitError::UnknownArray(task.array))?;
        if self.tasks.len() >= self.config.max_tasks {
            return Err(SubmitError::Full { limit: self.config.max_tasks });
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
        self.tasks.insert(handle, Running { task, parts });
        self.send_ready(now, actions);
        Ok(handle)
    }

    /// Takes note of an event at `now`, which never goes back, and appends what is to be done.
    pub fn handle(&mut self, now: Duration, event: ClientEvent, actions: &mut Vec<ClientAction>) {
        match event {
            ClientEvent::Received(Message::PushAck(ack)) => self.pushed(ack, actions),
            ClientEvent::Received(Message::PullReply(reply)) => self.pulled(reply, actions),
            ClientEvent::Received(Message::Refused(refused)) => self.refused(now, refused, actions),
            ClientEvent::Received(Message::Routing(routing)) => self.set_routing(routing),
            ClientEvent::Received(_) => {}
            ClientEvent::Tick => self.time_out(now),
        }
        self.send_ready(now, actions);
    }

    /// When [`ClientEvent::Tick`] is due, if anything is under way.
    pub fn next_timer(&self) -> Option<Duration> {
        let parts = self.tasks.values().flat_map(|running| &running.parts);
        parts.filter_map(|part| part.due(self.config.resend)).min()
    }

    fn time_out(&mut self, now: Duration) {
        let resend = self.config.resend;
        for part in self.tasks.values_mut().flat_map(|running| &mut running.parts) {
            if part.due(resend).is_some_and(|due| due <= now) {
                part.state = State::Ready;
            }
        }
    }

    fn pushed(&mut self, ack: PushAck, actions: &mut Vec<ClientAction>) {
        if ack.worker != self.worker {
            return;
        }
        for running in self.tasks.values_mut() {
            let Running { task, parts } = running;
            if !matches!(task.work, Work::Push(_)) || task.array != ack.at.array {
                continue;
            }
            for part in parts.iter_mut().filter(|part| ack.at.range.covers(part.range)) {
                if task.clock == ack.clock {
                    part.state = State::Done { clock: ack.clock, values: Values::none() };
                } else if matches!(part.state, State::Delayed { .. }) {
                    // It may have waited for this one.
                    part.state = State::Ready;
                }
            }
        }
        self.finish(actions);
    }

    fn pulled(&mut self, reply: PullReply, actions: &mut Vec<ClientAction>) {
        let PullReply { at, request, clock, own, keys, values } = reply;
        let Some(array) = self.arrays.get(&at.array) else { return };
        if values.check(keys.len(at.range), array.width).is_err() {
            return;
        }
        let Some(request) = request else {
            // One for each shard that is read, so their number is bounded by the table's.
            let slot = (at.array, at.range);
            if self.fresh.get(&slot).is_none_or(|old| old.clock <= clock && old.own <= own)
                && self.routing.overlapping(at.array, at.range).any(|route| route.epoch == at.epoch)
            {
                self.fresh.insert(slot, Fresh { clock, own, keys, values });
            }
            return;
        };
        let mut parts = self.tasks.values_mut().flat_map(|running| &mut running.parts);
        if let Some(part) = parts.find(|part| part.request == Some(request) && part.range == at.range) {
            part.state = State::Done { clock, values };
        }
        self.finish(actions);
    }

    fn refused(&mut self, now: Duration, refused: Refused, actions: &mut Vec<ClientAction>) {
        let Refused { at, request, reason } = refused;
        let until = now + self.config.resend;
        let mut failed = None;
        for (&handle, running) in &mut self.tasks {
            let Running { task, parts } = running;
            for part in parts.iter_mut().filter(|part| part.range == at.range && part.is_under_way(at.epoch))
            {
                let is_it = match request {
                    Request::Push { worker, clock } => {
                        let is_push = matches!(task.work, Work::Push(_)) && task.array == at.array;
                        is_push && worker == self.worker && clock == task.clock
                    }
                    Request::Pull { request } => part.request == Some(request),
                    Request::Replicate { .. } | Request::Snapshot { .. } => false,
                };
                if !is_it {
                    continue;
                }
                part.state = State::Delayed { until };
                if reason.wants_routing() {
                    actions.push(ClientAction::FetchRouting);
                }
                if !reason.is_retryable() {
                    failed = Some(handle);
                }
            }
        }
        if let Some(handle) = failed {
            self.fail(handle, Outcome::Refused(reason), actions);
        }
    }

    /// Ends a task, and those that wait for it.
    fn fail(&mut self, handle: Handle, outcome: Outcome, actions: &mut Vec<ClientAction>) {
        let mut failed = vec![(handle, outcome)];
        while let Some((handle, outcome)) = failed.pop() {
            if self.tasks.remove(&handle).is_some() {
                actions.push(ClientAction::Done { handle, outcome });
                let waiting = self.tasks.iter().filter(|(_, running)| running.task.after.contains(&handle));
                failed.extend(waiting.map(|(&waiting, _)| (waiting, Outcome::DependencyFailed(handle))));
            }
        }
    }

    /// Ends the tasks of which all parts are done.
    fn finish(&mut self, actions: &mut Vec<ClientAction>) {
        let is_done = |_: &Handle, running: &mut Running| running.parts.iter().all(Part::is_done);
        for (handle, Running { task, mut parts }) in self.tasks.extract_if(.., is_done) {
            parts.sort_by_key(|part| part.range);
            let done = parts.into_iter().filter_map(|part| match part.state {
                State::Done { clock, values } => Some((clock, values)),
                _ => None,
            });
            let outcome = match task.work {
                Work::Push(_) => Outcome::Pushed,
                Work::Pull => {
                    let (mut clock, mut values) = (Clock(u64::MAX), Vec::new());
                    for (part, rows) in done {
                        clock = clock.min(part);
                        values.extend_from_slice(&rows.to_f32());
                    }
                    Outcome::Pulled { clock, values }
                }
            };
            actions.push(ClientAction::Done { handle, outcome });
        }
    }

    fn request(&mut self) -> RequestId {
        self.next_request += 1;
        RequestId(self.next_request)
    }
}
