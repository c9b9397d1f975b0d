//! The accept loop of a gRPC listener, and its end.
//!
//! - At most [`Limits::max_connections`] connections are open, with [`Limits::max_streams`] requests each; further
//!   connections wait in the kernel's backlog;
//! - a connection without a request for [`Limits::idle_timeout`], its first one included, is closed (clients connect again
//!   when they have something to say); so is one whose other end does not answer pings;
//! - a request that takes longer than [`Limits::request_timeout`], its message's arrival included, is answered with
//!   `DEADLINE_EXCEEDED`;
//! - on shutdown nothing more is accepted, clients are told to go elsewhere, and requests in flight may finish within the grace
//!   period; what is left then is dropped, and with it the request's future.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::body::Body;
use tower::Service;

/// What connections may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections open at the same time; at least 1.
    pub max_connections: usize,
    /// Requests of one connection at the same time.
    pub max_streams: u32,
    /// Bytes of a request's header fields.
    pub max_header_bytes: u32,
    /// Time without a request after which a connection is closed.
    pub idle_timeout: Duration,
    /// Time for a request, from its header to its answer.
    pub request_timeout: Duration,
}

/// How the connections ended that were open when the shutdown began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drained {
    /// Ended by themselves: idle, or their requests were answered.
    pub drained: usize,
    /// Still had a request in flight when the grace period was over.
    pub aborted: usize,
}

/// Bytes of one request that may be on their way without having been read; a message of this size needs no round trip more.
const STREAM_WINDOW: u32 = 1 << 20;
/// The same for all requests of a connection.
const CONNECTION_WINDOW: u32 = 4 << 20;
/// A ping goes out after so long without a frame, and its answer must come as soon.
const PING: Duration = Duration::from_secs(20);
/// Streams that a client may have opened and reset again before the connection is given up (rapid reset).
const MAX_RESET_STREAMS: usize = 32;
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Serves `service` on `listener` until `shutdown` resolves, then drains for at most `grace`. Dropping the future closes
/// everything at once.
pub async fn serve<S>(
    listener: TcpListener,
    service: S,
    limits: Limits,
    shutdown: impl Future<Output = ()>,
    grace: Duration,
) -> Drained
where
    S: Service<http::Request<Incoming>, Response = http::Response<Body>, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send,
{
    let mut connections = JoinSet::new();
    let draining = CancellationToken::new();
    let mut shutdown = pin!(shutdown);
    let mut pause = Duration::ZERO;
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(ended) = connections.join_next() => log_panic(ended),
            accepted = accept(&listener, pause), if connections.len() < limits.max_connections.max(1) => {
                match accepted {
                    Ok(stream) => {
                        pause = Duration::ZERO;
                        connections.spawn(connection(stream, service.clone(), limits, draining.clone()));
                    }
                    // One connection's mishap meets the next one no more than a want of files ends by itself at once.
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection");
                        pause = (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
                    }
                }
            }
        }
    }
    drop(listener);
    draining.cancel();
    drain(connections, grace).await
}

/// Cancel-safe, but for the pause, which then begins again.
async fn accept(listener: &TcpListener, pause: Duration) -> io::Result<tokio::net::TcpStream> {
    if !pause.is_zero() {
        sleep(pause).await;
    }
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn drain(mut connections: JoinSet<()>, grace: Duration) -> Drained {
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
    Drained { drained: open - aborted, aborted }
}

fn log_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a request handler panicked");
    }
}

/// Serves the requests of a connection until the client closes it, it is idle, or `draining` asks for its end.
async fn connection<I, S>(io: I, service: S, limits: Limits, draining: CancellationToken)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<http::Request<Incoming>, Response = http::Response<Body>, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send,
{
    let activity = Arc::new(Activity::default());
    let handler = {
        let activity = Arc::clone(&activity);
        service_fn(move |request| {
            let under_way = Activity::begin(&activity);
            let mut service = service.clone();
            async move {
                let answer = timeout(limits.request_timeout, service.call(request)).await;
                drop(under_way);
                answer.unwrap_or_else(|_| {
                    Ok(Status::deadline_exceeded("the request took too long to arrive or to answer")
                        .into_http())
                })
            }
        })
    };
    let connection = Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        .max_concurrent_streams(limits.max_streams)
        .max_header_list_size(limits.max_header_bytes)
        .max_pending_accept_reset_streams(MAX_RESET_STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .serve_connection(TokioIo::new(io), handler);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        () = draining.cancelled() => None,
        () = activity.idle_for(limits.idle_timeout) => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection.as_mut() => ended,
                // Nothing is in flight, and the client does not close.
                () = activity.idle_for(limits.idle_timeout) => return,
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended early");
    }
}

/// Which requests a connection has had.
#[derive(Debug, Default)]
struct Activity {
    begun: AtomicUsize,
    under_way: AtomicUsize,
}

struct UnderWay(Arc<Activity>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Activity {
    fn begin(this: &Arc<Self>) -> UnderWay {
        this.begun.fetch_add(1, Ordering::Relaxed);
        this.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay(Arc::clone(this))
    }

    /// Ends when no request was there for `limit` to twice as long.
    async fn idle_for(&self, limit: Duration) {
        let mut before = self.begun.load(Ordering::Relaxed);
        loop {
            sleep(limit).await;
            let begun = self.begun.load(Ordering::Relaxed);
            if begun == before && self.under_way.load(Ordering::Relaxed) == 0 {
                return;
            }
            before = begun;
        }
    }
}
