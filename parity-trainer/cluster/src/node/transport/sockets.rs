//! Sockets: TCP, and Unix sockets between nodes on one machine.
//!
//! Nagle's algorithm is off: a connection's queue itself puts small frames together.
//!
//! A Unix socket is named after the TCP address that its node listens at. The names are abstract:
//! nothing is left behind in a file system when a process is killed, and they are seen within one
//! network namespace, as the TCP addresses are. Any process of the machine may take any name, so
//! both ends look at whose process the other is: only one of the same user is accepted.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use futures::FutureExt as _;
use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream, lookup_host};

use super::connection::{Halves, handshake};
use super::{Connection, Handshake, Listener, Local, Reason, Transport, TransportError};

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
            Some(stream) => handshake(stream, Halves::of_unix, address, &local).await,
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
        let limit = local.handshake;
        let connected = tokio::time::timeout(limit, TcpStream::connect(address)).await;
        let stream = match connected {
            Ok(connected) => connected.map_err(|error| Reason::Connect(error).at(address))?,
            Err(_) => return Err(Reason::Slow(limit).at(address)),
        };
        stream
            .set_nodelay(true)
            .map_err(|error| Reason::Io(error).at(address))?;
        handshake(stream, Halves::of_tcp, address, &local).await
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
        let error = |error| Reason::Listen(error).at(&self.address);
        let shaking = tokio::select! {
            accepted = self.tcp.accept() => {
                let (stream, from) = accepted.map_err(error)?;
                stream.set_nodelay(true).map_err(error)?;
                let from = from.to_string();
                async move { handshake(stream, Halves::of_tcp, &from, &local).await }.boxed()
            }
            accepted = accept_unix(self.unix.as_ref()) => {
                let stream = accepted.map_err(error)?;
                let from = "this machine";
                async move { handshake(stream, Halves::of_unix, from, &local).await }.boxed()
            }
        };
        Ok(shaking)
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
