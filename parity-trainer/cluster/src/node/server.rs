//! A server process's heart: one task that owns a [`Server`] and all of its connections.

use std::sync::Arc;
use std::time::Duration;

use parapet_parameter_server::{
    Action, ArrayConfig, ArrayId, Event, HandOver, Members, Message, NodeId, Peer, Server,
    ServerConfig,
};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::connections::{Connections, Happened, Inbound, TURN};
use super::transport::TransportError;
use super::{AT_ONCE, Counters, Membership, NodeConfig, Timing};
use crate::registry::Report;

/// Requests of [`ServerHandle`]s that wait for their turn.
const INSPECTIONS: usize = 16;

type Inspection = Box<dyn FnOnce(&Server, Counters) + Send>;

/// Reaches a server while it runs, for metrics and tests. Clones reach the same one.
#[derive(Debug, Clone)]
pub struct ServerHandle(mpsc::Sender<Inspection>);

impl ServerHandle {
    /// Returns what `look` makes of the state machine and the counters, between two messages; the
    /// server does nothing else meanwhile. `None` if it does not run any more.
    pub async fn look<R: Send + 'static>(
        &self,
        look: impl FnOnce(&Server, Counters) -> R + Send + 'static,
    ) -> Option<R> {
        let (answer, result) = oneshot::channel();
        let inspection: Inspection = Box::new(move |server, counters| {
            let _ = answer.send(look(server, counters));
        });
        self.0.send(inspection).await.ok()?;
        result.await.ok()
    }
}

#[derive(Debug)]
pub struct ServerNode {
    server: Server,
    timing: Timing,
    connections: Connections,
    membership: Membership,
    address: String,
    handle: ServerHandle,
    inspections: mpsc::Receiver<Inspection>,
    since: Instant,
    actions: Vec<Action>,
}

impl ServerNode {
    /// Listens at `listen`, `HOST:PORT`; port 0 for any that is free. Nothing else happens before
    /// [`ServerNode::run`]. `node` is the number of one life of a process: a restarted one has
    /// another. All servers have the same `arrays`, and those that the registry describes.
    pub async fn bind(
        node: NodeId,
        listen: &str,
        arrays: Vec<(ArrayId, ArrayConfig)>,
        config: NodeConfig,
        membership: Membership,
    ) -> Result<Self, TransportError> {
        let (timing, bounds) = (config.timing, config.bounds);
        let mut connections = Connections::new(Peer::Server(node), config, membership.clone());
        let address = connections.listen(listen).await?;
        let core = ServerConfig {
            resend: timing.server_resend(),
            forget: timing.forget(),
            pooled: bounds.pooled,
            ..ServerConfig::default()
        };
        let (sender, inspections) = mpsc::channel(INSPECTIONS);
        Ok(Self {
            server: Server::new(node, core, arrays),
            timing,
            connections,
            membership,
            address,
            handle: ServerHandle(sender),
            inspections,
            since: Instant::now(),
            actions: Vec::new(),
        })
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn handle(&self) -> ServerHandle {
        self.handle.clone()
    }

    /// Serves until `stop` is done. Until then, dropping the future ends it like a crash.
    pub async fn run(&mut self, stop: impl Future<Output = ()>) {
        tokio::pin!(stop);
        let (mut ticks, mut heartbeats) = (self.timing.ticks(), self.timing.heartbeats());
        let mut inbound = Vec::with_capacity(AT_ONCE);
        self.update_view();
        loop {
            let parked = self.connections.parked();
            tokio::select! {
                biased;
                () = &mut stop => return,
                // If the registry is gone for good, its last word stays.
                Ok(()) = self.membership.view.changed() => self.update_view(),
                _ = heartbeats.tick() => self.connections.heartbeat(),
                _ = ticks.tick() => {
                    if self.server.next_timer().is_some_and(|due| due <= self.now()) {
                        self.tell(Event::Tick);
                    }
                }
                Some(inspect) = self.inspections.recv() => {
                    inspect(&self.server, self.connections.counters());
                }
                () = async { if let Some(parked) = &parked { parked.room().await } },
                    if parked.is_some() => {}
                () = self.connections.recv(&mut inbound) => {}
            }
            while let Some(happened) = self.connections.take_parked() {
                self.happened(happened);
            }
            let mut handled = 0;
            for item in inbound.drain(..) {
                if let Inbound::Frame { cost, .. } = &item {
                    handled += cost;
                }
                if let Some(happened) = self.connections.take(item) {
                    self.happened(happened);
                }
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

    fn happened(&mut self, happened: Happened) {
        match happened {
            Happened::Message(from, message) => self.tell(Event::Received { from, message }),
            Happened::Up(Peer::Server(node)) => self.tell(Event::Connected(node)),
            Happened::Up(Peer::Worker(_)) => {}
        }
    }

    fn update_view(&mut self) {
        let view = Arc::clone(&self.membership.view.borrow_and_update());
        let own = self.server.node();
        for (array, spec) in self.connections.follow(&view) {
            self.server.define(array, spec.server());
        }
        self.tell(Event::Members(Members {
            version: view.workers.version,
            workers: view.workers.workers.clone(),
        }));
        self.tell(Event::Received {
            from: Peer::Server(own),
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
                Action::Propose { at, add: to } => {
                    let hand_over = HandOver { at, to };
                    self.membership.report(Report::Propose(hand_over));
                }
                Action::Lost { at } => self.membership.report(Report::Lost(at)),
                Action::CopyRefused { at, to, reason } => {
                    let (array, range) = (at.array, at.range);
                    tracing::error!(
                        "{to} cannot join the chain of {array}, keys {range}: {reason}"
                    );
                }
            }
        }
        self.actions = actions;
    }
}
