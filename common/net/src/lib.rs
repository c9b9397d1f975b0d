//! Networking that the frontend, the instances and the cluster share: TLS from certificate files,
//! an HTTP server with limits and graceful drain, an HTTP client with kept-alive connections, and a
//! limit of warnings.

pub mod client;
mod log_limit;
pub mod server;
#[cfg(feature = "test-certificates")]
pub mod test_certificates;
pub mod tls;

pub use log_limit::LogLimit;
