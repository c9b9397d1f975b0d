//! Tasks that make connections and receive from them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parapet_parameter_server::{NodeId, Peer};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{self, MissedTickBehavior};

use super::{HANDSHAKES, Inbound, Shared, TURN, UNIT};
use crate::node::Timing;
use crate::node::transport::{
    Connection, Listener, Local, Reason, Receiver, Sender, Transport, TransportError, Who,
};
use crate::node::wire::Frame;

/// Shakes hands with those who connect.
pub(super) async fn accept(mut listener: impl Listener, shared: Shared) {
    let permits = Arc::new(Semaphore::new(HANDSHAKES));
    while let Ok(permit) = Arc::clone(&permits).acquire_owned().await {
        let handshake = match listener.accept().await {
            Ok(handshake) => handshake,
            Err(error) => {
                // Out of file descriptors, for example: others may be given back.
                tracing::warn!(%error, "no connection taken");
                time::sleep(shared.timing.heartbeat).await;
                continue;
            }
        };
        let shared = shared.clone();
        tokio::spawn(async move {
            let connected = handshake.await;
            drop(permit);
            let connection = match connected {
                Ok(connection) => connection,
                Err(error) => return tracing::warn!(%error, "connection refused"),
            };
            serve(connection, &shared).await;
        });
    }
}

/// Tells the node of a connection, and hands on what comes until it is lost. Whether the node
/// is still there.
async fn serve(connection: Connection, shared: &Shared) -> bool {
    let Connection {
        peer,
        sender,
        receiver,
    } = connection;
    let id = shared.next_id.fetch_add(1, Ordering::Relaxed);
    let (interest, given_up) = oneshot::channel();
    let connected = Inbound::Connected {
        id,
        peer,
        sender: sender.clone(),
        interest,
    };
    if shared.inbox.send(connected).await.is_err() {
        return false;
    }
    let error = tokio::select! {
        biased;
        _ = given_up => return !shared.inbox.is_closed(),
        error = receive(id, peer, receiver, &sender, shared) => error,
    };
    shared
        .inbox
        .send(Inbound::Closed { id, error })
        .await
        .is_ok()
}

/// Keeps a connection to a server.
pub(super) async fn dial<T: Transport>(
    transport: T,
    address: String,
    node: NodeId,
    local: Arc<Local>,
    shared: Shared,
) {
    let timing = shared.timing;
    let mut backoff = timing.first_backoff();
    loop {
        let connected = transport.connect(&address, Arc::clone(&local)).await;
        let connected = connected.and_then(|connection| match connection.peer {
            peer if peer == Peer::Server(node) => Ok(connection),
            // Another process has the address now.
            peer => Err(TransportError {
                who: Who::Peer(peer, address.clone()),
                reason: Reason::Closed,
            }),
        });
        match connected {
            Ok(connection) => {
                let since = time::Instant::now();
                if !serve(connection, &shared).await {
                    return;
                }
                if since.elapsed() > timing.silence() {
                    backoff = timing.first_backoff();
                }
            }
            Err(error) => {
                if shared
                    .inbox
                    .send(Inbound::Unreachable { node, error })
                    .await
                    .is_err()
                {
                    return;
                }
            }
        }
        time::sleep(backoff).await;
        backoff = (backoff * 2).min(timing.longest_backoff());
    }
}

/// Hands on what comes until the connection is lost.
async fn receive(
    id: u64,
    peer: Peer,
    mut receiver: Receiver,
    sender: &Sender,
    shared: &Shared,
) -> TransportError {
    let progress = receiver.progress();
    let mut tick = time::interval(shared.timing.heartbeat);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut seen, mut missed) = (0, 0);
    let mut received = 0;
    let is_worker = matches!(peer, Peer::Worker(_));
    loop {
        let frame = tokio::select! {
            biased;
            frame = receiver.recv() => match frame {
                Ok(frame) => frame,
                Err(error) => return error,
            },
            _ = tick.tick() => {
                let now = progress.load(Ordering::Relaxed);
                missed = if now == seen { missed + 1 } else { 0 };
                seen = now;
                if missed > Timing::MISSED {
                    let reason = Reason::Silent(shared.timing.silence());
                    return TransportError { who: Who::Peer(peer, "its connection".into()), reason };
                }
                continue;
            }
        };
        if matches!(frame, Frame::Heartbeat) {
            continue;
        }
        // Answers, and what servers say to one another, never wait: two that wait for each other
        // would wait forever.
        if is_worker {
            sender.room().await;
            shared.workers.pass().await;
        }
        let cost = frame.cost();
        let bytes = match u32::try_from(cost / UNIT).unwrap_or(u32::MAX) {
            0 => None,
            units => Arc::clone(&shared.budget)
                .acquire_many_owned(units.min(shared.units))
                .await
                .ok(),
        };
        if shared
            .inbox
            .send(Inbound::Frame { id, frame, bytes })
            .await
            .is_err()
        {
            return TransportError {
                who: Who::Peer(peer, "its connection".into()),
                reason: Reason::Closed,
            };
        }
        received += cost;
        if received >= TURN {
            received = 0;
            tokio::task::yield_now().await;
        }
    }
}
