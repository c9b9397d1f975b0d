//! A connection over a stream.
//!
//! One task for each connection writes; the receiver reads in its own, so that no frame changes
//! tasks on its way in.

use std::fmt;
use std::io::{self, ErrorKind, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parapet_parameter_server::Peer;
use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};
use tokio::net::{TcpStream, UnixStream, tcp, unix};
use tokio_util::task::AbortOnDropHandle;

use super::outgoing::{self, Sender};
use super::{Local, Reason, TransportError};
use crate::node::wire::{Decoder, Frame, HELLO_LEN, Hello, PREFIX_LEN};

#[derive(Debug)]
pub struct Connection {
    pub peer: Peer,
    pub sender: Sender,
    pub receiver: Receiver,
}

pub(super) struct Halves(ReadHalf, Box<dyn AsyncWrite + Send + Unpin>);

enum ReadHalf {
    Tcp(tcp::OwnedReadHalf),
    Unix(unix::OwnedReadHalf),
    Memory(tokio::io::ReadHalf<DuplexStream>),
}

impl Halves {
    /// Switches Nagle's algorithm off: a connection's queue itself puts small frames together.
    pub(super) fn of_tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let (read, write) = stream.into_split();
        Ok(Self(ReadHalf::Tcp(read), Box::new(write)))
    }

    pub(super) fn of_unix(stream: UnixStream) -> Self {
        let (read, write) = stream.into_split();
        Self(ReadHalf::Unix(read), Box::new(write))
    }

    pub(super) fn of_memory(stream: DuplexStream) -> Self {
        let (read, write) = tokio::io::split(stream);
        Self(ReadHalf::Memory(read), Box::new(write))
    }
}

impl ReadHalf {
    /// Reads into one space after the other what there is, or waits for something. Safe to cancel.
    async fn read(&mut self, [first, second]: [&mut [u8]; 2]) -> Result<usize, Reason> {
        if let Self::Memory(half) = self {
            let space = if first.is_empty() { second } else { first };
            return unless_ended(half.read(space).await);
        }
        let mut spaces = [IoSliceMut::new(first), IoSliceMut::new(second)];
        loop {
            let read = match self {
                Self::Tcp(half) => half.try_read_vectored(&mut spaces),
                Self::Unix(half) => half.try_read_vectored(&mut spaces),
                Self::Memory(_) => Ok(0),
            };
            match read {
                Err(error) if error.kind() == ErrorKind::WouldBlock => match self {
                    Self::Tcp(half) => half.readable().await.map_err(Reason::Io)?,
                    Self::Unix(half) => half.readable().await.map_err(Reason::Io)?,
                    Self::Memory(_) => {}
                },
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => return unless_ended(read),
            }
        }
    }

    async fn read_exact(&mut self, space: &mut [u8]) -> Result<(), Reason> {
        let mut filled = 0;
        while let Some(rest) = space.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            filled += self.read([rest, &mut []]).await?;
        }
        Ok(())
    }
}

fn unless_ended(read: io::Result<usize>) -> Result<usize, Reason> {
    match read {
        Ok(0) => Err(Reason::Closed),
        read => read.map_err(Reason::Io),
    }
}

/// Shakes hands, for no longer than the node allows. Both ends speak first, so that each can say
/// why it does not like the other.
pub(super) async fn handshake(
    halves: Halves,
    address: &str,
    local: &Local,
) -> Result<Connection, TransportError> {
    let limit = local.handshake;
    let done = tokio::time::timeout(limit, exchange(halves, address, local)).await;
    done.unwrap_or(Err(Reason::Slow(limit))).map_err(|reason| reason.at(address))
}

async fn exchange(
    Halves(mut stream, mut written): Halves,
    address: &str,
    local: &Local,
) -> Result<Connection, Reason> {
    let own = local.hello.encode();
    written.write_all(&own).await.map_err(Reason::Io)?;
    let mut bytes = [0; HELLO_LEN];
    let Some((prefix, rest)) = bytes.split_first_chunk_mut::<PREFIX_LEN>() else {
        return Err(Reason::Closed);
    };
    stream.read_exact(prefix).await?;
    Hello::check_prefix(prefix)?;
    stream.read_exact(rest).await?;
    let hello = Hello::decode(&bytes)?;
    local.hello.accept(&hello)?;
    let max_frame = local.hello.max_frame;
    let (sender, writing) = outgoing::start(written, local.queue, max_frame);
    let receiver = Receiver {
        stream,
        _writer: writing,
        decoder: Decoder::new(max_frame, local.pooled),
        progress: Arc::default(),
        who: peer_at(hello.peer, address),
    };
    Ok(Connection { peer: hello.peer, sender, receiver })
}

pub(crate) fn peer_at(peer: Peer, address: &str) -> String {
    match peer {
        Peer::Server(node) => format!("{node} at {address}"),
        Peer::Worker(worker) => format!("{worker} at {address}"),
    }
}

/// The incoming side of a connection. Dropping it closes the connection.
pub struct Receiver {
    stream: ReadHalf,
    /// Ends with this: a peer that reads nothing must not keep a connection that was given up.
    _writer: AbortOnDropHandle<()>,
    decoder: Decoder,
    /// Rises whenever something comes, be it a part of a frame: a sign of life.
    pub progress: Arc<AtomicU64>,
    who: String,
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receiver from {}", self.who)
    }
}

impl Receiver {
    /// The next frame. Safe to cancel.
    ///
    /// # Errors
    /// When the connection is lost or the peer sends what cannot be understood. There is nothing
    /// more to be had then.
    pub async fn recv(&mut self) -> Result<Frame, TransportError> {
        self.next().await.map_err(|reason| reason.at(&self.who))
    }

    async fn next(&mut self) -> Result<Frame, Reason> {
        loop {
            if let Some(frame) = self.decoder.next()? {
                return Ok(frame);
            }
            let count = self.stream.read(self.decoder.spaces()).await?;
            self.decoder.filled(count);
            self.progress.fetch_add(1, Ordering::Relaxed);
        }
    }
}
