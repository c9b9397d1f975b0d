//! Worker's side: tasks are submitted and their results awaited; one task of the runtime owns a
//! [`Client`] and its connections.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::select_all;
use parapet_parameter_server::{
    ArrayId, Client, ClientAction, ClientArray, ClientConfig, ClientEvent, Clock, Handle, KeyRange,
    Keys, Message, Peer, Pulled, Refusal, SubmitError, Task, Values, Work, WorkerId,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::connections::{Connections, Happened, Inbound};
use super::transport::Sender;
use super::wire::{HEADER_LEN, SUM_LEN};
use super::{AT_ONCE, Membership, NodeConfig, Timing};
use crate::registry::View;

const COMMANDS: usize = 1024;

/// Tasks that are not finished; more wait where they are submitted.
const MAX_TASKS: usize = 4096;

/// Parts of pulls that are under way at a time.
const MAX_PULLS: usize = 256;

/// Bytes of a message beside its keys and values, at most.
const HEADS: u64 = 256 + (HEADER_LEN + SUM_LEN) as u64;

type Answer = oneshot::Sender<Result<Option<Pulled>, TaskError>>;

type Command = (Task, Answer);

#[derive(Debug, Clone, PartialEq)]
pub struct TaskSpec {
    pub array: ArrayId,
    pub range: KeyRange,
    /// The iteration, from 1. A pull of clock c sees what the consistency model promises for c.
    pub clock: Clock,
    pub keys: Keys,
    /// Of a pull: the clock of the rows in a [`Mirror`](parapet_parameter_server::Mirror) of them.
    pub held: Clock,
}

impl TaskSpec {
    pub const fn new(array: ArrayId, range: KeyRange, clock: Clock) -> Self {
        Self { array, range, clock, keys: Keys::All, held: Clock(0) }
    }

    #[must_use]
    pub fn keys(self, keys: Keys) -> Self {
        Self { keys, ..self }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TaskError {
    #[error("{0}")]
    Submit(#[from] SubmitError),
    #[error(
        "the task takes a message of {bytes} bytes, and {limit} are the limit: cut its range, or \
            raise the limit on all nodes"
    )]
    TooLong { bytes: u64, limit: u64 },
    #[error("a server refused the task: {0}")]
    Refused(Refusal),
    #[error("the worker's connection to the cluster has been stopped: start another")]
    Stopped,
}

/// Submits tasks. Clones submit to one node; it ends when all are gone and their tasks are done.
#[derive(Debug, Clone)]
pub struct Worker {
    commands: mpsc::Sender<Command>,
    finishes: CancellationToken,
    arrays: Arc<[(ArrayId, ClientArray)]>,
    max_frame: u64,
}

impl Worker {
    /// Starts the node of a worker that uses these arrays. `worker` is the number of one life.
    pub fn start(
        worker: WorkerId,
        arrays: Vec<(ArrayId, ClientArray)>,
        config: NodeConfig,
        membership: Membership,
    ) -> Self {
        let (timing, max_frame) = (config.timing, config.bounds.max_frame);
        let core = ClientConfig {
            resend: timing.client_resend(),
            retry: timing.client_retry(),
            max_pulls: MAX_PULLS,
            max_tasks: MAX_TASKS,
        };
        let (sender, commands) = mpsc::channel(COMMANDS);
        let finishes = CancellationToken::new();
        let node = ClientNode {
            client: Client::new(worker, core, arrays.clone()),
            timing,
            view: membership.view.clone(),
            connections: Connections::new(Peer::Worker(worker), config, membership),
            commands,
            finishes: finishes.clone(),
            running: BTreeMap::new(),
            since: Instant::now(),
            actions: Vec::new(),
        };
        tokio::spawn(node.run());
        Self { commands: sender, finishes, arrays: arrays.into(), max_frame }
    }

    /// Ends the node when all tasks are done, or a connection is lost: another process may connect as
    /// this worker, and two would take the connections from each other.
    pub fn finish(self) {
        self.finishes.cancel();
    }

    /// Adds gradients: `keys x width` numbers. Waits for room, not for the push: the result is done
    /// when every replica has it.
    ///
    /// # Errors
    /// If the message would be too long, or the node has stopped.
    pub async fn push(&self, spec: TaskSpec, values: Values) -> Result<Pending<()>, TaskError> {
        let bytes = values.as_bytes().len() as u64;
        self.submit(spec, Work::Push(values), bytes, |_| ()).await
    }

    pub async fn pull(&self, spec: TaskSpec) -> Result<Pending<Pulled>, TaskError> {
        let array = self.arrays.iter().find(|(id, _)| *id == spec.array);
        let width = array.map_or(1, |(_, array)| array.width) as u64;
        let rows = spec.keys.len(spec.range) as u64;
        let bytes = rows.saturating_mul(width).saturating_mul(4);
        let finish = Option::unwrap_or_default;
        let work = Work::Pull { held: spec.held };
        self.submit(spec, work, bytes, finish).await
    }

    async fn submit<R>(
        &self,
        spec: TaskSpec,
        work: Work,
        bytes: u64,
        finish: fn(Option<Pulled>) -> R,
    ) -> Result<Pending<R>, TaskError> {
        let listed = match &spec.keys {
            Keys::List(keys) => keys.as_bytes().len() as u64,
            Keys::All => 0,
        };
        let (bytes, limit) = (bytes.saturating_add(listed + HEADS), self.max_frame);
        if bytes > limit {
            return Err(TaskError::TooLong { bytes, limit });
        }
        let task =
            Task { work, array: spec.array, range: spec.range, keys: spec.keys, clock: spec.clock };
        let (answer, receiver) = oneshot::channel();
        let sent = self.commands.send((task, answer)).await;
        sent.map_err(|_| TaskError::Stopped)?;
        Ok(Pending { receiver, finish })
    }
}

/// A task under way; await it for what it gives. Dropping it does not end the task.
#[derive(Debug)]
#[must_use = "a task may fail"]
pub struct Pending<R> {
    receiver: oneshot::Receiver<Result<Option<Pulled>, TaskError>>,
    finish: fn(Option<Pulled>) -> R,
}

impl<R> Future for Pending<R> {
    type Output = Result<R, TaskError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = Pin::new(&mut self.receiver).poll(context);
        answer.map(|answer| answer.unwrap_or(Err(TaskError::Stopped)).map(self.finish))
    }
}

struct ClientNode {
    client: Client,
    timing: Timing,
    connections: Connections,
    view: watch::Receiver<Arc<View>>,
    commands: mpsc::Receiver<Command>,
    finishes: CancellationToken,
    running: BTreeMap<Handle, Answer>,
    since: Instant,
    actions: Vec<ClientAction>,
}

impl ClientNode {
    /// Works until every [`Worker`] is gone and all tasks are done, or it is stopped.
    async fn run(mut self) {
        let (mut ticks, mut heartbeats) = (self.timing.ticks(), self.timing.heartbeats());
        let mut inbound = Vec::with_capacity(AT_ONCE);
        let mut commands = Vec::with_capacity(AT_ONCE);
        let mut open = true;
        self.update_view();
        while open || self.client.unfinished() > 0 {
            self.tell(ClientEvent::SendRoom(self.connections.send_room()));
            let room = MAX_TASKS.saturating_sub(self.client.unfinished());
            let full = self.full_queues();
            tokio::select! {
                biased;
                // If the registry is gone for good, its last word stays.
                Ok(()) = self.view.changed() => self.update_view(),
                _ = heartbeats.tick() => self.connections.heartbeat(),
                _ = ticks.tick() => {
                    if self.client.next_timer().is_some_and(|due| due <= self.now()) {
                        self.tell(ClientEvent::Tick);
                    }
                }
                () = self.connections.recv(&mut inbound) => {
                    for item in inbound.drain(..) {
                        if matches!(item, Inbound::Closed(_)) && self.finishes.is_cancelled() {
                            return;
                        }
                        self.take(item);
                    }
                }
                // What waits for room goes before what is new.
                () = room_in_any(&full), if !full.is_empty() => {}
                taken = self.commands.recv_many(&mut commands, room.min(AT_ONCE)),
                    if open && room > 0 && full.is_empty() => {
                    open = taken > 0;
                    for command in commands.drain(..) {
                        self.submit(command);
                    }
                }
            }
        }
    }

    /// Queues whose room the client waits for.
    fn full_queues(&self) -> Vec<Sender> {
        let held_back = self.client.held_back();
        if held_back.is_empty() {
            return self.connections.long_server().into_iter().collect();
        }
        let senders = held_back.iter().map(|&node| self.connections.sender(node));
        senders.flatten().collect()
    }

    fn now(&self) -> Duration {
        self.since.elapsed()
    }

    fn take(&mut self, item: Inbound) {
        match self.connections.take(item) {
            Some(Happened::Message(Peer::Server(_), message)) => {
                self.tell(ClientEvent::Received(message));
            }
            // Also what was given to it while there was no connection.
            Some(Happened::Up(Peer::Server(node))) => self.tell(ClientEvent::Disconnected(node)),
            Some(_) | None => {}
        }
    }

    fn update_view(&mut self) {
        let view = Arc::clone(&self.view.borrow_and_update());
        self.connections.follow(&view);
        let routing = view.table.routing.clone();
        self.tell(ClientEvent::Received(Message::Routing(routing)));
    }

    fn submit(&mut self, (task, answer): Command) {
        let now = self.now();
        let mut actions = std::mem::take(&mut self.actions);
        match self.client.submit(now, task, &mut actions) {
            Ok(handle) => {
                self.running.insert(handle, answer);
            }
            Err(error) => {
                let _ = answer.send(Err(error.into()));
            }
        }
        self.act(actions);
    }

    fn tell(&mut self, event: ClientEvent) {
        let now = self.now();
        let mut actions = std::mem::take(&mut self.actions);
        self.client.handle(now, event, &mut actions);
        self.act(actions);
    }

    fn act(&mut self, mut actions: Vec<ClientAction>) {
        for action in actions.drain(..) {
            match action {
                ClientAction::Send { to, message } => {
                    self.connections.send(Peer::Server(to), message);
                }
                ClientAction::Done { handle, outcome } => {
                    if let Some(answer) = self.running.remove(&handle) {
                        // The receiver may have been dropped.
                        let _ = answer.send(outcome.map_err(TaskError::Refused));
                    }
                }
            }
        }
        self.actions = actions;
    }
}

async fn room_in_any(senders: &[Sender]) {
    let rooms = senders.iter().map(|sender| Box::pin(sender.room()));
    select_all(rooms).await;
}
