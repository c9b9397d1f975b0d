//! Connections between nodes: frames in order, each at most once, and a loss is noticed at once.
//!
//! A connection's outgoing queue is bounded in bytes, softly: [`Sender::room`] waits until it is
//! short again, and a node takes a peer's requests only then; [`Sender::try_send`] refuses only at
//! four times that, if the sender has not waited; a single frame may be longer than both. The
//! incoming side has no queue: what is not received stays with the peer.

mod memory;
mod queue;
mod same_machine;
mod socket;
mod sockets;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parapet_parameter_server::Peer;

pub use memory::Memory;
pub use queue::{SendError, Sender};
pub use sockets::{Sockets, Tcp};

use crate::node::wire::{Frame, Hello, Limits, WireError};

/// Own identity and limits on each of a node's connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Local {
    pub hello: Hello,
    /// Bytes of outgoing frames after which a queue counts as long.
    pub queue: usize,
    /// Bytes of vectors that a connection keeps to be read into again.
    pub pooled: usize,
    /// Time that a handshake may take.
    pub handshake: Duration,
}

impl Local {
    /// Returns the limits of the decoder of one connection.
    pub const fn limits(&self) -> Limits {
        Limits {
            max_frame: self.hello.max_frame,
            pooled: self.pooled,
        }
    }
}

/// A way to connect nodes.
pub trait Transport: Clone + Send + Sync + 'static {
    type Listener: Listener;

    /// Takes connections at `address`.
    fn listen(
        &self,
        address: &str,
        local: Arc<Local>,
    ) -> impl Future<Output = Result<Self::Listener, TransportError>> + Send;

    /// Connects to the node at `address`, and shakes hands.
    fn connect(
        &self,
        address: &str,
        local: Arc<Local>,
    ) -> impl Future<Output = Result<Connection, TransportError>> + Send;
}

pub trait Listener: Send + 'static {
    /// Shakes hands; apart, so that a slow peer does not keep others waiting.
    type Handshake: Future<Output = Result<Connection, TransportError>> + Send + 'static;

    /// Where others connect to.
    fn address(&self) -> String;

    /// The next one that connects.
    fn accept(&mut self) -> impl Future<Output = Result<Self::Handshake, TransportError>> + Send;
}

/// A connection after the handshake.
#[derive(Debug)]
pub struct Connection {
    /// Peer at the other end.
    pub peer: Peer,
    pub sender: Sender,
    pub receiver: Receiver,
}

/// The incoming side of a connection. Dropping it closes the connection.
#[derive(Debug)]
pub struct Receiver(Kind);

#[derive(Debug)]
enum Kind {
    Socket(Box<sockets::Incoming>),
    Memory(memory::Incoming),
}

impl Receiver {
    /// The next frame. Safe to cancel.
    ///
    /// # Errors
    /// When the connection is lost or the peer sends what cannot be understood. There is nothing
    /// more to be had then.
    pub async fn recv(&mut self) -> Result<Frame, TransportError> {
        match &mut self.0 {
            Kind::Socket(incoming) => incoming.recv().await,
            Kind::Memory(incoming) => incoming.recv().await,
        }
    }

    /// Rises whenever something comes, be it a part of a frame: a sign of life.
    pub fn progress(&self) -> Arc<AtomicU64> {
        match &self.0 {
            Kind::Socket(incoming) => incoming.progress(),
            Kind::Memory(incoming) => incoming.progress(),
        }
    }
}

/// Reason why there is no connection, or none any more.
#[derive(Debug, thiserror::Error)]
#[error("{who}: {reason}")]
pub struct TransportError {
    /// At the other end: an address before the handshake, a peer after it.
    pub who: Who,
    pub reason: Reason,
}

/// Peer at the other end, as far as known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Who {
    /// Before the handshake.
    Address(String),
    Peer(Peer, String),
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Peer(Peer::Server(node), address) => write!(f, "{node} at {address}"),
            Self::Peer(Peer::Worker(worker), address) => write!(f, "{worker} at {address}"),
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what they are")]
pub enum Reason {
    #[error("cannot listen there ({0}): choose another address or stop what uses it")]
    Listen(std::io::Error),
    #[error("cannot connect ({0}): check the address and that the node runs")]
    Connect(std::io::Error),
    #[error("no handshake within {0:?}: check the address and the node's load")]
    Slow(Duration),
    #[error("the connection was closed")]
    Closed,
    #[error("the connection broke ({0})")]
    Io(std::io::Error),
    #[error("no sign of life for {0:?}")]
    Silent(Duration),
    #[error("{0}")]
    Wire(#[from] WireError),
}
