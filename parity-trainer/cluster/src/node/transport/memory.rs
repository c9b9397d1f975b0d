//! Connections within a process: frames change hands without being encoded.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::queue::{self, Outgoing, Sender};
use super::{
    Connection, Handshake, Listener, Local, Reason, Receiver, Source, Transport, TransportError,
    within,
};
use crate::node::wire::{Frame, Hello, WireError};

/// Connections that wait to be accepted.
const BACKLOG: usize = 64;

/// A network of its own within a process; clones are the same network.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    listeners: Arc<Mutex<BTreeMap<String, mpsc::Sender<Request>>>>,
}

/// One end of a connection before the handshake.
struct End {
    sender: Sender,
    frames: Outgoing,
    /// Cancelled when either end is dropped.
    closed: CancellationToken,
}

impl End {
    fn pair(queue: usize) -> (Self, Self) {
        let (first, second) = (queue::queue(queue), queue::queue(queue));
        let closed = CancellationToken::new();
        let end = |sender, frames, closed| Self {
            sender,
            frames,
            closed,
        };
        (
            end(first.0, second.1, closed.clone()),
            end(second.0, first.1, closed),
        )
    }

    fn connect(self, hello: &Hello, address: &str, local: &Local) -> Result<Connection, Reason> {
        local.hello.accept(hello)?;
        let incoming = Incoming {
            frames: self.frames,
            _guard: self.closed.clone().drop_guard(),
            closed: self.closed,
            max_frame: local.hello.max_frame,
        };
        Ok(Connection {
            peer: hello.peer,
            sender: self.sender,
            receiver: Receiver::new(Source::Memory(incoming), hello.peer, address),
        })
    }
}

/// Request for a connection, with the end that is to be the listener's.
struct Request {
    hello: Hello,
    end: End,
    answer: oneshot::Sender<Hello>,
}

impl Transport for Memory {
    type Listener = MemoryListener;

    async fn listen(
        &self,
        address: &str,
        local: Arc<Local>,
    ) -> Result<MemoryListener, TransportError> {
        let mut listeners = self.listeners.lock();
        let earlier = listeners.get(address);
        if earlier.is_some_and(|listener| !listener.is_closed()) {
            return Err(Reason::Listen(ErrorKind::AddrInUse.into()).at(address));
        }
        let (requests, inbox) = mpsc::channel(BACKLOG);
        listeners.insert(address.into(), requests);
        Ok(MemoryListener {
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
        let refused = || Reason::Connect(Error::from(ErrorKind::ConnectionRefused));
        let connecting = async {
            let listener = self
                .listeners
                .lock()
                .get(address)
                .cloned()
                .ok_or_else(refused)?;
            let (own, end) = End::pair(local.queue);
            let (answer, answered) = oneshot::channel();
            let hello = local.hello.clone();
            let request = Request { hello, end, answer };
            listener.send(request).await.map_err(|_| refused())?;
            let hello = answered.await.map_err(|_| Reason::Closed)?;
            own.connect(&hello, address, &local)
        };
        within(local.handshake, address, connecting).await
    }
}

/// Takes connections within the process.
pub struct MemoryListener {
    inbox: mpsc::Receiver<Request>,
    address: String,
    local: Arc<Local>,
}

impl Listener for MemoryListener {
    fn address(&self) -> String {
        self.address.clone()
    }

    async fn accept(&mut self) -> Result<Handshake, TransportError> {
        let request = self.inbox.recv().await;
        let Request { hello, end, answer } =
            request.ok_or_else(|| Reason::Closed.at(&self.address))?;
        // The other end checks this node's, and is told of it before this one refuses.
        let _ = answer.send(self.local.hello.clone());
        let connected = end.connect(&hello, &self.address, &self.local);
        let connected = connected.map_err(|reason| reason.at(&self.address));
        Ok(Box::pin(std::future::ready(connected)))
    }
}

pub(super) struct Incoming {
    frames: Outgoing,
    closed: CancellationToken,
    _guard: DropGuard,
    max_frame: u64,
}

impl Incoming {
    pub(super) async fn recv(&mut self, progress: &AtomicU64) -> Result<Frame, Reason> {
        let received = tokio::select! {
            biased;
            () = self.closed.cancelled() => None,
            received = self.frames.frames.recv() => received,
        };
        let (frame, cost) = received.ok_or(Reason::Closed)?;
        self.frames.sent(cost);
        progress.fetch_add(1, Ordering::Relaxed);
        let (length, limit) = (cost as u64, self.max_frame);
        if length > limit {
            return Err(WireError::TooLong { length, limit }.into());
        }
        Ok(frame)
    }
}
