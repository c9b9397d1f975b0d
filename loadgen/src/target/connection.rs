//! HTTP/1.1 connections, kept alive, as many as are needed at once.
//!
//! A limit on connections would make requests wait for each other and so turn the load into a closed loop. Whoever sends
//! polls hyper's sender and its connection both, which saves two task switches for each request.

use std::net::SocketAddr;
use std::pin::Pin;

use bytes::Bytes;
use futures::FutureExt;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{HeaderMap, Request, StatusCode};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpStream;

/// Most bytes of an answer.
const MAX_ANSWER: usize = 16 << 20;

/// A whole response.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// A request without a response.
#[derive(Debug)]
pub(super) enum Broken {
    Connect(std::io::Error),
    Lost(String),
}

struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: Pin<Box<http1::Connection<TokioIo<TcpStream>, Full<Bytes>>>>,
    /// Whether it has carried a request: the server may have closed it since.
    used: bool,
}

/// Connections to one address.
pub(super) struct Connections {
    address: SocketAddr,
    idle: Mutex<Vec<Connection>>,
}

impl Connections {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { address, idle: Mutex::new(Vec::new()) }
    }

    /// Sends `request` and reads the whole response.
    ///
    /// A connection that was kept alive may turn out to be closed; then another is tried. That is no second chance for
    /// the server: it never saw the request. A fresh connection gets one try.
    pub(super) async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response, Broken> {
        while let Some(connection) = self.take_idle() {
            match self.exchange(connection, request.clone()).await {
                Err(Lost { stale: true, .. }) => {}
                Err(lost) => return Err(Broken::Lost(lost.reason)),
                Ok(response) => return Ok(response),
            }
        }
        let connection = self.connect().await?;
        self.exchange(connection, request).await.map_err(|lost| Broken::Lost(lost.reason))
    }

    /// An idle connection that has not been seen to close; the last one used, so that few are kept busy.
    fn take_idle(&self) -> Option<Connection> {
        loop {
            let mut connection = self.idle.lock().pop()?;
            let closed = (&mut connection.driver).now_or_never().is_some();
            if !closed && !connection.sender.is_closed() {
                return Some(connection);
            }
        }
    }

    async fn connect(&self) -> Result<Connection, Broken> {
        let stream = TcpStream::connect(self.address).await.map_err(Broken::Connect)?;
        stream.set_nodelay(true).map_err(Broken::Connect)?;
        let (sender, driver) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| Broken::Connect(std::io::Error::other(error)))?;
        Ok(Connection { sender, driver: Box::pin(driver), used: false })
    }

    async fn exchange(
        &self,
        connection: Connection,
        request: Request<Full<Bytes>>,
    ) -> Result<Response, Lost> {
        let Connection { mut sender, mut driver, used } = connection;
        let mut closed = false;
        let result = {
            let exchange = async {
                sender.ready().await.map_err(|error| Lost::new(used, &error))?;
                let response = sender.send_request(request).await.map_err(|error| Lost::new(used, &error))?;
                let (parts, body) = response.into_parts();
                let body = Limited::new(body, MAX_ANSWER)
                    .collect()
                    .await
                    .map_err(|error| Lost { stale: false, reason: format!("response body: {error}") })?
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
            self.idle.lock().push(Connection { sender, driver, used: true });
        }
        result
    }
}

/// A connection that did not carry a request to its end.
struct Lost {
    /// It had been kept alive and closed before any of the response came.
    stale: bool,
    reason: String,
}

impl Lost {
    fn new(used: bool, error: &hyper::Error) -> Self {
        let before_response = error.is_canceled() || error.is_incomplete_message() || error.is_closed();
        Self { stale: used && before_response, reason: error.to_string() }
    }
}
