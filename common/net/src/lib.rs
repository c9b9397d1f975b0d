//! Networking that the frontend, the instances and the cluster share: TLS from certificate files,
//! an HTTP server with limits and graceful drain, and an HTTP client with kept-alive connections.

#![allow(missing_docs, reason = "names that say it all need no comment")]

pub mod client;
pub mod server;
#[cfg(feature = "test-certificates")]
pub mod test_certificates;
pub mod tls;
