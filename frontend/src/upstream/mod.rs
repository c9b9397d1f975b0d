//! Requests to instances, behind a trait so that tests can answer from memory.

mod http;

pub use http::HttpTransport;
pub(crate) use http::ready_within;

use std::net::SocketAddr;
use std::sync::Arc;

use parapet_frontend_core::{InstanceId, Outcome};

use crate::payload::{Input, Output};

/// How instances are reached.
pub trait Transport: Send + Sync + std::fmt::Debug + 'static {
    /// Has an instance infer. Dropping the future withdraws the request.
    fn infer(&self, instance: InstanceId, input: Arc<Input>) -> impl Future<Output = Outcome<Output>> + Send;

    /// Whether an instance is ready to infer.
    fn ready(&self, instance: InstanceId) -> impl Future<Output = bool> + Send;

    /// An instance joined, at this address; it will be asked whether it is ready, then to infer.
    fn join(&self, instance: InstanceId, address: SocketAddr);

    /// An instance left, and has nothing in flight.
    fn left(&self, instance: InstanceId);
}
