//! Requests to instances, behind a trait so that tests can answer from memory.

mod failure;
mod grpc;
mod http;
mod instances;
mod outputs;
mod unready;

pub use crate::discovery::{Place, Scheme};
pub use instances::Instances;
pub use unready::Unready;

use std::sync::Arc;
use std::time::Duration;

use parapet_frontend_core::{AttemptResult, FailureKind, InstanceId};
use tokio::time::Instant;

use crate::config::HealthSettings;
use crate::payload::{Input, Output};

pub trait Transport: Send + Sync + std::fmt::Debug + 'static {
    /// Has an instance infer. Dropping the future withdraws the request.
    fn infer(
        &self,
        instance: InstanceId,
        input: Arc<Input>,
    ) -> impl Future<Output = AttemptResult<Output>> + Send;

    /// Returns true if an instance is ready to infer, or why not.
    fn ready(&self, instance: InstanceId) -> impl Future<Output = Result<(), Unready>> + Send;

    /// An instance joined, at this place; it will be asked whether it is ready, then to infer.
    /// Gives its name in logs and metrics.
    fn join(&self, instance: InstanceId, place: &Place) -> String;

    /// An instance left, and has nothing in flight.
    fn left(&self, instance: InstanceId);
}

/// Resolution of the timers of an instance, and of ours.
const TIMER: Duration = Duration::from_millis(5);

/// Returns the failure of an instance that gave a query up for lack of time; it does not count
/// against the instance if the time that it was given is over.
fn given_up(input: &Input) -> FailureKind {
    match input.deadline {
        Some(deadline) if Instant::now() + TIMER >= deadline => FailureKind::DeadlineExceeded,
        _ => FailureKind::InstanceError,
    }
}

/// Bounds a readiness check.
pub(crate) async fn ready_within<T: Transport>(
    transport: &T,
    id: InstanceId,
    settings: &HealthSettings,
) -> Result<(), Unready> {
    let late = |_| Err(Unready::TooLate(settings.timeout));
    tokio::time::timeout(settings.timeout, transport.ready(id))
        .await
        .unwrap_or_else(late)
}
