//! The accept loop and its end.

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures::FutureExt as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::server::accept::{Accept, Acceptor};
use crate::server::client_io::ClientIo;
use crate::server::{Connections, Http1, Http2, Limits};
use crate::tls::{Application, ServerTls};

/// Protocol of a server and the service that answers: [`Http1`] or [`Http2`].
pub trait Protocol: Clone + Send + Sync + 'static {
    /// ALPN protocol that clients ask for within TLS.
    const APPLICATION: Application;

    /// Serves the requests of a connection until the client closes it, a limit is broken, it has
    /// become too old, or `draining` asks for its end: then what is in flight is answered still.
    fn serve<S>(
        self,
        io: S,
        peer: Option<IpAddr>,
        limits: Limits,
        draining: CancellationToken,
    ) -> impl Future<Output = ()> + Send
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static;
}

/// Outcome of the connections that were open when the shutdown began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DrainReport {
    /// Ended by themselves: idle, or their request was answered.
    pub drained: usize,
    /// Still had a request in flight when the grace period was over.
    pub aborted: usize,
}

/// A server before it runs.
#[derive(Debug)]
pub struct Server<P = Http1> {
    protocol: P,
    limits: Limits,
    connections: Arc<Connections>,
    tls: Option<Arc<ServerTls>>,
}

impl Server {
    /// A server of `app`.
    pub fn new(app: Router, limits: Limits) -> Self {
        Self::speaking(
            Http1 {
                app,
                tells_peers: false,
            },
            limits,
        )
    }

    /// Puts the [`Peer`](crate::server::Peer) into the extensions of requests, at some cost
    /// for each connection.
    #[must_use]
    pub fn telling_peers(mut self) -> Self {
        self.protocol.tells_peers = true;
        self
    }
}

impl<S> Server<Http2<S>> {
    /// A server of `service` by HTTP/2, with at most `max_streams` requests of one connection at
    /// the same time.
    pub fn over_http2(service: S, limits: Limits, max_streams: u32) -> Self {
        Self::speaking(
            Http2 {
                service,
                max_streams,
            },
            limits,
        )
    }
}

impl<P> Server<P> {
    fn speaking(protocol: P, limits: Limits) -> Self {
        Self {
            protocol,
            limits,
            connections: Arc::default(),
            tls: None,
        }
    }

    /// Counts its connections here. Several servers may count in one place: a peer's share is then
    /// that of all of them.
    #[must_use]
    pub fn counting(mut self, connections: Arc<Connections>) -> Self {
        self.connections = connections;
        self
    }

    /// Speaks TLS, and nothing else, if there is any. A handshake must be over within
    /// [`Limits::header_read_timeout`]. When the authorities of clients change, or what those have
    /// revoked, connections end after their requests in flight.
    #[must_use]
    pub fn with_tls(mut self, tls: Option<Arc<ServerTls>>) -> Self {
        self.tls = tls;
        self
    }
}

impl<P: Protocol> Server<P> {
    /// Serves the connections of `source` until `shutdown` resolves, then drains for at most
    /// `grace`; see [the guarantees](crate::server). Dropping the future closes everything at once.
    pub async fn run<A: Accept>(
        self,
        source: A,
        shutdown: impl Future<Output = ()>,
        grace: Duration,
    ) -> DrainReport {
        let mut acceptor = Acceptor::new(source);
        let mut open = JoinSet::new();
        let draining = CancellationToken::new();
        let mut shutdown = pin!(shutdown);
        loop {
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                Some(ended) = open.join_next() => log_panic(ended),
                accepted = acceptor.next(), if open.len() < self.limits.max_connections.max(1) => {
                    self.admit(accepted, &mut open, &draining);
                }
            }
        }
        // Connections that the system has completed would be reset with the socket: their clients
        // may have sent already.
        while open.len() < self.limits.max_connections.max(1)
            && let Some(accepted) = acceptor.next().now_or_never()
        {
            self.admit(accepted, &mut open, &draining);
        }
        // Close the socket first: a client that connects from here on is refused, and can go
        // elsewhere at once.
        drop(acceptor);
        draining.cancel();
        drain(open, grace).await
    }

    fn admit<S>(
        &self,
        (io, peer): (S, Option<IpAddr>),
        open: &mut JoinSet<()>,
        draining: &CancellationToken,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Some(place) = self
            .connections
            .admit(peer, self.limits.max_connections_per_peer)
        else {
            tracing::debug!(?peer, "a peer has its share of the connections");
            return;
        };
        let (protocol, tls) = (self.protocol.clone(), self.tls.clone());
        let serving = serve_peer(io, peer, protocol, tls, self.limits, draining.clone());
        open.spawn(async move {
            serving.await;
            drop(place);
        });
    }
}

/// Serves a connection, within TLS if there is any.
async fn serve_peer<S, P: Protocol>(
    io: S,
    peer: Option<IpAddr>,
    protocol: P,
    tls: Option<Arc<ServerTls>>,
    limits: Limits,
    draining: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Some(tls) = tls else {
        let io = ClientIo::new(io, &limits);
        return protocol.serve(io, peer, limits, draining).await;
    };
    // A handshake is large, and a task's memory is that of its largest branch.
    Box::pin(serve_within_tls(io, peer, protocol, &tls, limits, draining)).await;
}

async fn serve_within_tls<S, P: Protocol>(
    io: S,
    peer: Option<IpAddr>,
    protocol: P,
    tls: &ServerTls,
    limits: Limits,
    draining: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (outdated, until) = (tls.outdated(), draining.child_token());
    let draining = until.clone();
    let serving = async {
        let handshake = tls.acceptor(P::APPLICATION).accept(io);
        match timeout(limits.header_read_timeout, handshake).await {
            Ok(Ok(io)) => {
                let io = ClientIo::new(io, &limits);
                Box::pin(protocol.serve(io, peer, limits, draining)).await;
            }
            Ok(Err(error)) => tracing::debug!(%error, "no TLS connection"),
            Err(_) => tracing::debug!("no TLS connection in time"),
        }
    };
    let mut serving = pin!(serving);
    tokio::select! {
        () = &mut serving => {}
        // The client may be one that is not let in any more; one that is connects anew.
        () = outdated.cancelled() => {
            until.cancel();
            serving.await;
        }
    }
}

async fn drain(mut connections: JoinSet<()>, grace: Duration) -> DrainReport {
    let open = connections.len();
    let all_ended = async {
        while let Some(ended) = connections.join_next().await {
            log_panic(ended);
        }
    };
    // A timeout leaves the connections that are not done in the set.
    let _ = timeout(grace, all_ended).await;
    let aborted = connections.len();
    connections.shutdown().await;
    DrainReport {
        drained: open - aborted,
        aborted,
    }
}

fn log_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a request handler panicked");
    }
}

#[cfg(test)]
mod tests;
