//! Coordinator: a process that can lead, and does nothing else.

use crate::registry::{Joining, Registry, lead};
use parapet_parameter_server::CoordinatorConfig;

use crate::roles::ClusterError;

/// Takes part in the election of a leader, and leads while elected, until `stop`.
///
/// # Errors
/// If the registry does not answer at the start.
pub async fn coordinate(
    registry: &Registry,
    config: CoordinatorConfig,
    stop: impl Future<Output = ()>,
) -> Result<(), ClusterError> {
    let membership = registry.join(Joining::Coordinator).await?;
    tracing::info!(member = %membership.id(), "joined");
    tokio::select! {
        ended = lead(&membership, config) => ended?,
        () = stop => {}
    }
    Ok(membership.leave().await?)
}
