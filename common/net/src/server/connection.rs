//! One connection, from its first byte to its end.

use std::net::IpAddr;

use crate::tls::{Application, TlsAcceptor};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::server::Limits;
use crate::server::client_io::ClientIo;

/// Protocol of a server and the service that answers:
/// [`Http1`](crate::server::Http1) or
/// [`Http2`](crate::server::Http2).
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

/// Serves a connection, within TLS if there is any.
pub(crate) async fn serve_peer<P, S>(
    (io, peer): (S, Option<IpAddr>),
    tls: Option<TlsAcceptor>,
    protocol: P,
    limits: Limits,
    draining: CancellationToken,
) where
    P: Protocol,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Some(tls) = tls else {
        return protocol
            .serve(bounded(io, &limits), peer, limits, draining)
            .await;
    };
    match timeout(limits.header_read_timeout, tls.accept(io)).await {
        // A stream within TLS is large, and a task's memory is that of its largest branch.
        Ok(Ok(io)) => Box::pin(protocol.serve(bounded(io, &limits), peer, limits, draining)).await,
        Ok(Err(error)) => tracing::debug!(%error, "no TLS connection"),
        Err(_) => tracing::debug!("no TLS connection in time"),
    }
}

fn bounded<S>(io: S, limits: &Limits) -> ClientIo<S> {
    ClientIo::new(io, limits.write_timeout, limits.min_write_rate)
}
