//! One connection, from its first request to its end.

use std::pin::pin;

use axum::Router;
use hyper::server::conn::http1::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::Limits;
use crate::write_timeout::WriteTimeout;

/// Serves the requests of a connection until the client closes it, a limit is broken, or `draining` asks for its end:
/// then the request in flight is answered still.
pub(crate) async fn serve_connection<S>(io: S, app: Router, limits: Limits, draining: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = TokioIo::new(WriteTimeout::new(io, limits.write_timeout));
    let connection = Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_read_timeout)
        .max_header_size(limits.max_header_bytes)
        .serve_connection(io, TowerToHyperService::new(app));
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = draining.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended early");
    }
}
