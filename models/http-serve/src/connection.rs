//! One connection, from its first request to its end.

use std::pin::pin;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parapet_tls::TlsAcceptor;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::Limits;
use crate::client_io::ClientIo;

/// For so long after the shutdown began, idle connections are still looked at.
const LAST_CALL: Duration = Duration::from_millis(50);

/// Serves a connection, within TLS if there is any.
pub(crate) async fn serve_peer<S>(
    io: S,
    tls: Option<TlsAcceptor>,
    app: Router,
    limits: Limits,
    draining: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Some(tls) = tls else {
        return serve_connection(io, app, limits, draining).await;
    };
    match timeout(limits.header_read_timeout, tls.accept(io)).await {
        // A stream within TLS is large, and a task's memory is that of its largest branch.
        Ok(Ok(io)) => Box::pin(serve_connection(io, app, limits, draining)).await,
        Ok(Err(error)) => tracing::debug!(%error, "no TLS connection"),
        Err(_) => tracing::debug!("no TLS connection in time"),
    }
}

/// Serves the requests of a connection until the client closes it, a limit is broken, it has become too old, or `draining`
/// asks for its end: then the request in flight is answered still.
async fn serve_connection<S>(io: S, app: Router, limits: Limits, draining: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = TokioIo::new(ClientIo::new(io, limits.write_timeout, limits.min_write_rate));
    let connection = Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_read_timeout)
        .max_header_size(limits.max_header_bytes)
        .max_headers(limits.max_headers)
        .max_buf_size(limits.buffer_bytes())
        .serve_connection(io, TowerToHyperService::new(app));
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = draining.cancelled() => {
            // What was sent before the client could know is read first; hyper would close an idle connection unread.
            match timeout(LAST_CALL, connection.as_mut()).await {
                Ok(ended) => ended,
                Err(_) => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            }
        }
        () = tokio::time::sleep(limits.max_connection_age) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended early");
    }
}
