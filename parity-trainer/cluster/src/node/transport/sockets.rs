//! Sockets: TCP, and Unix sockets between nodes on one machine.
//!
//! One task for each connection writes; the receiver reads in its own, so that no frame changes
//! tasks on its way in. Nagle's algorithm is off: the queue itself puts small frames together, as
//! many as there are when the socket can take more.

use std::io::{self, ErrorKind, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio_util::task::AbortOnDropHandle;

use super::queue::{self, Outgoing};
use super::same_machine;
use super::socket::{self, ReadHalf, Socket};
use super::{Connection, Kind, Listener, Local, Reason, Receiver, Transport, TransportError, Who};
use crate::node::wire::{Batch, Decoder, Frame, HELLO_LEN, Hello, PREFIX_LEN};

/// Frames are put together up to this many bytes, then written: the checksum is made of what the
/// write finds in the cache.
const TOGETHER: usize = 256 * 1024;

/// Sockets: nodes on one machine connect through a Unix socket, others with TCP.
///
/// A node listens at its TCP address and, where the system has abstract Unix sockets (Linux), at
/// one that is named after it. A connecting node tries that first: it exists only within one
/// network namespace, and is taken only between processes of one user. A byte costs less than half
/// of what it costs over TCP, on either side.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sockets;

/// TCP alone, also on one machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tcp;

impl Transport for Sockets {
    type Listener = Listening;

    async fn listen(&self, address: &str, local: Arc<Local>) -> Result<Listening, TransportError> {
        let mut listening = Tcp.listen(address, local).await?;
        listening.unix = match same_machine::listen(&listening.address) {
            Ok(listener) => Some(listener),
            Err(error) => {
                tracing::warn!(address = listening.address, %error, "no Unix socket; this \
                    machine's nodes use TCP");
                None
            }
        };
        Ok(listening)
    }

    async fn connect(
        &self,
        address: &str,
        local: Arc<Local>,
    ) -> Result<Connection, TransportError> {
        match same_machine::connect(address).await {
            Some(stream) => {
                limited(address, local.handshake, handshake(stream, address, &local)).await
            }
            None => Tcp.connect(address, local).await,
        }
    }
}

impl Transport for Tcp {
    type Listener = Listening;

    async fn listen(&self, address: &str, local: Arc<Local>) -> Result<Listening, TransportError> {
        let error = |error| TransportError {
            who: Who::Address(address.into()),
            reason: Reason::Listen(error),
        };
        let tcp = TcpListener::bind(address).await.map_err(error)?;
        let address = tcp.local_addr().map_err(error)?.to_string();
        Ok(Listening {
            tcp,
            unix: None,
            address,
            local,
        })
    }

    async fn connect(
        &self,
        address: &str,
        local: Arc<Local>,
    ) -> Result<Connection, TransportError> {
        let connecting = async {
            let stream = TcpStream::connect(address).await.map_err(Reason::Connect)?;
            handshake(stream, address, &local).await
        };
        limited(address, local.handshake, connecting).await
    }
}

/// A handshake that takes no longer than `limit`.
async fn limited(
    address: &str,
    limit: Duration,
    shaking: impl Future<Output = Result<Connection, Reason>>,
) -> Result<Connection, TransportError> {
    let done = tokio::time::timeout(limit, shaking)
        .await
        .unwrap_or(Err(Reason::Slow(limit)));
    done.map_err(|reason| TransportError {
        who: Who::Address(address.into()),
        reason,
    })
}

#[derive(Debug)]
pub struct Listening {
    tcp: TcpListener,
    unix: Option<UnixListener>,
    address: String,
    local: Arc<Local>,
}

type BoxedHandshake =
    std::pin::Pin<Box<dyn Future<Output = Result<Connection, TransportError>> + Send>>;

impl Listener for Listening {
    type Handshake = BoxedHandshake;

    fn address(&self) -> String {
        self.address.clone()
    }

    async fn accept(&mut self) -> Result<BoxedHandshake, TransportError> {
        let error = |error| TransportError {
            who: Who::Address(self.address.clone()),
            reason: Reason::Listen(error),
        };
        let unix = async {
            match &self.unix {
                Some(listener) => same_machine::accept(listener).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            taken = self.tcp.accept() => {
                let (stream, from) = taken.map_err(error)?;
                Ok(self.shake(stream, from.to_string()))
            }
            taken = unix => Ok(self.shake(taken.map_err(error)?, "this machine".into())),
        }
    }
}

impl Listening {
    fn shake(&self, stream: impl Socket, from: String) -> BoxedHandshake {
        let local = Arc::clone(&self.local);
        Box::pin(
            async move { limited(&from, local.handshake, handshake(stream, &from, &local)).await },
        )
    }
}

/// Both ends speak first, so that each can say why it does not like the other.
async fn handshake(
    mut stream: impl Socket,
    address: &str,
    local: &Local,
) -> Result<Connection, Reason> {
    stream.prepare().map_err(Reason::Io)?;
    stream
        .write_all(&local.hello.encode())
        .await
        .map_err(Reason::Io)?;
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
    let (read, write) = stream.into_halves();
    let (sender, outgoing) = queue::queue(local.queue);
    let writer = AbortOnDropHandle::new(tokio::spawn(send(write, outgoing, local.hello.max_frame)));
    let incoming = Incoming {
        stream: read,
        _writer: writer,
        decoder: Decoder::new(local.limits()),
        progress: Arc::new(AtomicU64::new(0)),
        who: Who::Peer(hello.peer, address.into()),
    };
    Ok(Connection {
        peer: hello.peer,
        sender,
        receiver: Receiver(Kind::Socket(Box::new(incoming))),
    })
}

/// Writes what is in the queue, until the queue's other end or the connection is gone.
async fn send(mut stream: impl AsyncWrite + Unpin + Send, mut queue: Outgoing, max_frame: u64) {
    let mut batch = Batch::new(max_frame);
    while let Some(frame) = queue.recv().await {
        let mut cost = add(&mut batch, frame);
        while batch.len() < TOGETHER
            && let Some(frame) = queue.try_recv()
        {
            cost += add(&mut batch, frame);
        }
        while !batch.is_empty() {
            match socket::write(&mut stream, &mut batch).await {
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

#[derive(Debug)]
pub(super) struct Incoming {
    stream: ReadHalf,
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
            Err(reason) => Err(TransportError {
                who: self.who.clone(),
                reason,
            }),
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
                self.stream
                    .try_read_vectored(&mut [IoSliceMut::new(first), IoSliceMut::new(second)])
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
