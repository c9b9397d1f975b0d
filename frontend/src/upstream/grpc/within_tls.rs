//! Connection to an instance within TLS: the certificates and errors of REST's, with HTTP/2 within.
//!
//! tonic has a TLS of its own, which reads no files again and keeps its errors to itself.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper_util::rt::TokioIo;
use parapet_net::client::Tls;
use parapet_net::tls::client::TlsStream;
use parapet_net::tls::{Application, TlsFailure};
use parapet_open_inference::grpc::InferenceClient;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint};

/// A connection made anew when the certificates change. Requests in flight end on the old one.
pub(super) struct WithinTls {
    endpoint: Endpoint,
    address: SocketAddr,
    tls: Tls,
    max_bytes: usize,
    refused: Refused,
    /// With the generation of the certificates that it is for.
    current: Mutex<(u64, InferenceClient<Channel>)>,
}

/// Reason why the server does not take this client's certificate. In TLS 1.3 that comes after the
/// handshake, and HTTP/2 tells its user nothing but that the connection was lost.
type Refused = Arc<Mutex<Option<TlsFailure>>>;

impl std::fmt::Debug for WithinTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WithinTls").field("address", &self.address).finish_non_exhaustive()
    }
}

impl WithinTls {
    pub(super) fn new(endpoint: Endpoint, address: SocketAddr, tls: Tls, max_bytes: usize) -> Self {
        let refused = Refused::default();
        let generation = tls.client.generation();
        let client = client(connect_lazily(&endpoint, address, &tls, &refused), max_bytes);
        Self {
            endpoint,
            address,
            tls,
            max_bytes,
            refused,
            current: Mutex::new((generation, client)),
        }
    }

    pub(super) fn client(&self) -> InferenceClient<Channel> {
        let generation = self.tls.client.generation();
        let mut current = self.current.lock();
        if current.0 != generation {
            let channel = connect_lazily(&self.endpoint, self.address, &self.tls, &self.refused);
            *current = (generation, client(channel, self.max_bytes));
        }
        current.1.clone()
    }

    /// Why the server of the last connection did not take this client's certificate, if it did not.
    pub(super) fn refused(&self) -> Option<TlsFailure> {
        self.refused.lock().clone()
    }
}

fn connect_lazily(
    endpoint: &Endpoint,
    address: SocketAddr,
    tls: &Tls,
    refused: &Refused,
) -> Channel {
    let (tls, refused) = (tls.clone(), Arc::clone(refused));
    endpoint.connect_with_connector_lazy(tower::service_fn(move |_| {
        let (tls, refused) = (tls.clone(), Arc::clone(&refused));
        async move { connect(address, &tls, refused).await.map(TokioIo::new) }
    }))
}

async fn connect(address: SocketAddr, tls: &Tls, refused: Refused) -> io::Result<Watched> {
    *refused.lock() = None;
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let stream = tls.client.connector(Application::Http2).connect(tls.name.clone(), stream).await?;
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    ensure!(is_http2, io::Error::other(TlsFailure::AnotherProtocol));
    Ok(Watched { stream, refused })
}

/// A connection whose server may still refuse this client's certificate.
struct Watched {
    stream: TlsStream<TcpStream>,
    refused: Refused,
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buf));
        if let Err(error) = &read
            && let Some(failure @ TlsFailure::ClientRefused(_)) = TlsFailure::of(error)
        {
            *self.refused.lock() = Some(failure);
        }
        Poll::Ready(read)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

pub(super) fn client(channel: Channel, max_bytes: usize) -> InferenceClient<Channel> {
    InferenceClient::new(channel).max_decoding_message_size(max_bytes)
}
