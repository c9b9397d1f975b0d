//! Sockets: TCP, and Unix sockets between nodes on one machine.
//!
//! One task for each connection writes; the receiver reads in its own, so that no frame changes
//! tasks on its way in. Nagle's algorithm is off: the queue itself puts small frames together, as
//! many as there are when the socket can take more.
//!
//! A Unix socket is named after the TCP address that its node listens at. The names are abstract:
//! nothing is left behind in a file system when a process is killed, and they are seen within one
//! network namespace, as the TCP addresses are. Any process of the machine may take any name, so
//! both ends look at whose process the other is: only one of the same user is accepted.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::FutureExt as _;
use nix::sys::socket::{Shutdown, setsockopt, shutdown, sockopt};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream, lookup_host};
use tokio_util::task::AbortOnDropHandle;

use super::queue::{self, Outgoing};
use super::{
    Connection, Handshake, Listener, Local, Reason, Receiver, Source, Transport, TransportError,
    within,
};
use crate::node::wire::{Batch, Decoder, Frame, HELLO_LEN, Hello, Limits, PREFIX_LEN};

/// Frames are put together up to this many bytes, then written: the checksum is made of what the
/// write finds in the cache.
const TOGETHER: usize = 256 * 1024;

/// Slices of one vectored write.
const SLICES: usize = 64;

/// Bytes that the kernel keeps for the other end of a Unix socket to read. Pushes of 4 MiB go over
/// a fifth faster with this than with half as much, and twice as much gains nothing.
const BUFFER: usize = 2 << 20;

/// Sockets: nodes on one machine connect through a Unix socket, others with TCP.
///
/// A node listens at its TCP address and, where the system has abstract Unix sockets (Linux), at
/// one that is named after it. A connecting node tries that first. A byte costs less than half of
/// what it costs over TCP, on either side.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sockets;

/// TCP alone, also on one machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tcp;

impl Transport for Sockets {
    type Listener = SocketListener;

    async fn listen(
        &self,
        address: &str,
        local: Arc<Local>,
    ) -> Result<SocketListener, TransportError> {
        let mut listener = Tcp.listen(address, local).await?;
        let address = &listener.address;
        match UnixListener::bind(unix_name(address)) {
            Ok(unix) => listener.unix = Some(unix),
            Err(error) => {
                tracing::warn!(address, %error, "no Unix socket; this machine's nodes use TCP");
            }
        }
        Ok(listener)
    }

    async fn connect(
        &self,
        address: &str,
        local: Arc<Local>,
    ) -> Result<Connection, TransportError> {
        match connect_unix(address).await {
            Some(stream) => {
                let handshake = handshake(stream, Socket::Unix, address, &local);
                within(local.handshake, address, handshake).await
            }
            None => Tcp.connect(address, local).await,
        }
    }
}

impl Transport for Tcp {
    type Listener = SocketListener;

    async fn listen(
        &self,
        address: &str,
        local: Arc<Local>,
    ) -> Result<SocketListener, TransportError> {
        let error = |error| Reason::Listen(error).at(address);
        let tcp = TcpListener::bind(address).await.map_err(error)?;
        let address = tcp.local_addr().map_err(error)?.to_string();
        Ok(SocketListener {
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
            stream.set_nodelay(true).map_err(Reason::Io)?;
            handshake(stream, Socket::Tcp, address, &local).await
        };
        within(local.handshake, address, connecting).await
    }
}

#[derive(Debug)]
pub struct SocketListener {
    tcp: TcpListener,
    unix: Option<UnixListener>,
    address: String,
    local: Arc<Local>,
}

impl Listener for SocketListener {
    fn address(&self) -> String {
        self.address.clone()
    }

    async fn accept(&mut self) -> Result<Handshake, TransportError> {
        let local = Arc::clone(&self.local);
        let limit = local.handshake;
        let error = |error| Reason::Listen(error).at(&self.address);
        tokio::select! {
            accepted = self.tcp.accept() => {
                let (stream, from) = accepted.map_err(error)?;
                stream.set_nodelay(true).map_err(error)?;
                Ok(async move {
                    let from = from.to_string();
                    within(limit, &from, handshake(stream, Socket::Tcp, &from, &local)).await
                }.boxed())
            }
            accepted = accept_unix(self.unix.as_ref()) => {
                let stream = accepted.map_err(error)?;
                Ok(async move {
                    let from = "this machine";
                    within(limit, from, handshake(stream, Socket::Unix, from, &local)).await
                }.boxed())
            }
        }
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
            setsockopt(&stream.as_fd(), sockopt::SndBuf, &BUFFER)?;
            return Ok(stream);
        }
        tracing::warn!("another user's process connected to this node's Unix socket: turned away");
    }
}

/// Connects to a node of the same user that listens at `address` on this machine, if there is one.
async fn connect_unix(address: &str) -> Option<UnixStream> {
    for address in lookup_host(address).await.ok()? {
        if let Ok(stream) = UnixStream::connect(unix_name(&address.to_string())).await {
            setsockopt(&stream.as_fd(), sockopt::SndBuf, &BUFFER).ok()?;
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

/// A connected stream socket, which one task reads and another writes.
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    fn try_read(&self, spaces: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_read_vectored(spaces),
            Self::Unix(stream) => stream.try_read_vectored(spaces),
        }
    }

    async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.readable().await,
            Self::Unix(stream) => stream.readable().await,
        }
    }

    /// Writes the beginning of a batch.
    fn try_write(&self, batch: &mut Batch) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let filled = batch.slices(&mut slices);
        let slices = slices.get(..filled).unwrap_or_default();
        match self {
            Self::Tcp(stream) => stream.try_write_vectored(slices),
            Self::Unix(stream) => stream.try_write_vectored(slices),
        }
    }

    async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.writable().await,
            Self::Unix(stream) => stream.writable().await,
        }
    }

    /// Tells the peer that nothing more will be written.
    fn shut_down(&self) {
        let fd = match self {
            Self::Tcp(stream) => stream.as_raw_fd(),
            Self::Unix(stream) => stream.as_raw_fd(),
        };
        // It may be closed already.
        let _ = shutdown(fd, Shutdown::Write);
    }
}

/// Both ends speak first, so that each can say why it does not like the other.
async fn handshake<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    socket: impl FnOnce(S) -> Socket,
    address: &str,
    local: &Local,
) -> Result<Connection, Reason> {
    stream
        .write_all(&local.hello.encode())
        .await
        .map_err(Reason::Io)?;
    let ended = |error: io::Error| match error.kind() {
        ErrorKind::UnexpectedEof => Reason::Closed,
        _ => Reason::Io(error),
    };
    let mut bytes = [0; HELLO_LEN];
    let Some((prefix, rest)) = bytes.split_first_chunk_mut::<PREFIX_LEN>() else {
        return Err(Reason::Closed);
    };
    stream.read_exact(prefix).await.map_err(ended)?;
    Hello::check_prefix(prefix)?;
    stream.read_exact(rest).await.map_err(ended)?;
    let hello = Hello::decode(&bytes)?;
    local.hello.accept(&hello)?;
    let socket = Arc::new(socket(stream));
    let (sender, outgoing) = queue::queue(local.queue);
    let max_frame = local.hello.max_frame;
    let writing = tokio::spawn(write(Arc::clone(&socket), outgoing, max_frame));
    let limits = Limits {
        max_frame,
        pooled: local.pooled,
    };
    let incoming = Incoming {
        socket,
        _writer: AbortOnDropHandle::new(writing),
        decoder: Decoder::new(limits),
    };
    let source = Source::Socket(Box::new(incoming));
    Ok(Connection {
        peer: hello.peer,
        sender,
        receiver: Receiver::new(source, hello.peer, address),
    })
}

/// Writes what is in the queue, until the queue's other end or the connection is gone.
async fn write(socket: Arc<Socket>, mut queue: Outgoing, max_frame: u64) {
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
            let written = match socket.try_write(&mut batch) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    socket.writable().await.map(|()| 0)
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => Ok(0),
                written => written,
            };
            match written {
                Ok(count) => batch.advance(count),
                // The reading side tells the node.
                Err(_) => return,
            }
        }
        queue.sent(total);
    }
    socket.shut_down();
}

pub(super) struct Incoming {
    socket: Arc<Socket>,
    /// Ends with this: a peer that reads nothing must not keep a connection that was given up.
    _writer: AbortOnDropHandle<()>,
    decoder: Decoder,
}

impl Incoming {
    pub(super) async fn recv(&mut self, progress: &AtomicU64) -> Result<Frame, Reason> {
        loop {
            if let Some(frame) = self.decoder.next()? {
                return Ok(frame);
            }
            let mut spaces = self.decoder.spaces().map(IoSliceMut::new);
            match self.socket.try_read(&mut spaces) {
                Ok(0) => return Err(Reason::Closed),
                Ok(count) => {
                    self.decoder.filled(count);
                    progress.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.socket.readable().await.map_err(Reason::Io)?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Reason::Io(error)),
            }
        }
    }
}
