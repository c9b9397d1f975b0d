//! What a connection asks of a stream socket, whichever it is.

use std::io::{self, IoSlice, IoSliceMut};

use nix::sys::socket::{getsockopt, sockopt};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream, tcp, unix};

use super::lend::Lender;
use crate::wire::Batch;

/// Slices of one vectored write.
const SLICES: usize = 64;

/// Bytes that a Unix socket takes above its limit at most: the last message that it takes.
const BEYOND: u64 = 256 * 1024;

/// A connected stream socket.
pub(super) trait Socket: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Its writing side.
    type WriteHalf: Outlet;

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
    type WriteHalf = UnixOutlet;

    fn prepare(&self) -> io::Result<()> {
        Ok(())
    }

    fn into_halves(self) -> (ReadHalf, Self::WriteHalf) {
        let (read, write) = self.into_split();
        (ReadHalf::Unix(read), UnixOutlet { half: write, lender: Lender::new().ok() })
    }
}

/// The writing side of a socket.
pub(super) trait Outlet: Send + 'static {
    /// What goes out through it.
    fn batch(&self, max_frame: u64) -> Batch;

    /// Writes the beginning of a batch that this outlet made; how many bytes.
    fn write(&mut self, batch: &mut Batch) -> impl Future<Output = io::Result<usize>> + Send;

    /// Says that nothing more comes.
    fn shutdown(&mut self) -> impl Future<Output = io::Result<()>> + Send;
}

impl Outlet for tcp::OwnedWriteHalf {
    fn batch(&self, max_frame: u64) -> Batch {
        Batch::new(max_frame)
    }

    async fn write(&mut self, batch: &mut Batch) -> io::Result<usize> {
        write_copied(self, batch).await
    }

    async fn shutdown(&mut self) -> io::Result<()> {
        AsyncWriteExt::shutdown(self).await
    }
}

/// A Unix socket's writing side, which lends what is large.
#[derive(Debug)]
pub(super) struct UnixOutlet {
    half: unix::OwnedWriteHalf,
    /// Unless the system does not lend.
    lender: Option<Lender>,
}

impl Outlet for UnixOutlet {
    fn batch(&self, max_frame: u64) -> Batch {
        match (&self.lender, getsockopt(self.half.as_ref(), sockopt::SndBuf)) {
            (Some(_), Ok(buffer)) => Batch::lending(max_frame, buffer as u64 + BEYOND),
            _ => Batch::new(max_frame),
        }
    }

    async fn write(&mut self, batch: &mut Batch) -> io::Result<usize> {
        let Some(piece) = batch.lent() else { return write_copied(&mut self.half, batch).await };
        if let Some(lender) = &mut self.lender {
            match lender.write(self.half.as_ref(), piece).await {
                Ok(count) => return Ok(count),
                Err(error) => tracing::debug!(%error, "memory is not lent to this socket, but copied"),
            }
            self.lender = None;
        }
        self.half.write(piece).await
    }

    async fn shutdown(&mut self) -> io::Result<()> {
        AsyncWriteExt::shutdown(&mut self.half).await
    }
}

async fn write_copied(stream: &mut (impl AsyncWrite + Unpin + Send), batch: &mut Batch) -> io::Result<usize> {
    let mut slices = [IoSlice::new(&[]); SLICES];
    let filled = batch.slices(&mut slices);
    stream.write_vectored(slices.get(..filled).unwrap_or_default()).await
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

#[cfg(test)]
mod tests {
    use parapet_parameter_server::{
        ArrayId, Clock, Epoch, KeyRange, Keys, Message, Push, ShardRef, Values, WorkerId,
    };
    use tokio::io::AsyncReadExt as _;

    use super::*;
    use crate::wire::Decoder;

    /// What a peer gets of a large frame.
    async fn sent_by(lender: Option<Lender>) -> Vec<u8> {
        let (one, mut other) = UnixStream::pair().unwrap();
        let (_read, half) = one.into_split();
        let range = KeyRange::new(0, 1_000_000);
        let at = ShardRef { array: ArrayId(0), range, epoch: Epoch(1) };
        let values = Values::from((0..1_000_000).map(|n| n as f32).collect::<Vec<_>>());
        let push = Push { at, worker: WorkerId(1), clock: Clock(1), keys: Keys::All, values };
        let mut batch = Batch::lending(8 << 20, 1 << 20);
        batch.push(Message::Push(push).into()).unwrap();
        let mut outlet = UnixOutlet { half, lender };
        let sending = async {
            while !batch.is_empty() {
                let written = outlet.write(&mut batch).await.unwrap();
                batch.advance(written);
            }
            outlet.shutdown().await.unwrap();
        };
        let mut bytes = Vec::new();
        let (_, received) = tokio::join!(sending, other.read_to_end(&mut bytes));
        received.unwrap();
        bytes
    }

    #[tokio::test]
    async fn what_cannot_be_lent_is_copied() {
        let copied = sent_by(None).await;
        let mut decoder = Decoder::new(crate::wire::Limits::default());
        let (mut rest, mut frames) = (&copied[..], 0);
        while !rest.is_empty() {
            let taken = decoder.feed(rest);
            rest = &rest[taken..];
            frames += usize::from(decoder.next().unwrap().is_some());
        }
        assert_eq!(frames, 1);
        assert!(sent_by(Some(Lender::broken().unwrap())).await == copied);
        assert!(sent_by(Some(Lender::new().unwrap())).await == copied);
    }
}
