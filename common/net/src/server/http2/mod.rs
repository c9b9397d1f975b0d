//! HTTP/2: many requests at a time on a connection, as gRPC has them.
//!
//! Limits that HTTP/1.1 has for each connection must hold for each stream here. A client may leave
//! the answer of one stream unread, by its flow-control window, while it goes on asking on others,
//! and the socket never tells.

mod frames;
mod watch;

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::tls::Application;
use axum::http::{Request, Response};
use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http2::Builder;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio_util::sync::CancellationToken;
use tower::Service;

pub(crate) use frames::Frames;
use watch::{Over, Watch};
pub use watch::{RequestBody, ResponseBody};

use crate::server::accept::Stream;
use crate::server::{Allowance, Limits, Protocol};

/// Bytes of one request that may be on their way without having been read; a message of this size
/// needs no round trip more.
const STREAM_WINDOW: u32 = 1 << 20;
/// The same for all requests of a connection.
const CONNECTION_WINDOW: u32 = 4 << 20;
/// A ping goes out after so long without a frame, and its answer must come as soon.
const PING: Duration = Duration::from_secs(20);
/// Streams that a client may have opened and reset again before they were looked at (rapid reset).
const MAX_RESET_STREAMS: usize = 32;
/// Streams that break the protocol, or are more than allowed, before the connection is given up.
const MAX_BROKEN_STREAMS: usize = 256;
/// A connection that was asked to end takes requests that were on their way for so long, and is
/// closed when nothing was in flight for as long: the client does not close it.
const LAST_CALL: Duration = Duration::from_millis(500);

/// A service, over HTTP/2. Requests have their connection's [`Allowance`] in their extensions.
#[derive(Debug, Clone)]
pub struct Http2<S> {
    pub(crate) service: S,
    pub(crate) max_streams: u32,
}

impl<T, B> Protocol for Http2<T>
where
    T: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible>,
    T: Clone + Send + Sync + 'static,
    T::Future: Send,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    const APPLICATION: Application = Application::Http2;

    async fn serve<S>(self, io: S, _: Option<IpAddr>, limits: Limits, draining: CancellationToken)
    where
        S: Stream,
    {
        let watch = Watch::new();
        let service = TowerToHyperService::new(self.service);
        let handler = {
            let (watch, allowance) = (Arc::clone(&watch), Arc::new(Allowance::default()));
            service_fn(move |request: Request<Incoming>| {
                let mut ticket = watch.begin();
                let mut request = request.map(|body| RequestBody::new(body, ticket.arrival()));
                request.extensions_mut().insert(Arc::clone(&allowance));
                let answering = service.call(request);
                async move {
                    let response = answering.await?;
                    ticket.answered();
                    Ok::<_, Infallible>(response.map(|body| ResponseBody::new(body, ticket)))
                }
            })
        };
        let connection = Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING)
            .keep_alive_timeout(PING)
            .max_concurrent_streams(self.max_streams)
            .max_header_list_size(u32::try_from(limits.max_header_bytes).unwrap_or(u32::MAX))
            .max_pending_accept_reset_streams(MAX_RESET_STREAMS)
            .max_local_error_reset_streams(MAX_BROKEN_STREAMS)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .serve_connection(TokioIo::new(io), handler);
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => Some(ended),
            () = draining.cancelled() => None,
            () = tokio::time::sleep(limits.max_connection_age) => None,
            over = watch.over(limits.header_read_timeout, &limits) => match over {
                Over::Idle => None,
                Over::Unread | Over::Resets => return tracing::debug!(?over, "connection closed"),
            },
        };
        let ended = match ended {
            Some(ended) => ended,
            None => {
                connection.as_mut().graceful_shutdown();
                let notice = LAST_CALL.min(limits.header_read_timeout);
                watch.close(notice);
                tokio::select! {
                    ended = connection.as_mut() => ended,
                    over = watch.over(notice, &limits) => {
                        return tracing::debug!(?over, "connection closed");
                    }
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "connection ended early");
        }
    }
}
