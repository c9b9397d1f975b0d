//! The accept loop and its end.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use futures::FutureExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower::{Service, ServiceExt as _};

use crate::server::accept::{Accept, Acceptor, Stream};
use crate::server::client_io::ClientIo;
use crate::server::{Connections, Http2};
use crate::tls::{Application, ServerTls};

/// Protocol of a server and the service that answers: [`Http1`] or [`Http2`].
pub trait Protocol: Clone + Send + Sync + 'static {
    /// ALPN protocol that clients ask for within TLS.
    const APPLICATION: Application;

    /// Serves the requests of a connection until the client closes it, a limit is broken, it has
    /// become too old, or `draining` asks for its end: then what is in flight is answered still.
    fn serve<S: Stream>(
        self,
        io: S,
        peer: Option<IpAddr>,
        limits: Limits,
        draining: CancellationToken,
    ) -> impl Future<Output = ()> + Send;
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

impl<S> Server<Http1<S>> {
    /// A server of `app`, a router or another service.
    pub fn new(app: S, limits: Limits) -> Self {
        Self::speaking(Http1 { app, tells_peers: false }, limits)
    }

    /// Puts the [`Peer`](crate::server::Peer) into requests' extensions.
    #[must_use]
    pub fn telling_peers(mut self) -> Self {
        self.protocol.tells_peers = true;
        self
    }
}

impl<S> Server<Http2<S>> {
    /// A server of `service` by HTTP/2, with at most `max_streams` requests a connection at a time.
    pub fn over_http2(service: S, limits: Limits, max_streams: u32) -> Self {
        Self::speaking(Http2 { service, max_streams }, limits)
    }
}

impl<P> Server<P> {
    fn speaking(protocol: P, limits: Limits) -> Self {
        Self { protocol, limits, connections: Arc::default(), tls: None }
    }

    /// Counts its connections here. Several servers may count in one place: a peer has one share.
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
        // Close the socket first: a client that connects from here on goes elsewhere at once.
        drop(acceptor);
        draining.cancel();
        drain(open, grace).await
    }

    fn admit<S: Stream>(
        &self,
        (io, peer): (S, Option<IpAddr>),
        open: &mut JoinSet<()>,
        draining: &CancellationToken,
    ) {
        let limits = self.limits;
        let share = limits.max_connections_per_peer;
        let Some(place) = self.connections.admit(peer, share) else {
            tracing::debug!(?peer, "a peer has its share of the connections");
            return;
        };
        let (protocol, tls) = (self.protocol.clone(), self.tls.clone());
        let draining = draining.clone();
        open.spawn(async move {
            if let Some(tls) = tls {
                // A handshake is large, and a task's memory is that of its largest branch.
                Box::pin(serve_within_tls(io, peer, protocol, &tls, limits, draining)).await;
            } else {
                let io = ClientIo::new(io, &limits, P::APPLICATION);
                protocol.serve(io, peer, limits, draining).await;
            }
            drop(place);
        });
    }
}

async fn serve_within_tls<S: Stream, P: Protocol>(
    io: S,
    peer: Option<IpAddr>,
    protocol: P,
    tls: &ServerTls,
    limits: Limits,
    draining: CancellationToken,
) {
    let (outdated, until) = (tls.outdated(), draining.child_token());
    let draining = until.clone();
    let serving = async {
        match timeout(limits.header_read_timeout, tls.acceptor(P::APPLICATION).accept(io)).await {
            Ok(Ok(io)) => {
                let io = ClientIo::new(io, &limits, P::APPLICATION);
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
    DrainReport { drained: open - aborted, aborted }
}

fn log_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a request handler panicked");
    }
}

/// For so long after the shutdown began, idle connections are still looked at.
const LAST_CALL: Duration = Duration::from_millis(50);

/// Limit of header fields that hyper has by itself: it costs less than one that hyper is given.
const HYPERS_HEADERS: usize = 100;

/// A router or another service, over HTTP/1.1.
#[derive(Debug, Clone)]
pub struct Http1<S = Router> {
    app: S,
    tells_peers: bool,
}

/// Where a request comes from; in its extensions, if
/// [`Server::telling_peers`](crate::server::Server::telling_peers) was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer(pub IpAddr);

impl<S> Protocol for Http1<S>
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send,
{
    const APPLICATION: Application = Application::Http1;

    async fn serve<I: Stream>(
        self,
        io: I,
        peer: Option<IpAddr>,
        limits: Limits,
        draining: CancellationToken,
    ) {
        let (app, told) = (self.app, peer.filter(|_| self.tells_peers).map(Peer));
        let service = service_fn(move |mut request: Request<Incoming>| {
            if let Some(peer) = told {
                request.extensions_mut().insert(peer);
            }
            app.clone().oneshot(request)
        });
        let mut builder = Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(limits.header_read_timeout)
            .max_header_size(limits.max_header_bytes)
            .max_buf_size(limits.buffer_bytes());
        if limits.max_headers != HYPERS_HEADERS {
            builder.max_headers(limits.max_headers);
        }
        let mut connection = pin!(builder.serve_connection(TokioIo::new(io), service));
        let ended = tokio::select! {
            ended = connection.as_mut() => Some(ended),
            // What was sent before the client could know is read first; hyper would close an idle
            // connection unread.
            () = draining.cancelled() => timeout(LAST_CALL, connection.as_mut()).await.ok(),
            () = tokio::time::sleep(limits.max_connection_age) => None,
        };
        let ended = match ended {
            Some(ended) => ended,
            None => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "connection ended early");
        }
    }
}

/// Bounds on connections; the defaults suit requests that take milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections open at the same time; at least 1.
    pub max_connections: usize,
    /// Of these, connections from one peer (an IPv4 address, or an IPv6 network of 64 bits); at
    /// least 1. More are closed as soon as they are accepted.
    pub max_connections_per_peer: usize,
    /// Time for a request's header to arrive, from the connection's start or the end of
    /// the request before.
    pub header_read_timeout: Duration,
    /// Time for which a client may take nothing of its response.
    pub write_timeout: Duration,
    /// Bytes per second that a client must take once its response has waited for `write_timeout`.
    pub min_write_rate: u32,
    /// Bytes of a request's header, with the request line.
    pub max_header_bytes: usize,
    /// Fields of a request's header.
    pub max_headers: usize,
    /// Age at which a connection is closed, after the answer to its request in flight.
    pub max_connection_age: Duration,
}

impl Limits {
    /// The defaults for so many connections.
    #[must_use]
    pub fn of_connections(max_connections: usize) -> Self {
        Self {
            max_connections,
            max_connections_per_peer: Self::share_of_one_peer(max_connections),
            ..Self::default()
        }
    }

    /// Default share of `max_connections` that one peer may hold: a quarter is left for others.
    pub fn share_of_one_peer(max_connections: usize) -> usize {
        (max_connections - max_connections / 4).max(1)
    }

    /// Time within which a client must have taken `taken` bytes of its response, and the next.
    pub(crate) fn time_to_take(&self, taken: usize) -> Duration {
        let rate = f64::from(self.min_write_rate.max(1));
        let earned = Duration::try_from_secs_f64(taken as f64 / rate).unwrap_or(Duration::MAX);
        self.write_timeout.saturating_add(earned)
    }

    /// Bytes that hyper buffers of a connection in each direction. Its own 400 KB would be 800 MB
    /// on a thousand connections.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.max_header_bytes.max(64 * 1024)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: 1024,
            max_connections_per_peer: Self::share_of_one_peer(1024),
            header_read_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(10),
            min_write_rate: 16 * 1024,
            max_header_bytes: 16 * 1024,
            max_headers: HYPERS_HEADERS,
            max_connection_age: Duration::from_secs(3600),
        }
    }
}

#[cfg(test)]
mod tests;
