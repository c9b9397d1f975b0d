//! TCP.
//!
//! One task for each connection writes; whoever receives reads, so that no frame changes tasks on its way in. Nagle's
//! algorithm is off: the queue itself puts small frames together, as many as there are when the socket can take more.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

use super::queue::{self, Outgoing};
use super::{Connection, Kind, Listener, Local, Reason, Receiver, Transport, TransportError, Who};
use crate::wire::{Batch, Decoder, Frame, HELLO_LEN, Hello, PREFIX_LEN};

/// Frames are put together up to this many bytes, then written: the checksum is made of what the write finds in the
/// cache.
const TOGETHER: usize = 256 * 1024;

/// Slices of one vectored write.
const SLICES: usize = 64;

/// TCP, as the operating system has it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tcp;

impl Transport for Tcp {
    type Listener = TcpNodes;

    async fn listen(&self, address: &str, local: Arc<Local>) -> Result<TcpNodes, TransportError> {
        let error =
            |error| TransportError { who: Who::Address(address.into()), reason: Reason::Listen(error) };
        let listener = TcpListener::bind(address).await.map_err(error)?;
        let address = listener.local_addr().map_err(error)?.to_string();
        Ok(TcpNodes { listener, address, local })
    }

    async fn connect(&self, address: &str, local: Arc<Local>) -> Result<Connection, TransportError> {
        let limit = local.handshake;
        let connecting = async {
            let stream = TcpStream::connect(address).await.map_err(Reason::Connect)?;
            handshake(stream, address, &local).await
        };
        let done = tokio::time::timeout(limit, connecting).await.unwrap_or(Err(Reason::Slow(limit)));
        done.map_err(|reason| TransportError { who: Who::Address(address.into()), reason })
    }
}

/// Takes TCP connections.
#[derive(Debug)]
pub struct TcpNodes {
    listener: TcpListener,
    address: String,
    local: Arc<Local>,
}

type BoxedHandshake = std::pin::Pin<Box<dyn Future<Output = Result<Connection, TransportError>> + Send>>;

impl Listener for TcpNodes {
    type Handshake = BoxedHandshake;

    fn address(&self) -> String {
        self.address.clone()
    }

    async fn accept(&mut self) -> Result<BoxedHandshake, TransportError> {
        let error =
            |error| TransportError { who: Who::Address(self.address.clone()), reason: Reason::Listen(error) };
        let (stream, from) = self.listener.accept().await.map_err(error)?;
        let local = Arc::clone(&self.local);
        Ok(Box::pin(async move {
            let (from, limit) = (from.to_string(), local.handshake);
            let shaking = handshake(stream, &from, &local);
            let done = tokio::time::timeout(limit, shaking).await.unwrap_or(Err(Reason::Slow(limit)));
            done.map_err(|reason| TransportError { who: Who::Address(from), reason })
        }))
    }
}

/// Both ends speak first, so that each can say why it does not like the other.
async fn handshake(mut stream: TcpStream, address: &str, local: &Local) -> Result<Connection, Reason> {
    stream.set_nodelay(true).map_err(Reason::Io)?;
    stream.write_all(&local.hello.encode()).await.map_err(Reason::Io)?;
    let mut bytes = [0; HELLO_LEN];
    let (prefix, rest) = bytes.split_at_mut(PREFIX_LEN);
    let ended = |error: io::Error| match error.kind() {
        ErrorKind::UnexpectedEof => Reason::Closed,
        _ => Reason::Io(error),
    };
    stream.read_exact(prefix).await.map_err(ended)?;
    let mut first = [0; PREFIX_LEN];
    first.copy_from_slice(prefix);
    Hello::check_prefix(&first)?;
    stream.read_exact(rest).await.map_err(ended)?;
    let hello = Hello::decode(&bytes)?;
    local.hello.accept(&hello)?;
    let (read, write) = stream.into_split();
    let (sender, outgoing) = queue::queue(local.queue);
    let writer = AbortOnDropHandle::new(tokio::spawn(send(write, outgoing, local.hello.max_frame)));
    let incoming = Incoming {
        stream: read,
        _writer: writer,
        decoder: Decoder::new(local.limits()),
        progress: Arc::new(AtomicU64::new(0)),
        who: Who::Peer(hello.peer, address.into()),
    };
    Ok(Connection { peer: hello.peer, sender, receiver: Receiver(Kind::Tcp(Box::new(incoming))) })
}

/// Writes what is in the queue, until the queue's other end or the connection is gone.
async fn send(mut stream: OwnedWriteHalf, mut queue: Outgoing, max_frame: u64) {
    let mut batch = Batch::new(max_frame);
    while let Some(frame) = queue.recv().await {
        let mut cost = add(&mut batch, frame);
        while batch.len() < TOGETHER
            && let Some(frame) = queue.try_recv()
        {
            cost += add(&mut batch, frame);
        }
        while !batch.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let filled = batch.slices(&mut slices);
            let written = stream.write_vectored(slices.get(..filled).unwrap_or_default()).await;
            match written {
                Ok(count) if count > 0 => batch.advance(count),
                // The reading side tells the node.
                _ => return,
            }
        }
        queue.sent(cost);
    }
    let _ = stream.shutdown().await;
}

fn add(batch: &mut Batch, frame: Frame) -> usize {
    let cost = frame.cost();
    if let Err(error) = batch.push(frame) {
        tracing::error!(%error, "a message cannot be sent");
    }
    cost
}

/// The reading side.
#[derive(Debug)]
pub(super) struct Incoming {
    stream: OwnedReadHalf,
    /// Ends with this: a peer that reads nothing must not keep a connection that was given up.
    _writer: AbortOnDropHandle<()>,
    decoder: Decoder,
    progress: Arc<AtomicU64>,
    who: Who,
}

impl Incoming {
    pub(super) async fn recv(&mut self) -> Result<Frame, TransportError> {
        match self.next().await {
            Ok(frame) => Ok(frame),
            Err(reason) => Err(TransportError { who: self.who.clone(), reason }),
        }
    }

    pub(super) fn progress(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.progress)
    }

    async fn next(&mut self) -> Result<Frame, Reason> {
        loop {
            if let Some(frame) = self.decoder.next()? {
                return Ok(frame);
            }
            let [first, second] = self.decoder.spaces();
            let read = if first.is_empty() {
                self.stream.try_read(second)
            } else {
                self.stream.try_read_vectored(&mut [IoSliceMut::new(first), IoSliceMut::new(second)])
            };
            match read {
                Ok(0) => return Err(Reason::Closed),
                Ok(count) => {
                    self.decoder.filled(count);
                    self.progress.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.stream.readable().await.map_err(Reason::Io)?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Reason::Io(error)),
            }
        }
    }
}
