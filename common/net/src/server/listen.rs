//! The listening socket.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

/// Connections that may wait in the kernel to be accepted; the kernel caps it at its own limit
/// (`net.core.somaxconn`).
///
/// The usual 128 overflow when a process stands still for a second at 300 connections/s: the
/// client's attempt is then dropped, and made again a second later.
const BACKLOG: u32 = 4096;

/// Listens on `address`, which may be in `TIME_WAIT` from a process before.
///
/// # Errors
/// The system's error, as when the address is taken.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}
