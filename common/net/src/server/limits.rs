//! Limits of a connection.

use std::time::Duration;

/// Bounds on connections; the defaults suit requests that take milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections open at the same time; at least 1.
    pub max_connections: usize,
    /// Of these, connections from one peer (an IPv4 address, or an IPv6 network of 64 bits); at
    /// least 1. More are closed as soon as they are accepted.
    pub max_connections_per_peer: usize,
    /// Time for a request's header to arrive, from the connection's start or the end of
    /// the request before.
    pub header_read_timeout: Duration,
    /// Time for which a client may take nothing of its response.
    pub write_timeout: Duration,
    /// Bytes per second at which a client must take its response once it has kept it waiting for
    /// `write_timeout`.
    pub min_write_rate: u32,
    /// Bytes of a request's header, with the request line.
    pub max_header_bytes: usize,
    /// Fields of a request's header.
    pub max_headers: usize,
    /// Age at which a connection is closed, after the answer to its request in flight.
    pub max_connection_age: Duration,
}

impl Limits {
    /// The defaults for so many connections.
    #[must_use]
    pub fn of_connections(max_connections: usize) -> Self {
        let max_connections_per_peer = Self::share_of_one_peer(max_connections);
        Self {
            max_connections,
            max_connections_per_peer,
            ..Self::default()
        }
    }

    /// Default share of `max_connections` that one peer may hold: a quarter is left for others.
    pub fn share_of_one_peer(max_connections: usize) -> usize {
        (max_connections - max_connections / 4).max(1)
    }

    /// Bytes that hyper buffers of a connection in each direction. Its own 400 KB would be 800 MB
    /// on a thousand connections.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.max_header_bytes.max(64 * 1024)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: 1024,
            max_connections_per_peer: Self::share_of_one_peer(1024),
            header_read_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(10),
            min_write_rate: 16 * 1024,
            max_header_bytes: 16 * 1024,
            max_headers: 100,
            max_connection_age: Duration::from_secs(3600),
        }
    }
}
