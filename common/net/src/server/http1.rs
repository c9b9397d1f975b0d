//! HTTP/1.1: one request after another.

use std::net::IpAddr;
use std::pin::pin;
use std::time::Duration;

use crate::tls::Application;
use axum::{Extension, Router};
use hyper::server::conn::http1::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::server::{Limits, Protocol};

/// For so long after the shutdown began, idle connections are still looked at.
const LAST_CALL: Duration = Duration::from_millis(50);

/// A router, over HTTP/1.1.
#[derive(Debug, Clone)]
pub struct Http1 {
    pub(crate) app: Router,
    pub(crate) tells_peers: bool,
}

/// Where a request comes from; in its extensions, if
/// [`Server::telling_peers`](crate::server::Server::telling_peers) was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer(pub IpAddr);

impl Protocol for Http1 {
    const APPLICATION: Application = Application::Http1;

    async fn serve<S>(
        self,
        io: S,
        peer: Option<IpAddr>,
        limits: Limits,
        draining: CancellationToken,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let app = match peer.filter(|_| self.tells_peers) {
            Some(peer) => self.app.layer(Extension(Peer(peer))),
            None => self.app,
        };
        let connection = Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.header_read_timeout)
            .max_header_size(limits.max_header_bytes)
            .max_headers(limits.max_headers)
            .max_buf_size(limits.buffer_bytes())
            .serve_connection(TokioIo::new(io), TowerToHyperService::new(app));
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = draining.cancelled() => {
                // What was sent before the client could know is read first; hyper would close an
                // idle connection unread.
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
}
