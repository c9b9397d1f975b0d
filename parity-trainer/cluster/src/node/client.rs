//! Worker's side: one task that owns a [`Client`] and its connections.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::select_all;
use parapet_parameter_server::{
    ArrayFilters, ArrayId, Client, ClientAction, ClientArray, ClientConfig, ClientEvent, Handle,
    Message, Peer, TaskOutcome, WorkerId,
};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::connections::{Connections, Happened, Inbound};
use super::membership::{KnownView, Membership};
use super::transport::{Sender, Transport};
use super::worker::{Answer, Command, TaskError, Worker};
use super::{AT_ONCE, Bounds, Counters, Timing};
use crate::registry::{Report, ReportChange};

/// Tasks that are not finished; more wait where they are submitted.
const MAX_TASKS: usize = 4096;

/// Parts of pulls that are under way at a time.
const MAX_PULLS: usize = 256;

/// Settings of a worker's node.
#[derive(Debug, Clone)]
pub struct ClientNodeConfig {
    /// Its number: one life of a worker.
    pub worker: WorkerId,
    pub cluster: String,
    /// The arrays that it uses.
    pub arrays: Vec<(ArrayId, ClientArray)>,
    /// Filters on what it sends (those that the receiver undoes; others are applied before a push
    /// is submitted).
    pub filters: Vec<(ArrayId, ArrayFilters)>,
    pub timing: Timing,
    pub bounds: Bounds,
}

impl ClientNodeConfig {
    /// With the usual bounds.
    pub fn new(worker: WorkerId, arrays: Vec<(ArrayId, ClientArray)>) -> Self {
        Self {
            worker,
            cluster: "parapet".into(),
            arrays,
            filters: Vec::new(),
            timing: Timing::default(),
            bounds: Bounds::default(),
        }
    }
}

/// A worker's connection to the cluster, to be run; [`Worker`]s submit tasks to it.
#[derive(Debug)]
pub struct ClientNode<T: Transport> {
    client: Client,
    timing: Timing,
    connections: Connections<T>,
    membership: Membership,
    known: KnownView,
    commands: mpsc::Receiver<Command>,
    /// Awaited answers of tasks.
    running: BTreeMap<Handle, Answer>,
    since: Instant,
    actions: Vec<ClientAction>,
}

impl<T: Transport> ClientNode<T> {
    /// A node and the handle to submit tasks with. Nothing happens before [`ClientNode::run`].
    pub fn new(config: ClientNodeConfig, transport: T, membership: Membership) -> (Self, Worker) {
        let ClientNodeConfig { timing, bounds, .. } = config;
        let core = ClientConfig {
            resend: timing.client_resend(),
            retry: timing.client_retry(),
            max_pulls: MAX_PULLS,
            max_tasks: MAX_TASKS,
        };
        let (worker, commands) = Worker::new(config.arrays.clone(), bounds.max_frame);
        let own = Peer::Worker(config.worker);
        let connections = Connections::new(
            transport,
            own,
            config.cluster,
            timing,
            bounds,
            config.filters,
        );
        let node = Self {
            client: Client::new(config.worker, core, config.arrays),
            timing,
            connections,
            membership,
            known: KnownView::default(),
            commands,
            running: BTreeMap::new(),
            since: Instant::now(),
            actions: Vec::new(),
        };
        (node, worker)
    }

    /// Starts a node in a task that ends when the last [`Worker`] is gone and its tasks are done.
    pub fn start(config: ClientNodeConfig, transport: T, membership: Membership) -> Worker {
        let (mut node, worker) = Self::new(config, transport, membership);
        tokio::spawn(async move { node.run().await });
        worker
    }

    /// Returns the counts of messages so far.
    pub fn counters(&self) -> Counters {
        self.connections.counters()
    }

    /// Works until every [`Worker`] is gone and all tasks are done.
    pub async fn run(&mut self) {
        let (mut ticks, mut heartbeats) = (self.timing.ticks(), self.timing.heartbeats());
        let mut inbound = Vec::with_capacity(AT_ONCE);
        let mut commands = Vec::with_capacity(AT_ONCE);
        let mut open = true;
        self.update_view();
        while open || self.client.unfinished() > 0 {
            self.tell(ClientEvent::SendRoom(self.connections.send_room()));
            let room = MAX_TASKS
                .saturating_sub(self.client.unfinished())
                .min(AT_ONCE);
            let full = self.full_queues();
            tokio::select! {
                biased;
                // If the registry is gone for good, its last word stays.
                Ok(()) = self.membership.view.changed() => self.update_view(),
                _ = heartbeats.tick() => self.connections.heartbeat(),
                _ = ticks.tick() => {
                    if self.client.next_timer().is_some_and(|due| due <= self.now()) {
                        self.tell(ClientEvent::Tick);
                    }
                }
                () = self.connections.recv(&mut inbound) => {
                    for item in inbound.drain(..) {
                        self.take(item);
                    }
                }
                // What waits for room goes before what is new.
                () = room_in_any(&full), if !full.is_empty() => {}
                taken = self.commands.recv_many(&mut commands, room),
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
        let senders = held_back
            .iter()
            .filter_map(|&node| self.connections.sender(node));
        senders.collect()
    }

    fn now(&self) -> Duration {
        self.since.elapsed()
    }

    fn take(&mut self, item: Inbound) {
        match self.connections.take(item) {
            Some(Happened::Message(Peer::Server(_), message)) => {
                self.tell(ClientEvent::Received(message));
            }
            Some(Happened::Up(Peer::Server(node))) => {
                self.report(ReportChange::Retracted(Report::Suspect(node)));
                // Also what was given to it while there was no connection.
                self.tell(ClientEvent::Disconnected(node));
            }
            Some(Happened::Down(Peer::Server(node))) => {
                self.report(ReportChange::Made(Report::Suspect(node)));
            }
            Some(_) | None => {}
        }
    }

    /// Reports what is said again with every further attempt to connect.
    fn report(&self, change: ReportChange) {
        let _ = self.membership.reports.try_send(change);
    }

    fn update_view(&mut self) {
        let view = Arc::clone(&self.membership.view.borrow_and_update());
        for (array, spec) in self.known.update(&view) {
            self.connections.define(array, spec.filters.into());
        }
        self.connections.keep(self.known.addresses.iter());
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
                ClientAction::Done { handle, outcome } => self.done(handle, outcome),
            }
        }
        self.actions = actions;
    }

    fn done(&mut self, handle: Handle, outcome: TaskOutcome) {
        let Some(answer) = self.running.remove(&handle) else {
            return;
        };
        // The receiver may have been dropped.
        let _ = answer.send(outcome.map_err(TaskError::Refused));
    }
}

/// Waits until one of these queues is not long.
async fn room_in_any(senders: &[Sender]) {
    let rooms = senders.iter().map(|sender| Box::pin(sender.room()));
    select_all(rooms).await;
}
