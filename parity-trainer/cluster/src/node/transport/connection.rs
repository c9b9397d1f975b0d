//! A connection over a stream.
//!
//! One task for each connection writes; the receiver reads in its own, so that no frame changes
//! tasks on its way in. The queue puts small frames together, as many as there are when the stream
//! can take more.

use std::fmt;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parapet_parameter_server::Peer;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};
use tokio::net::{TcpStream, UnixStream, tcp, unix};
use tokio_util::task::AbortOnDropHandle;

use super::queue::{self, Outgoing, Sender};
use super::{Local, Reason, TransportError};
use crate::node::wire::{Batch, Decoder, Frame, HELLO_LEN, Hello, PREFIX_LEN};

/// Frames are put together up to this many bytes, then written: the checksum is made of what the
/// write finds in the cache.
const TOGETHER: usize = 256 * 1024;

/// Slices of one vectored write.
const SLICES: usize = 64;

/// A connection after the handshake.
#[derive(Debug)]
pub struct Connection {
    /// Peer at the other end.
    pub peer: Peer,
    pub sender: Sender,
    pub receiver: Receiver,
}

/// Halves of a stream, for one task to read and another to write.
pub(super) struct Halves(ReadHalf, Box<dyn AsyncWrite + Send + Unpin>);

enum ReadHalf {
    Tcp(tcp::OwnedReadHalf),
    Unix(unix::OwnedReadHalf),
    Memory(tokio::io::ReadHalf<DuplexStream>),
}

impl Halves {
    pub(super) fn of_tcp(stream: TcpStream) -> Self {
        let (read, write) = stream.into_split();
        Self(ReadHalf::Tcp(read), Box::new(write))
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
    async fn read(&mut self, [first, second]: [&mut [u8]; 2]) -> io::Result<usize> {
        if let Self::Memory(half) = self {
            return half
                .read(if first.is_empty() { second } else { first })
                .await;
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
                    Self::Tcp(half) => half.readable().await?,
                    Self::Unix(half) => half.readable().await?,
                    Self::Memory(_) => {}
                },
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }
}

/// Shakes hands, for no longer than the node allows. Both ends speak first, so that each can say
/// why it does not like the other.
pub(super) async fn handshake<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    halves: fn(S) -> Halves,
    address: &str,
    local: &Local,
) -> Result<Connection, TransportError> {
    let limit = local.handshake;
    let done = tokio::time::timeout(limit, exchange(stream, halves, address, local)).await;
    done.unwrap_or(Err(Reason::Slow(limit)))
        .map_err(|reason| reason.at(address))
}

async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    halves: fn(S) -> Halves,
    address: &str,
    local: &Local,
) -> Result<Connection, Reason> {
    let ended = |error: io::Error| match error.kind() {
        ErrorKind::UnexpectedEof => Reason::Closed,
        _ => Reason::Io(error),
    };
    stream
        .write_all(&local.hello.encode())
        .await
        .map_err(Reason::Io)?;
    let mut bytes = [0; HELLO_LEN];
    let Some((prefix, rest)) = bytes.split_first_chunk_mut::<PREFIX_LEN>() else {
        return Err(Reason::Closed);
    };
    stream.read_exact(prefix).await.map_err(ended)?;
    Hello::check_prefix(prefix)?;
    stream.read_exact(rest).await.map_err(ended)?;
    let hello = Hello::decode(&bytes)?;
    local.hello.accept(&hello)?;
    let Halves(read, written) = halves(stream);
    let (sender, outgoing) = queue::queue(local.queue);
    let max_frame = local.hello.max_frame;
    let writing = tokio::spawn(write(written, outgoing, max_frame));
    let receiver = Receiver {
        stream: read,
        _writer: AbortOnDropHandle::new(writing),
        decoder: Decoder::new(max_frame, local.pooled),
        progress: Arc::default(),
        who: peer_at(hello.peer, address),
    };
    Ok(Connection {
        peer: hello.peer,
        sender,
        receiver,
    })
}

/// Names a peer in errors.
pub(crate) fn peer_at(peer: Peer, address: &str) -> String {
    match peer {
        Peer::Server(node) => format!("{node} at {address}"),
        Peer::Worker(worker) => format!("{worker} at {address}"),
    }
}

/// Writes what is in the queue, until the queue's other end or the connection is gone.
async fn write(
    mut stream: Box<dyn AsyncWrite + Send + Unpin>,
    mut queue: Outgoing,
    max_frame: u64,
) {
    let mut batch = Batch::new(max_frame);
    while let Some(next) = queue.frames.recv().await {
        let (mut next, mut total) = (Some(next), 0);
        while let Some((frame, cost)) = next.take() {
            if let Err(error) = batch.push(frame) {
                tracing::error!(%error, "a message cannot be sent");
            }
            total += cost;
            if batch.len() < TOGETHER {
                next = queue.frames.try_recv().ok();
            }
        }
        while !batch.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let filled = batch.slices(&mut slices);
            let slices = slices.get(..filled).unwrap_or_default();
            match stream.write_vectored(slices).await {
                Ok(count) if count > 0 => batch.advance(count),
                // The reading side tells the node.
                _ => return,
            }
        }
        queue.sent(total);
    }
    // The connection may be gone already.
    let _ = stream.shutdown().await;
}

/// The incoming side of a connection. Dropping it closes the connection.
pub struct Receiver {
    stream: ReadHalf,
    /// Ends with this: a peer that reads nothing must not keep a connection that was given up.
    _writer: AbortOnDropHandle<()>,
    decoder: Decoder,
    /// Rises whenever something comes, be it a part of a frame: a sign of life.
    pub progress: Arc<AtomicU64>,
    /// The peer at the other end, for errors.
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
            let read = self.stream.read(self.decoder.spaces()).await;
            let count = read.map_err(Reason::Io)?;
            if count == 0 {
                return Err(Reason::Closed);
            }
            self.decoder.filled(count);
            self.progress.fetch_add(1, Ordering::Relaxed);
        }
    }
}
