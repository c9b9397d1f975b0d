//! Networking that the frontend, the instances and the cluster share: TLS from certificate files,
//! an HTTP server with limits and graceful drain, and an HTTP client with kept-alive connections.

pub mod client;
pub mod server;
#[cfg(feature = "test-certificates")]
pub mod test_certificates;
pub mod tls;
