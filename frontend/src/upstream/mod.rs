//! Requests to instances, behind a trait so that tests can answer from memory.

mod failure;
mod grpc;
mod http;
mod instances;
mod outputs;

pub use crate::discovery::Place;
pub use instances::Instances;

use std::sync::Arc;
use std::time::Duration;

use parapet_frontend_core::{AttemptResult, FailureKind, InstanceId};
use parapet_net::client::SendError;
use parapet_net::tls::TlsFailure;
use tokio::time::Instant;

use crate::payload::{Input, Output};

pub trait Transport: Send + Sync + std::fmt::Debug + 'static {
    /// Has an instance infer. Dropping the future withdraws the request.
    fn infer(
        &self,
        instance: InstanceId,
        input: Arc<Input>,
    ) -> impl Future<Output = AttemptResult<Output>> + Send;

    /// Asks an instance whether it is ready to infer.
    fn ready(&self, instance: InstanceId) -> impl Future<Output = Result<(), Unready>> + Send;

    /// An instance joined, at this place; it will be asked whether it is ready, then to infer.
    /// Gives its name in logs and metrics.
    fn join(&self, instance: InstanceId, place: &Place) -> String;

    /// An instance left, and has nothing in flight.
    fn left(&self, instance: InstanceId);
}

/// Why an instance is not ready, for logs and for operators.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unready {
    #[error("no answer within {0:?}")]
    TooLate(Duration),
    #[error("no TLS connection: {0}")]
    Tls(TlsFailure),
    #[error("{0}")]
    Unreachable(String),
    #[error("it answers {0}")]
    Says(String),
    #[error("its address or model name makes no valid request")]
    Unaddressable,
}

impl From<SendError> for Unready {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Tls(failure) => Self::Tls(failure),
            other => Self::Unreachable(other.to_string()),
        }
    }
}

/// Resolution of the timers of an instance, and of ours.
const TIMER: Duration = Duration::from_millis(5);

/// The failure of an instance that gave a query up for lack of time; it does not count against the
/// instance if the time that it was given is over.
fn given_up(input: &Input) -> FailureKind {
    match input.deadline {
        Some(deadline) if Instant::now() + TIMER >= deadline => FailureKind::DeadlineExceeded,
        _ => FailureKind::InstanceError,
    }
}
