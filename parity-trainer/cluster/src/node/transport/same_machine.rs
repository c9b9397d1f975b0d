//! Unix sockets between nodes on one machine, named after the TCP address that a node listens at.
//!
//! The names are abstract: nothing is left behind in a file system when a process is killed, and
//! they are seen within one network namespace, as the TCP addresses are. Any process of the
//! machine may take any name, so both ends look at whose process the other is: only one of the
//! same user is accepted.

use std::io;
use std::os::fd::AsFd as _;

use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::{UnixListener, UnixStream, lookup_host};

/// Bytes that the kernel keeps for the other end to read. Pushes of 4 MiB go over a fifth faster
/// with this than with half as much, and twice as much gains nothing.
const BUFFER: usize = 2 << 20;

/// Listens under the name of `address`, `HOST:PORT` as the TCP listener has it.
pub(super) fn listen(address: &str) -> io::Result<UnixListener> {
    UnixListener::bind(name(address))
}

/// The next process of the same user that connects.
pub(super) async fn accept(listener: &UnixListener) -> io::Result<UnixStream> {
    loop {
        let (stream, _) = listener.accept().await?;
        if is_ours(&stream) {
            return prepared(stream);
        }
        tracing::warn!("another user's process connected to this node's Unix socket: turned away");
    }
}

/// Connects to a node of the same user that listens at `address` on this machine, if there is one.
pub(super) async fn connect(address: &str) -> Option<UnixStream> {
    for address in lookup_host(address).await.ok()? {
        if let Ok(stream) = UnixStream::connect(name(&address.to_string())).await {
            return if is_ours(&stream) {
                prepared(stream).ok()
            } else {
                None
            };
        }
    }
    None
}

fn is_ours(stream: &UnixStream) -> bool {
    stream
        .peer_cred()
        .is_ok_and(|peer| peer.uid() == nix::unistd::geteuid().as_raw())
}

fn prepared(stream: UnixStream) -> io::Result<UnixStream> {
    setsockopt(&stream.as_fd(), sockopt::SndBuf, &BUFFER)?;
    Ok(stream)
}

/// The zero byte makes a name abstract; a system without those says that it is no path.
fn name(address: &str) -> String {
    format!("\0parapet-parameter-server/{address}")
}
