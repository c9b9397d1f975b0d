//! Connections between nodes: frames in order, each at most once, and a loss is noticed at once.
//!
//! A connection's outgoing queue is bounded in bytes, softly: [`Sender::room`] waits until it is
//! short again, and a node takes a peer's requests only then; [`Sender::try_send`] refuses only at
//! four times that, if the sender has not waited; a single frame may be longer than both. The
//! incoming side has no queue: what is not received stays with the peer.

mod connection;
mod memory;
mod queue;
mod sockets;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

pub(crate) use connection::peer_at;
pub use connection::{Connection, Receiver};
pub use memory::Memory;
pub use queue::Sender;
pub use sockets::{Sockets, Tcp};

use crate::node::wire::{Hello, WireError};

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

/// A handshake under way with a peer that connected: apart, so that a slow one does not keep others
/// waiting.
pub type Handshake = BoxFuture<'static, Result<Connection, TransportError>>;

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
    /// Where others connect to.
    fn address(&self) -> String;

    /// The next peer that connects.
    fn accept(&mut self) -> impl Future<Output = Result<Handshake, TransportError>> + Send;
}

/// Reason why there is no connection, or none any more.
#[derive(Debug, thiserror::Error)]
#[error("{who}: {reason}")]
pub struct TransportError {
    /// At the other end: an address before the handshake, a peer after it.
    pub who: String,
    pub reason: Reason,
}

#[derive(Debug, thiserror::Error)]
pub enum Reason {
    #[error("cannot listen there ({0}): choose another address or stop what uses it")]
    Listen(io::Error),
    #[error("cannot connect ({0}): check the address and that the node runs")]
    Connect(io::Error),
    #[error("no handshake within {0:?}: check the address and the node's load")]
    Slow(Duration),
    #[error("the connection was closed")]
    Closed,
    #[error("the connection broke ({0})")]
    Io(io::Error),
    #[error("no sign of life for {0:?}")]
    Silent(Duration),
    #[error("{0}")]
    Wire(#[from] WireError),
}

impl Reason {
    pub(crate) fn at(self, who: &str) -> TransportError {
        TransportError {
            who: who.into(),
            reason: self,
        }
    }
}
