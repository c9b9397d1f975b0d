//! Messages between processes on the control plane: JSON, each in a frame with its length.

use std::io;
use std::time::Duration;

use futures::{SinkExt as _, StreamExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::bytes::{Bytes, BytesMut};
use tokio_util::codec::{Framed, LengthDelimitedCodec};

/// Bytes of a frame, at most: all keys of a registry come in one.
const MAX_FRAME: usize = 64 << 20;

const MAX_CONNECTIONS: usize = 65_536;

#[derive(Debug)]
pub(crate) struct Frames(Framed<TcpStream, LengthDelimitedCodec>);

impl Frames {
    fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let mut codec = LengthDelimitedCodec::new();
        codec.set_max_frame_length(MAX_FRAME);
        Ok(Self(Framed::new(stream, codec)))
    }

    pub(crate) async fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        self.send_bytes(serde_json::to_vec(message)?.into()).await
    }

    pub(crate) async fn send_bytes(&mut self, bytes: Bytes) -> io::Result<()> {
        self.0.send(bytes).await
    }

    pub(crate) async fn receive<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        Ok(serde_json::from_slice(&self.receive_bytes().await?)?)
    }

    /// Can be dropped at any time: no frame is lost.
    pub(crate) async fn receive_bytes(&mut self) -> io::Result<BytesMut> {
        let frame = self.0.next().await;
        frame.unwrap_or_else(|| Err(io::Error::other("the connection was closed")))
    }
}

/// Waits for an answer no longer than `limit`; otherwise returns why there is none.
pub(crate) async fn within<T>(
    limit: Duration,
    call: impl Future<Output = io::Result<T>>,
) -> Result<T, String> {
    match timeout(limit, call).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("nothing came within {limit:?}")),
    }
}

/// Sends a request on a new connection; returns its answer, and the connection.
pub(crate) async fn ask<T: DeserializeOwned>(
    endpoint: &str,
    request: impl Serialize,
    limit: Duration,
) -> Result<(T, Frames), String> {
    let call = async {
        let mut frames = Frames::new(TcpStream::connect(endpoint).await?)?;
        frames.send(&request).await?;
        Ok((frames.receive().await?, frames))
    };
    within(limit, call).await
}

/// Answers the connections at `listener`, each in a task of its own, until `stop`. Then all end.
pub(crate) async fn serve<A>(
    listener: TcpListener,
    answer: impl Fn(Frames) -> A,
    stop: impl Future<Output = ()>,
) where
    A: Future<Output = io::Result<()>> + Send + 'static,
{
    let mut connections = JoinSet::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepted = tokio::select! {
            () = &mut stop => return,
            accepted = listener.accept() => accepted,
        };
        while connections.try_join_next().is_some() {}
        match accepted.and_then(|(stream, _)| Frames::new(stream)) {
            Ok(frames) if connections.len() < MAX_CONNECTIONS => {
                connections.spawn(answer(frames));
            }
            Ok(_) => tracing::warn!("a connection is refused: there are too many"),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken");
                sleep(Duration::from_millis(10)).await;
            }
        }
    }
}
