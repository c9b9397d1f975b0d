//! Where connections come from.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{Instant, sleep_until};

/// Connections that may wait in the kernel to be accepted, which caps it (`net.core.somaxconn`).
///
/// The usual 128 overflow when a process stands still for a second at 300 connections/s: the
/// client's attempt is then dropped, and made again a second later.
const BACKLOG: u32 = 4096;

/// Listens on `address`, which may be in `TIME_WAIT` from a process before.
///
/// # Errors
/// The system's error, as when the address is taken.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Byte stream of a connection.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for S {}

/// A source of connections; tests have one in memory.
pub trait Accept: Send {
    /// Byte stream of a connection.
    type Io: Stream;

    /// Waits for the next connection, and says whose it is if that is known; cancel-safe.
    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Io, Option<IpAddr>)>> + Send;
}

impl Accept for TcpListener {
    type Io = TcpStream;

    async fn accept(&mut self) -> io::Result<(TcpStream, Option<IpAddr>)> {
        let (stream, peer) = TcpListener::accept(self).await?;
        // Responses are written whole; Nagle's algorithm would hold their last segment back.
        stream.set_nodelay(true)?;
        Ok((stream, Some(peer.ip())))
    }
}

/// Accepts until it succeeds, with a pause after each failure that the next would meet as well.
pub(crate) struct Acceptor<A> {
    source: A,
    /// The pause after the last failure, and when it ends; kept here so that cancelling the wait
    /// does not cut it short.
    pause: Option<(Duration, Instant)>,
}

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl<A: Accept> Acceptor<A> {
    pub(crate) fn new(source: A) -> Self {
        Self { source, pause: None }
    }

    /// Waits for the next connection; cancel-safe.
    pub(crate) async fn next(&mut self) -> (A::Io, Option<IpAddr>) {
        loop {
            if let Some((_, end)) = self.pause {
                sleep_until(end).await;
            }
            match self.source.accept().await {
                Ok(accepted) => {
                    self.pause = None;
                    return accepted;
                }
                Err(error) if is_about_one_connection(&error) => {
                    tracing::debug!(%error, "connection lost")
                }
                Err(error) => {
                    let pause =
                        self.pause.map_or(FIRST_PAUSE, |(last, _)| (last * 2).min(LONGEST_PAUSE));
                    tracing::warn!(%error, ?pause, "cannot accept connections");
                    self.pause = Some((pause, Instant::now() + pause));
                }
            }
        }
    }
}

fn is_about_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionAborted, ConnectionRefused, ConnectionReset, InvalidInput, NotConnected,
    };
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | InvalidInput | NotConnected
    )
}
