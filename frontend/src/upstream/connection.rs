//! Connections to one instance: HTTP/1.1, kept alive, driven by the task that uses them.
//!
//! hyper's client splits a connection into a sender and a task that does the IO. Here whoever sends polls both, which
//! saves two task switches for each request: a query's time at the frontend is made of little else.

use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{HeaderMap, Request, StatusCode};
use hyper_util::rt::TokioIo;
use parapet_frontend_core::{Failure, FailureKind};
use parking_lot::Mutex;
use tokio::net::TcpStream;

type Driver = Pin<Box<http1::Connection<TokioIo<TcpStream>, Full<Bytes>>>>;

struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: Driver,
    /// Whether it has carried a request: the instance may have closed it since.
    used: bool,
}

/// A whole response.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// Connections to one instance. At most `keep` idle ones are kept; how many are open at once is the dispatcher's
/// business, which gives an instance no more requests than it has slots.
pub(super) struct Connections {
    name: String,
    address: SocketAddr,
    connect_timeout: Duration,
    max_response_bytes: usize,
    keep: usize,
    idle: Mutex<Vec<Connection>>,
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connections").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Connections {
    pub(super) fn new(
        name: String,
        address: SocketAddr,
        connect_timeout: Duration,
        max_response_bytes: usize,
        keep: usize,
    ) -> Self {
        Self { name, address, connect_timeout, max_response_bytes, keep, idle: Mutex::new(Vec::new()) }
    }

    /// Name for people: the address as configured.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Sends `request` and reads the whole response.
    ///
    /// A connection that was kept alive may turn out to be closed; then a fresh one is tried, once. That is no retry of
    /// the query: the instance never answered on that connection, and inference has no side effects.
    pub(super) async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response, Failure> {
        while let Some(connection) = self.take_idle() {
            match self.exchange(connection, request.clone()).await {
                Err(Broken { stale: true, .. }) => {}
                Err(broken) => return Err(self.failure(FailureKind::ConnectionLost, &broken.reason)),
                Ok(response) => return Ok(response),
            }
        }
        let connection = self.connect().await?;
        self.exchange(connection, request)
            .await
            .map_err(|broken| self.failure(FailureKind::ConnectionLost, &broken.reason))
    }

    /// An idle connection that has not been seen to close.
    fn take_idle(&self) -> Option<Connection> {
        loop {
            let mut connection = self.idle.lock().pop()?;
            let closed = (&mut connection.driver).now_or_never().is_some();
            if !closed && !connection.sender.is_closed() {
                return Some(connection);
            }
        }
    }

    async fn connect(&self) -> Result<Connection, Failure> {
        let unreachable = |reason: String| self.failure(FailureKind::Unreachable, &reason);
        let stream = tokio::time::timeout(self.connect_timeout, TcpStream::connect(self.address))
            .await
            .map_err(|_| unreachable(format!("no connection within {:?}", self.connect_timeout)))?
            .map_err(|error| unreachable(error.to_string()))?;
        stream.set_nodelay(true).map_err(|error| unreachable(error.to_string()))?;
        let (sender, driver) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| unreachable(error.to_string()))?;
        Ok(Connection { sender, driver: Box::pin(driver), used: false })
    }

    async fn exchange(
        &self,
        connection: Connection,
        request: Request<Full<Bytes>>,
    ) -> Result<Response, Broken> {
        let Connection { mut sender, mut driver, used } = connection;
        let mut closed = false;
        let result = {
            let exchange = async {
                sender.ready().await.map_err(|error| Broken::new(used, &error))?;
                let response =
                    sender.send_request(request).await.map_err(|error| Broken::new(used, &error))?;
                let (parts, body) = response.into_parts();
                let body = Limited::new(body, self.max_response_bytes)
                    .collect()
                    .await
                    .map_err(|error| Broken { stale: false, reason: format!("response body: {error}") })?
                    .to_bytes();
                Ok(Response { status: parts.status, headers: parts.headers, body })
            };
            let mut exchange = std::pin::pin!(exchange);
            tokio::select! {
                biased;
                result = &mut exchange => result,
                _ = &mut driver => {
                    closed = true;
                    exchange.await
                }
            }
        };
        if result.is_ok() && !closed && !sender.is_closed() {
            let mut idle = self.idle.lock();
            if idle.len() < self.keep {
                idle.push(Connection { sender, driver, used: true });
            }
        }
        result
    }

    pub(super) fn failure(&self, kind: FailureKind, reason: &str) -> Failure {
        Failure::new(kind, format!("{}: {reason}", self.name))
    }
}

/// A connection that did not carry a request to its end.
struct Broken {
    /// It had been kept alive and closed before any of the response came.
    stale: bool,
    reason: String,
}

impl Broken {
    fn new(used: bool, error: &hyper::Error) -> Self {
        let before_response = error.is_canceled() || error.is_incomplete_message() || error.is_closed();
        Self { stale: used && before_response, reason: format!("connection lost: {error}") }
    }
}
