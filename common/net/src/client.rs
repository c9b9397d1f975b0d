//! HTTP/1.1 client for one server. Connections are kept alive, driven by the task that uses them.
//!
//! hyper's client splits a connection into a sender and a task that does the IO. Here the sending
//! task polls both, which saves two task switches for each request. That matters: a query spends
//! little other time in the frontend, and a late load generator measures itself. The client opens
//! as many connections as requests are sent at once. Callers bound that number.

mod turn;

use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Waker};
use std::time::Duration;

use crate::tls::client::TlsStream;
use crate::tls::{Application, ClientTls, ServerName, TlsFailure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{HeaderMap, Request, StatusCode};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio_util::either::Either;

use self::turn::{Turns, in_turns};

/// Bounds of [`Connections`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Time limit for opening a connection; the system's own if `None`.
    pub connect_timeout: Option<Duration>,
    /// Bytes of a response's body.
    pub max_response_bytes: usize,
    /// Idle connections that are kept.
    pub max_idle: usize,
}

/// A response with its whole body.
#[allow(missing_docs, reason = "the names say what the fields are")]
#[derive(Debug)]
pub struct Response {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// A request without a response.
#[allow(missing_docs, reason = "the messages say what the variants are")]
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    #[error(transparent)]
    Connect(std::io::Error),
    #[error("no connection within {0:?}")]
    ConnectTimeout(Duration),
    /// Also where the server refused this client's certificate, told after TLS 1.3's handshake.
    #[error("no TLS connection: {0}")]
    Tls(TlsFailure),
    /// It ended before a response came.
    #[error("connection lost: {0}")]
    Lost(#[source] hyper::Error),
    #[error("the response is longer than {limit} bytes")]
    TooLong { limit: usize },
    #[error("response body: {0}")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl SendError {
    /// Returns true if no connection was opened: the server has seen nothing of the request.
    pub fn is_unsent(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::ConnectTimeout(_) | Self::Tls(_))
    }
}

struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: Pin<Box<http1::Connection<TokioIo<Stream>, Full<Bytes>>>>,
    /// True if it has carried a request: the server may have closed it since.
    used: bool,
    /// Of the certificates that it was made with.
    generation: u64,
    turns: Turns,
}

type Stream = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// TLS settings for one server.
#[derive(Clone)]
pub struct Tls {
    /// Trusted authorities and the client's own identity. Connections opened before a change of
    /// these carry no further request.
    pub client: ClientTls,
    /// The name that the server's certificate must have.
    pub name: ServerName<'static>,
}

/// Connections to one address.
pub struct Connections {
    address: SocketAddr,
    limits: Limits,
    tls: Option<Tls>,
    idle: Mutex<Vec<Connection>>,
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connections").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Connections {
    /// None are opened yet.
    pub fn new(address: SocketAddr, limits: Limits) -> Self {
        Self { address, limits, tls: None, idle: Mutex::new(Vec::new()) }
    }

    /// Speaks TLS, if there is any.
    #[must_use]
    pub fn with_tls(mut self, tls: Option<Tls>) -> Self {
        self.tls = tls;
        self
    }

    /// Sends what `request` makes, reads the whole response. Dropping it closes the connection.
    ///
    /// A connection that was kept alive may turn out to be closed; then a fresh one is tried, once.
    /// That is no second chance for the server, which gave no part of a response on the old one.
    /// The caller's requests must be such that sending them twice does no harm: a server that dies
    /// with a request in hand looks the same.
    pub async fn send(
        &self,
        request: impl Fn() -> Request<Full<Bytes>>,
    ) -> Result<Response, SendError> {
        let mut lost = None;
        if let Some(connection) = self.take_idle() {
            match self.exchange(connection, request()).await {
                Err(Broken { stale: true, error }) => lost = Some(error),
                Err(broken) => return Err(broken.error),
                Ok(response) => return Ok(response),
            }
        }
        // On the heap: it is rare, and with TLS several times as large as all else in this future.
        Box::pin(async {
            let connected = self.connect().await;
            // A server that died with the request in hand refuses connections, too.
            let connection = connected.map_err(|refused| lost.unwrap_or(refused))?;
            self.exchange(connection, request()).await.map_err(|broken| broken.error)
        })
        .await
    }

    /// An idle connection not seen to close; the last one used, so that few are kept busy.
    fn take_idle(&self) -> Option<Connection> {
        loop {
            let mut connection = self.idle.lock().pop()?;
            if connection.generation != self.generation() {
                continue;
            }
            let (driver, context) =
                (&mut connection.driver, &mut Context::from_waker(Waker::noop()));
            let polled = connection.turns.poll(context, |context| driver.as_mut().poll(context));
            let closed = polled.is_ready();
            if !closed && !connection.sender.is_closed() {
                return Some(connection);
            }
        }
    }

    fn generation(&self) -> u64 {
        self.tls.as_ref().map_or(0, |tls| tls.client.generation())
    }

    async fn connect(&self) -> Result<Connection, SendError> {
        // Asked for first: certificates that change meanwhile cost a connection.
        let generation = self.generation();
        let connecting = self.open();
        let stream = match self.limits.connect_timeout {
            Some(limit) => tokio::time::timeout(limit, connecting)
                .await
                .map_err(|_| SendError::ConnectTimeout(limit))?,
            None => connecting.await,
        }?;
        let connection = http1::handshake(TokioIo::new(stream)).await;
        let (sender, driver) =
            connection.map_err(|error| SendError::Connect(std::io::Error::other(error)))?;
        let (driver, turns) = (Box::pin(driver), Turns::default());
        Ok(Connection { sender, driver, used: false, generation, turns })
    }

    async fn open(&self) -> Result<Stream, SendError> {
        let connected = async {
            let stream = TcpStream::connect(self.address).await?;
            stream.set_nodelay(true)?;
            Ok(stream)
        };
        let stream = connected.await.map_err(SendError::Connect)?;
        match &self.tls {
            None => Ok(Either::Left(stream)),
            Some(Tls { client, name }) => {
                let connector = client.connector(Application::Http1);
                let stream = connector.connect(name.clone(), stream).await;
                Ok(Either::Right(Box::new(stream.map_err(no_tls)?)))
            }
        }
    }

    async fn exchange(
        &self,
        mut connection: Connection,
        request: Request<Full<Bytes>>,
    ) -> Result<Response, Broken> {
        let (sender, used) = (&mut connection.sender, connection.used);
        let limit = self.limits.max_response_bytes;
        let exchange = async {
            let lost = |error| Broken::lost(used, error);
            sender.ready().await.map_err(lost)?;
            let (parts, body) = sender.send_request(request).await.map_err(lost)?.into_parts();
            let body = Limited::new(body, limit).collect().await.map_err(|error| Broken {
                stale: false,
                error: match error.is::<LengthLimitError>() {
                    true => SendError::TooLong { limit },
                    false => SendError::Body(error),
                },
            })?;
            Ok(Response { status: parts.status, headers: parts.headers, body: body.to_bytes() })
        };
        let driver = connection.driver.as_mut();
        let (result, closed) = in_turns(&connection.turns, pin!(exchange), driver).await;
        if result.is_ok() && !closed && !connection.sender.is_closed() {
            connection.used = true;
            let mut idle = self.idle.lock();
            if idle.len() < self.limits.max_idle {
                idle.push(connection);
            }
        }
        result
    }
}

fn no_tls(error: std::io::Error) -> SendError {
    TlsFailure::of(&error).map_or(SendError::Connect(error), SendError::Tls)
}

/// A connection that did not carry a request to its end.
struct Broken {
    /// It had been kept alive and closed before any of the response came.
    stale: bool,
    error: SendError,
}

impl Broken {
    fn lost(used: bool, error: hyper::Error) -> Self {
        if !used && let Some(refused @ TlsFailure::ClientRefused(_)) = TlsFailure::of(&error) {
            return Self { stale: false, error: SendError::Tls(refused) };
        }
        let before_response =
            error.is_canceled() || error.is_incomplete_message() || error.is_closed();
        Self { stale: used && before_response, error: SendError::Lost(error) }
    }
}
