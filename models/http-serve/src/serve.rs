//! The accept loop and its end.

use std::pin::pin;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::Limits;
use crate::accept::{Accept, Acceptor};
use crate::connection::serve_connection;

/// How the connections ended that were open when the shutdown began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainReport {
    /// Ended by themselves: idle, or their request was answered.
    pub drained: usize,
    /// Still had a request in flight when the grace period was over.
    pub aborted: usize,
}

/// Serves `app` on `listener` until `shutdown` resolves, then drains for at most `grace`; see the crate's documentation
/// for the guarantees. Dropping the future closes everything at once.
pub async fn serve(
    listener: TcpListener,
    app: Router,
    limits: Limits,
    shutdown: impl Future<Output = ()>,
    grace: Duration,
) -> DrainReport {
    serve_from(listener, app, limits, shutdown, grace).await
}

pub(crate) async fn serve_from<A: Accept>(
    source: A,
    app: Router,
    limits: Limits,
    shutdown: impl Future<Output = ()>,
    grace: Duration,
) -> DrainReport {
    let mut acceptor = Acceptor::new(source);
    let mut connections = JoinSet::new();
    let draining = CancellationToken::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(ended) = connections.join_next() => log_panic(ended),
            io = acceptor.next(), if connections.len() < limits.max_connections.max(1) => {
                connections.spawn(serve_connection(io, app.clone(), limits, draining.clone()));
            }
        }
    }
    // Close the socket first: a client that connects from here on is refused, and can go elsewhere at once.
    drop(acceptor);
    draining.cancel();
    drain(connections, grace).await
}

async fn drain(mut connections: JoinSet<()>, grace: Duration) -> DrainReport {
    let open = connections.len();
    let all_ended = async {
        while let Some(ended) = connections.join_next().await {
            log_panic(ended);
        }
    };
    // A timeout leaves the connections that are not done in the set.
    let _ = tokio::time::timeout(grace, all_ended).await;
    let aborted = connections.len();
    connections.shutdown().await;
    DrainReport { drained: open - aborted, aborted }
}

fn log_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a request handler panicked");
    }
}

#[cfg(test)]
mod tests;
