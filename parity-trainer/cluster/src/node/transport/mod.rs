//! Connections between nodes: frames in order, each at most once, and a loss is noticed at once.
//!
//! A connection's outgoing queue is bounded in bytes, softly: [`Sender::room`] waits until it is
//! short again, and a node takes a peer's requests only then; [`Sender::try_send`] refuses only at
//! four times that, if the sender has not waited; a single frame may be longer than both. The
//! incoming side has no queue: what is not received stays with the peer. A Unix socket is named
//! after the TCP address that its node listens at. The names are abstract: nothing is left behind
//! in a file system when a process is killed, and they are seen within one network namespace, as
//! the TCP addresses are. Any process of the machine may take any name, so both ends look at whose
//! process the other is: only one of the same user is accepted.

mod connection;
mod outgoing;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use nix::sys::socket::{setsockopt, sockopt};
use parking_lot::Mutex;
use tokio::io::DuplexStream;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream, lookup_host};
use tokio::sync::mpsc;
use tokio::time::timeout;

pub(crate) use connection::peer_at;
pub use connection::{Connection, Receiver};
use connection::{Halves, handshake};
pub use outgoing::{Batch, Sender};

use crate::node::wire::{Hello, WireError};

/// Bytes that the kernel keeps for the other end of a Unix socket to read. Pushes of 4 MiB go over
/// a fifth faster with this than with half as much, and twice as much gains nothing.
const UNIX_BUFFER: usize = 2 << 20;

/// Connections in memory that wait to be accepted.
const BACKLOG: usize = 64;

/// Bytes under way in each direction of a connection in memory.
const MEMORY_BUFFER: usize = 64 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Local {
    pub hello: Hello,
    /// Bytes of outgoing frames after which a queue counts as long.
    pub queue: usize,
    /// Bytes of vectors that a connection keeps to be read into again.
    pub pooled: usize,
    pub handshake: Duration,
}

/// A handshake under way with a peer that connected: apart, so that a slow one delays no others.
pub type Handshake = BoxFuture<'static, Result<Connection, TransportError>>;

type Listeners = Arc<Mutex<BTreeMap<String, mpsc::Sender<DuplexStream>>>>;

#[derive(Debug, Clone, Default)]
pub enum Transport {
    /// Nodes on one machine connect through a Unix socket, others with TCP. A node listens at its
    /// TCP address and, where the system has abstract Unix sockets (Linux), at one that is named
    /// after it; a connecting node tries that first. A byte costs less than half of what it costs
    /// over TCP, on either side.
    #[default]
    Sockets,
    /// TCP alone, also on one machine.
    Tcp,
    /// A network of its own within a process; clones are the same network.
    Memory(Listeners),
}

impl Transport {
    pub fn memory() -> Self {
        Self::Memory(Listeners::default())
    }

    pub async fn listen(
        &self,
        address: &str,
        local: Arc<Local>,
    ) -> Result<Listener, TransportError> {
        let error = |error: io::Error| Reason::Listen(error).at(address);
        if let Self::Memory(listeners) = self {
            let mut listeners = listeners.lock();
            let earlier = listeners.get(address);
            if earlier.is_some_and(|listener| !listener.is_closed()) {
                return Err(error(ErrorKind::AddrInUse.into()));
            }
            let (sender, inbox) = mpsc::channel(BACKLOG);
            listeners.insert(address.to_owned(), sender);
            return Ok(Listener {
                address: address.to_owned(),
                local,
                accepting: Accepting::Memory(inbox),
            });
        }
        let tcp = TcpListener::bind(address).await.map_err(error)?;
        let address = tcp.local_addr().map_err(error)?.to_string();
        let unix = match self {
            Self::Sockets => UnixListener::bind(unix_name(&address)).map(Some),
            Self::Tcp | Self::Memory(_) => Ok(None),
        };
        let unix = unix.unwrap_or_else(|error| {
            tracing::warn!(address, %error, "no Unix socket; this machine's nodes use TCP");
            None
        });
        Ok(Listener { address, local, accepting: Accepting::Sockets(tcp, unix) })
    }

    pub async fn connect(
        &self,
        address: &str,
        local: &Local,
    ) -> Result<Connection, TransportError> {
        let connecting = timeout(local.handshake, self.halves(address)).await;
        let halves = connecting.unwrap_or(Err(Reason::Slow(local.handshake)));
        let halves = halves.map_err(|reason| reason.at(address))?;
        handshake(halves, address, local).await
    }

    async fn halves(&self, address: &str) -> Result<Halves, Reason> {
        if let Self::Memory(listeners) = self {
            let refused = || Reason::Connect(ErrorKind::ConnectionRefused.into());
            let listener = listeners.lock().get(address).cloned();
            let (own, other) = tokio::io::duplex(MEMORY_BUFFER);
            let sent = listener.ok_or_else(refused)?.send(other).await;
            return sent.map(|()| Halves::of_memory(own)).map_err(|_| refused());
        }
        if matches!(self, Self::Sockets)
            && let Some(stream) = connect_unix(address).await
        {
            return Ok(Halves::of_unix(stream));
        }
        let stream = TcpStream::connect(address).await.map_err(Reason::Connect)?;
        Halves::of_tcp(stream).map_err(Reason::Io)
    }
}

#[derive(Debug)]
pub struct Listener {
    address: String,
    local: Arc<Local>,
    accepting: Accepting,
}

#[derive(Debug)]
enum Accepting {
    Sockets(TcpListener, Option<UnixListener>),
    Memory(mpsc::Receiver<DuplexStream>),
}

impl Listener {
    pub fn address(&self) -> &str {
        &self.address
    }

    pub async fn accept(&mut self) -> Result<Handshake, TransportError> {
        let error = |error| Reason::Listen(error).at(&self.address);
        let (halves, from) = match &mut self.accepting {
            Accepting::Memory(inbox) => {
                let stream = inbox.recv().await;
                let stream = stream.ok_or_else(|| Reason::Closed.at(&self.address))?;
                (Halves::of_memory(stream), self.address.clone())
            }
            Accepting::Sockets(tcp, unix) => tokio::select! {
                accepted = tcp.accept() => {
                    let (stream, from) = accepted.map_err(error)?;
                    (Halves::of_tcp(stream).map_err(error)?, from.to_string())
                }
                accepted = accept_unix(unix.as_ref()) => {
                    (Halves::of_unix(accepted.map_err(error)?), "this machine".to_owned())
                }
            },
        };
        let local = Arc::clone(&self.local);
        Ok(async move { handshake(halves, &from, &local).await }.boxed())
    }
}

/// The next process of the same user that connects.
async fn accept_unix(listener: Option<&UnixListener>) -> io::Result<UnixStream> {
    let Some(listener) = listener else {
        return std::future::pending().await;
    };
    loop {
        let (stream, _) = listener.accept().await?;
        if is_ours(&stream) {
            setsockopt(&stream.as_fd(), sockopt::SndBuf, &UNIX_BUFFER)?;
            return Ok(stream);
        }
        tracing::warn!("another user's process connected to this node's Unix socket: turned away");
    }
}

/// Connects to a node of the same user that listens at `address` on this machine, if there is one.
async fn connect_unix(address: &str) -> Option<UnixStream> {
    for address in lookup_host(address).await.ok()? {
        if let Ok(stream) = UnixStream::connect(unix_name(&address.to_string())).await {
            setsockopt(&stream.as_fd(), sockopt::SndBuf, &UNIX_BUFFER).ok()?;
            return is_ours(&stream).then_some(stream);
        }
    }
    None
}

fn is_ours(stream: &UnixStream) -> bool {
    let own = nix::unistd::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == own)
}

/// The zero byte makes a name abstract; a system without those says that it is no path.
fn unix_name(address: &str) -> String {
    format!("\0parapet-parameter-server/{address}")
}

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
        TransportError { who: who.into(), reason: self }
    }
}
