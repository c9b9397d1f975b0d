//! Stream sockets of connections: TCP or Unix.

use std::io::{self, IoSlice, IoSliceMut};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream, tcp, unix};

use crate::node::wire::Batch;

/// Slices of one vectored write.
const SLICES: usize = 64;

/// A connected stream socket.
pub(super) trait Socket: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    type WriteHalf: AsyncWrite + Unpin + Send + 'static;

    /// Sets its options.
    fn prepare(&self) -> io::Result<()>;

    /// Takes it apart, for one task to read and another to write.
    fn into_halves(self) -> (ReadHalf, Self::WriteHalf);
}

impl Socket for TcpStream {
    type WriteHalf = tcp::OwnedWriteHalf;

    fn prepare(&self) -> io::Result<()> {
        self.set_nodelay(true)
    }

    fn into_halves(self) -> (ReadHalf, Self::WriteHalf) {
        let (read, write) = self.into_split();
        (ReadHalf::Tcp(read), write)
    }
}

impl Socket for UnixStream {
    type WriteHalf = unix::OwnedWriteHalf;

    fn prepare(&self) -> io::Result<()> {
        Ok(())
    }

    fn into_halves(self) -> (ReadHalf, Self::WriteHalf) {
        let (read, write) = self.into_split();
        (ReadHalf::Unix(read), write)
    }
}

/// Writes the beginning of a batch; returns how many bytes.
pub(super) async fn write(
    stream: &mut (impl AsyncWrite + Unpin + Send),
    batch: &mut Batch,
) -> io::Result<usize> {
    let mut slices = [IoSlice::new(&[]); SLICES];
    let filled = batch.slices(&mut slices);
    stream
        .write_vectored(slices.get(..filled).unwrap_or_default())
        .await
}

/// The reading side of either.
#[derive(Debug)]
pub(super) enum ReadHalf {
    Tcp(tcp::OwnedReadHalf),
    Unix(unix::OwnedReadHalf),
}

impl ReadHalf {
    /// Reads what is there; an error of kind `WouldBlock` if nothing is.
    pub(super) fn try_read(&self, space: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(half) => half.try_read(space),
            Self::Unix(half) => half.try_read(space),
        }
    }

    /// The same, into one space after the other.
    pub(super) fn try_read_vectored(&self, spaces: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(half) => half.try_read_vectored(spaces),
            Self::Unix(half) => half.try_read_vectored(spaces),
        }
    }

    /// Waits until there may be something to read.
    pub(super) async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(half) => half.readable().await,
            Self::Unix(half) => half.readable().await,
        }
    }
}
