//! Connections within a process: frames change hands without being encoded.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use super::queue::{self, Outgoing, Sender, Severing};
use super::{Connection, Kind, Listener, Local, Reason, Receiver, Transport, TransportError, Who};
use crate::node::wire::{Frame, Hello, WireError};

/// Connections that wait to be accepted.
const BACKLOG: usize = 64;

/// A network of its own within a process; clones are the same network.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    listeners: Arc<Mutex<BTreeMap<String, mpsc::Sender<Request>>>>,
}

/// Request for a connection, with the ends that are to be the listener's.
#[derive(Debug)]
struct Request {
    hello: Hello,
    sender: Sender,
    outgoing: Outgoing,
    answer: oneshot::Sender<Hello>,
}

impl Transport for Memory {
    type Listener = MemoryNodes;

    async fn listen(
        &self,
        address: &str,
        local: Arc<Local>,
    ) -> Result<MemoryNodes, TransportError> {
        let mut listeners = self.listeners.lock();
        if listeners
            .get(address)
            .is_some_and(|listener| !listener.is_closed())
        {
            let reason = Reason::Listen(Error::from(ErrorKind::AddrInUse));
            return Err(TransportError {
                who: Who::Address(address.into()),
                reason,
            });
        }
        let (requests, inbox) = mpsc::channel(BACKLOG);
        listeners.insert(address.into(), requests);
        Ok(MemoryNodes {
            inbox,
            address: address.into(),
            local,
        })
    }

    async fn connect(
        &self,
        address: &str,
        local: Arc<Local>,
    ) -> Result<Connection, TransportError> {
        let limit = local.handshake;
        let connecting = async {
            let refused = || Reason::Connect(Error::from(ErrorKind::ConnectionRefused));
            let listener = self
                .listeners
                .lock()
                .get(address)
                .cloned()
                .ok_or_else(refused)?;
            let (own_sender, their_outgoing) = queue::queue(local.queue);
            let (their_sender, own_outgoing) = queue::queue(local.queue);
            let (answer, answered) = oneshot::channel();
            let hello = local.hello.clone();
            let request = Request {
                hello,
                sender: their_sender,
                outgoing: their_outgoing,
                answer,
            };
            listener.send(request).await.map_err(|_| refused())?;
            let hello = answered.await.map_err(|_| Reason::Closed)?;
            local.hello.accept(&hello)?;
            Ok(connection(
                &hello,
                own_sender,
                own_outgoing,
                address,
                &local,
            ))
        };
        let done = tokio::time::timeout(limit, connecting)
            .await
            .unwrap_or(Err(Reason::Slow(limit)));
        done.map_err(|reason| TransportError {
            who: Who::Address(address.into()),
            reason,
        })
    }
}

fn connection(
    hello: &Hello,
    sender: Sender,
    outgoing: Outgoing,
    address: &str,
    local: &Local,
) -> Connection {
    let incoming = Incoming {
        _severing: sender.severing(),
        frames: outgoing,
        progress: Arc::new(AtomicU64::new(0)),
        max_frame: local.hello.max_frame,
        who: Who::Peer(hello.peer, address.into()),
    };
    Connection {
        peer: hello.peer,
        sender,
        receiver: Receiver(Kind::Memory(incoming)),
    }
}

/// Takes connections within the process.
#[derive(Debug)]
pub struct MemoryNodes {
    inbox: mpsc::Receiver<Request>,
    address: String,
    local: Arc<Local>,
}

impl Listener for MemoryNodes {
    type Handshake = std::future::Ready<Result<Connection, TransportError>>;

    fn address(&self) -> String {
        self.address.clone()
    }

    async fn accept(&mut self) -> Result<Self::Handshake, TransportError> {
        let who = || Who::Address(self.address.clone());
        let closed = TransportError {
            who: who(),
            reason: Reason::Closed,
        };
        let Request {
            hello,
            sender,
            outgoing,
            answer,
        } = self.inbox.recv().await.ok_or(closed)?;
        // The other end checks this node's, and is told of it before this one refuses.
        let _ = answer.send(self.local.hello.clone());
        Ok(std::future::ready(match self.local.hello.accept(&hello) {
            Ok(()) => Ok(connection(
                &hello,
                sender,
                outgoing,
                &self.address,
                &self.local,
            )),
            Err(error) => Err(TransportError {
                who: who(),
                reason: error.into(),
            }),
        }))
    }
}

#[derive(Debug)]
pub(super) struct Incoming {
    frames: Outgoing,
    _severing: Severing,
    progress: Arc<AtomicU64>,
    max_frame: u64,
    who: Who,
}

impl Incoming {
    pub(super) async fn recv(&mut self) -> Result<Frame, TransportError> {
        let error = |reason| TransportError {
            who: self.who.clone(),
            reason,
        };
        let Some(frame) = self.frames.recv_unless_severed().await else {
            return Err(error(Reason::Closed));
        };
        let cost = frame.cost();
        self.frames.sent(cost);
        self.progress.fetch_add(1, Ordering::Relaxed);
        if cost as u64 > self.max_frame {
            let reason = WireError::TooLong {
                length: cost as u64,
                limit: self.max_frame,
            };
            return Err(error(reason.into()));
        }
        Ok(frame)
    }

    pub(super) fn progress(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.progress)
    }
}
