//! Tasks that make connections and receive from them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parapet_parameter_server::{NodeId, Peer};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time;

use super::{TURN, UNIT};
use crate::node::Timing;
use crate::node::transport::{
    Connection, Listener, Local, Reason, Sender, Transport, TransportError, peer_at,
};
use crate::node::wire::Frame;

/// Handshakes with those who connect, at once.
const HANDSHAKES: usize = 64;

#[derive(Debug)]
pub(in crate::node) enum Inbound {
    Connected {
        id: u64,
        peer: Peer,
        sender: Sender,
        interest: oneshot::Sender<()>,
    },
    Frame {
        id: u64,
        frame: Frame,
        cost: usize,
        /// The frame's part of the inbox's bytes.
        bytes: Option<OwnedSemaphorePermit>,
    },
    Closed(u64),
    Unreachable(NodeId),
}

#[derive(Debug, Clone)]
pub(super) struct Shared {
    pub(super) transport: Transport,
    pub(super) local: Arc<Local>,
    pub(super) inbox: mpsc::Sender<Inbound>,
    pub(super) budget: Arc<Semaphore>,
    pub(super) units: u32,
    pub(super) gate: watch::Receiver<bool>,
    pub(super) timing: Timing,
    pub(super) next_id: Arc<AtomicU64>,
}

impl Shared {
    pub(super) async fn accept(self, mut listener: Listener) {
        let permits = Arc::new(Semaphore::new(HANDSHAKES));
        while let Ok(permit) = Arc::clone(&permits).acquire_owned().await {
            let handshake = match listener.accept().await {
                Ok(handshake) => handshake,
                Err(error) => {
                    // Out of file descriptors, for example: others may be given back.
                    tracing::warn!(%error, "no connection taken");
                    time::sleep(self.timing.heartbeat).await;
                    continue;
                }
            };
            let shared = self.clone();
            tokio::spawn(async move {
                let connected = handshake.await;
                drop(permit);
                match connected {
                    Ok(connection) => drop(shared.serve(connection).await),
                    Err(error) => tracing::warn!(%error, "connection refused"),
                }
            });
        }
    }

    pub(super) async fn dial(self, address: String, node: NodeId) {
        let timing = self.timing;
        let mut backoff = timing.first_backoff();
        loop {
            let connected = self.transport.connect(&address, &self.local).await;
            let connected = connected.and_then(|connection| match connection.peer {
                peer if peer == Peer::Server(node) => Ok(connection),
                // Another process has the address now.
                peer => Err(Reason::Closed.at(&peer_at(peer, &address))),
            });
            match connected {
                Ok(connection) => {
                    let since = time::Instant::now();
                    if !self.serve(connection).await {
                        return;
                    }
                    if since.elapsed() > timing.silence() {
                        backoff = timing.first_backoff();
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, %node, "not reached");
                    let told = self.inbox.send(Inbound::Unreachable(node)).await;
                    if told.is_err() {
                        return;
                    }
                }
            }
            time::sleep(backoff).await;
            backoff = (backoff * 2).min(timing.silence());
        }
    }

    /// Tells the node of a connection, and hands on what comes until it is lost. Returns true if
    /// the node is still there.
    async fn serve(&self, connection: Connection) -> bool {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (interest, given_up) = oneshot::channel();
        let connected = Inbound::Connected {
            id,
            peer: connection.peer,
            sender: connection.sender.clone(),
            interest,
        };
        if self.inbox.send(connected).await.is_err() {
            return false;
        }
        tokio::select! {
            biased;
            _ = given_up => return !self.inbox.is_closed(),
            error = self.receive(id, connection) => {
                tracing::info!(%error, "connection lost");
            }
        }
        self.inbox.send(Inbound::Closed(id)).await.is_ok()
    }

    async fn receive(&self, id: u64, connection: Connection) -> TransportError {
        let (peer, sender, mut receiver) =
            (connection.peer, connection.sender, connection.receiver);
        let lost = |reason: Reason| reason.at(&peer_at(peer, "its connection"));
        let progress = Arc::clone(&receiver.progress);
        let mut heartbeats = self.timing.heartbeats();
        let mut gate = self.gate.clone();
        let (mut seen, mut missed, mut received) = (0, 0, 0);
        loop {
            let mut frame = tokio::select! {
                biased;
                frame = receiver.recv() => match frame {
                    Ok(frame) => frame,
                    Err(error) => return error,
                },
                _ = heartbeats.tick() => {
                    let now = progress.load(Ordering::Relaxed);
                    missed = if now == seen { missed + 1 } else { 0 };
                    seen = now;
                    if missed > Timing::MISSED {
                        return lost(Reason::Silent(self.timing.silence()));
                    }
                    continue;
                }
            };
            if matches!(frame, Frame::Heartbeat) {
                continue;
            }
            // Answers, and what servers say to one another, never wait: two that wait for each
            // other would wait forever.
            if matches!(peer, Peer::Worker(_)) {
                sender.room().await;
                // An error says that the node is gone, which the inbox says below.
                let _ = gate.wait_for(|closed| !closed).await;
            }
            let cost = frame.cost();
            let bytes = match u32::try_from(cost / UNIT).unwrap_or(u32::MAX) {
                0 => None,
                units => {
                    let budget = Arc::clone(&self.budget);
                    budget.acquire_many_owned(units.min(self.units)).await.ok()
                }
            };
            let inbound = Inbound::Frame { id, frame, cost, bytes };
            if self.inbox.send(inbound).await.is_err() {
                return lost(Reason::Closed);
            }
            received += cost;
            if received >= TURN {
                received = 0;
                tokio::task::yield_now().await;
            }
        }
    }
}
