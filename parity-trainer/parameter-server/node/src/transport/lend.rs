//! Large sections to a Unix socket without a copy on this side: the kernel is lent their pages, and the other end copies
//! straight out of them.
//!
//! `vmsplice` puts references to the pages into a pipe, and `splice` moves these on to the socket. What is lent has to stay as
//! it is until the other end has read it: see [`crate::wire::Batch::lending`].

use std::io::{self, ErrorKind, IoSlice, PipeReader, PipeWriter};

use nix::fcntl::{FcntlArg, SpliceFFlags, fcntl, splice, vmsplice};
use tokio::io::Interest;
use tokio::net::UnixStream;

/// Bytes that the pipe takes if they begin and end anywhere in a page: two pieces' worth.
const PIPE: i32 = 512 * 1024;

/// Lends memory to one socket.
#[derive(Debug)]
pub(super) struct Lender {
    from: PipeReader,
    into: PipeWriter,
    /// Bytes in the pipe: the first of what is to be written.
    inside: usize,
}

impl Lender {
    /// One that cannot lend.
    #[cfg(test)]
    pub(super) fn broken() -> io::Result<Self> {
        let ((from, _), (_, into)) = (io::pipe()?, io::pipe()?);
        Ok(Self { from, into, inside: 0 })
    }

    /// With a pipe of its own.
    ///
    /// # Errors
    /// If the system gives no pipe of that size: a user may have so many.
    pub(super) fn new() -> io::Result<Self> {
        let (from, into) = io::pipe()?;
        fcntl(&into, FcntlArg::F_SETPIPE_SZ(PIPE))?;
        Ok(Self { from, into, inside: 0 })
    }

    /// Gives the socket the beginning of `piece`; how many bytes. The next piece must begin with the rest.
    ///
    /// # Errors
    /// If the system does not do this, or the connection is gone: what was not written may be written another way.
    pub(super) async fn write(&mut self, socket: &UnixStream, piece: &[u8]) -> io::Result<usize> {
        if self.inside == 0 {
            self.inside = vmsplice(&self.into, &[IoSlice::new(piece)], SpliceFFlags::SPLICE_F_NONBLOCK)?;
        }
        loop {
            let (from, inside) = (&self.from, self.inside);
            let moved = socket.try_io(Interest::WRITABLE, || {
                Ok(splice(from, None, socket, None, inside, SpliceFFlags::SPLICE_F_NONBLOCK)?)
            });
            match moved {
                Ok(count) => {
                    self.inside = self.inside.saturating_sub(count);
                    return Ok(count);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => socket.writable().await?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
