//! A server process's heart: one task that owns a [`Server`] and all of its connections.

mod handle;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parapet_parameter_server::{
    Action, ArrayConfig, ArrayFilters, ArrayId, Event, HandOver, Message, NodeId, Peer, Server,
    ServerConfig,
};
use tokio::sync::mpsc;
use tokio::time::{self, Instant, MissedTickBehavior};

use crate::node::Timing;
use crate::node::connections::{Connections, Happened, Inbound};
use crate::node::membership::{Known, Membership};
use crate::node::transport::{Local, Transport, TransportError};
use crate::node::wire::Hello;
use crate::registry::{Report, ReportChange};
use handle::Look;
pub use handle::ServerHandle;

/// Things taken from the inbox at a time.
const AT_ONCE: usize = 128;

/// Bytes of messages after which other tasks get their turn: answers leave while further
/// messages are handled.
const TURN: usize = 512 * 1024;

/// Reports that wait for room.
const REPORTS: usize = 4096;

/// Settings of a server's node.
#[derive(Debug, Clone)]
pub struct ServerNodeConfig {
    /// Its number: one life of a process. A restarted process has another.
    pub node: NodeId,
    pub cluster: String,
    /// Where it takes connections, `HOST:PORT`; port 0 for any that is free.
    pub listen: String,
    /// The arrays; every server has the same.
    pub arrays: Vec<(ArrayId, ArrayConfig)>,
    /// Filters on what it sends.
    pub filters: Vec<(ArrayId, ArrayFilters)>,
    /// Intervals and timeouts.
    pub timing: Timing,
    /// The longest message, in bytes; all nodes of a cluster must have the same.
    pub max_frame: u64,
    /// Bytes to one peer that wait to be sent, before its requests wait.
    pub queue: usize,
    /// Bytes of received messages that wait to be handled.
    pub inbox: usize,
    /// Bytes of vectors that each connection keeps to be read into again, and the server
    /// to answer with.
    pub pooled: usize,
}

impl ServerNodeConfig {
    /// With the usual bounds, at any free port of this machine.
    pub fn new(node: NodeId, arrays: Vec<(ArrayId, ArrayConfig)>) -> Self {
        Self {
            node,
            cluster: "parapet".into(),
            listen: "127.0.0.1:0".into(),
            arrays,
            filters: Vec::new(),
            timing: Timing::default(),
            max_frame: 256 << 20,
            queue: 16 << 20,
            inbox: 64 << 20,
            pooled: 32 << 20,
        }
    }

    fn local(&self) -> Local {
        let peer = Peer::Server(self.node);
        Local {
            hello: Hello {
                peer,
                cluster: self.cluster.clone(),
                max_frame: self.max_frame,
            },
            queue: self.queue,
            pooled: self.pooled,
            handshake: self.timing.connect(),
        }
    }
}

/// A server that listens and is to be run.
pub struct ServerNode<T: Transport> {
    server: Server,
    timing: Timing,
    connections: Connections<T>,
    membership: Membership,
    known: Known,
    address: String,
    handle: ServerHandle,
    asked: mpsc::Receiver<Look>,
    /// Reports that found no room.
    waiting: Vec<ReportChange>,
    since: Instant,
    actions: Vec<Action>,
}

impl<T: Transport> fmt::Debug for ServerNode<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {}", self.server, self.address)
    }
}

impl<T: Transport> ServerNode<T> {
    /// Listens. Nothing else happens before [`ServerNode::run`].
    ///
    /// # Errors
    /// If the address cannot be listened at.
    pub async fn bind(
        config: ServerNodeConfig,
        transport: T,
        membership: Membership,
    ) -> Result<Self, TransportError> {
        let local = Arc::new(config.local());
        let mut connections = Connections::new(
            transport,
            local,
            config.timing,
            config.inbox,
            config.filters,
        );
        let address = connections.listen(&config.listen).await?;
        let core = ServerConfig {
            resend: config.timing.server_resend(),
            forget: config.timing.forget(),
            pooled: config.pooled,
            ..ServerConfig::default()
        };
        let (handle, asked) = ServerHandle::new();
        Ok(Self {
            handle,
            asked,
            server: Server::new(config.node, core, config.arrays),
            timing: config.timing,
            connections,
            membership,
            known: Known::default(),
            address,
            waiting: Vec::new(),
            since: Instant::now(),
            actions: Vec::new(),
        })
    }

    /// Where it takes connections.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// To look into it while it runs.
    pub fn handle(&self) -> ServerHandle {
        self.handle.clone()
    }

    /// Serves until `stop` is done. Until then, dropping the future ends it like a crash.
    pub async fn run(&mut self, stop: impl Future<Output = ()>) {
        tokio::pin!(stop);
        let mut tick = interval(self.timing.tick());
        let mut heartbeat = interval(self.timing.heartbeat);
        let mut inbound = Vec::with_capacity(AT_ONCE);
        self.look();
        loop {
            let parked = self.connections.parked();
            tokio::select! {
                biased;
                () = &mut stop => return,
                // If the registry is gone for good, its last word stays.
                Ok(()) = self.membership.view.changed() => self.look(),
                _ = heartbeat.tick() => {
                    self.connections.heartbeat();
                    self.report_waiting();
                }
                _ = tick.tick() => self.tick(),
                Some(look) = self.asked.recv() => look(&self.server, self.connections.counters()),
                () = async { if let Some(parked) = &parked { parked.room().await } },
                    if parked.is_some() => {}
                () = self.connections.recv(&mut inbound, AT_ONCE) => {}
            }
            while let Some(happened) = self.connections.take_parked() {
                self.happened(happened);
            }
            let mut handled = 0;
            for item in inbound.drain(..) {
                if let Inbound::Frame { frame, .. } = &item {
                    handled += frame.cost();
                }
                self.take(item);
                if handled > TURN {
                    handled = 0;
                    tokio::task::yield_now().await;
                }
            }
            self.connections.update_gate();
        }
    }

    fn now(&self) -> Duration {
        self.since.elapsed()
    }

    fn take(&mut self, item: Inbound) {
        if let Some(happened) = self.connections.take(item) {
            self.happened(happened);
        }
    }

    fn happened(&mut self, happened: Happened) {
        match happened {
            Happened::Message(from, message) => self.tell(Event::Received { from, message }),
            Happened::Up(Peer::Server(node)) => {
                self.report(ReportChange::Retracted(Report::Suspect(node)));
            }
            Happened::Down(Peer::Server(node)) | Happened::Unreachable(node) => {
                self.report(ReportChange::Made(Report::Suspect(node)));
            }
            // The registry hears of workers from themselves.
            Happened::Up(Peer::Worker(_)) | Happened::Down(Peer::Worker(_)) => {}
        }
    }

    fn tick(&mut self) {
        if self
            .server
            .next_timer()
            .is_some_and(|due| due <= self.now())
        {
            self.tell(Event::Tick);
        }
    }

    /// Takes note of the registry's view.
    fn look(&mut self) {
        let view = Arc::clone(&self.membership.view.borrow_and_update());
        let own = self.server.node();
        for (array, spec) in self.known.update(&view) {
            self.server.define(array, spec.server());
            self.connections.define(array, spec.filters.into());
        }
        let servers = self.known.addresses().iter();
        let later = servers.filter(|(node, _)| **node > own);
        self.connections
            .keep(later.map(|(&node, address)| (node, address.clone())));
        let from = Peer::Server(own);
        self.tell(Event::Members {
            version: view.workers.version,
            workers: view.workers.workers.clone(),
        });
        self.tell(Event::Received {
            from,
            message: Message::Routing(view.table.routing.clone()),
        });
        for &HandOver { at, to } in &view.table.hand_overs {
            self.tell(Event::HandOver { at, to });
        }
    }

    fn tell(&mut self, event: Event) {
        let now = self.now();
        let mut actions = std::mem::take(&mut self.actions);
        self.server.handle(now, event, &mut actions);
        for action in actions.drain(..) {
            match action {
                Action::Send { to, message } => self.connections.send(to, message),
                Action::Propose { at, add } => {
                    let hand_over = HandOver { at, to: add };
                    self.report(ReportChange::Made(Report::Propose(hand_over)));
                }
                Action::Lost { at } => self.report(ReportChange::Made(Report::Lost(at))),
                Action::CopyRefused { at, to, reason } => {
                    let (array, range) = (at.array, at.range);
                    tracing::error!(
                        "server {to} cannot join the chain of {array}, keys {range}: {reason}"
                    );
                }
            }
        }
        self.actions = actions;
    }

    fn report(&mut self, report: ReportChange) {
        if self.membership.reports.try_send(report).is_err()
            && self.waiting.len() < REPORTS
            && !self.waiting.contains(&report)
        {
            self.waiting.push(report);
        }
    }

    fn report_waiting(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_iter().for_each(|report| self.report(report));
    }
}

pub(crate) fn interval(period: Duration) -> time::Interval {
    let mut interval = time::interval(period.max(Duration::from_millis(1)));
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}
