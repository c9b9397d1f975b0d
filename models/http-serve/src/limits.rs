//! What a connection may cost.

use std::time::Duration;

/// Bounds on connections; the defaults suit requests that take milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections open at the same time; at least 1.
    pub max_connections: usize,
    /// Time for a request's header to arrive, from the connection's start or the end of the request before.
    pub header_read_timeout: Duration,
    /// Time for which a client may take nothing of its response.
    pub write_timeout: Duration,
    /// Bytes of a request's header, with the request line. (Header fields are at most 100, hyper's own limit.)
    pub max_header_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: 1024,
            header_read_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(10),
            max_header_bytes: 16 * 1024,
        }
    }
}
