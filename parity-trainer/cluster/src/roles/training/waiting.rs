//! Waits of a training: their limits, and the training's end.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::job::Job;
use crate::registry::View;

/// Time that a step may take, everything included: a process that dies is replaced in seconds, but
/// the others may be slow, or validate.
pub(super) const PATIENCE: Duration = Duration::from_secs(3600);

/// Interval at which a process without executors checks the others' progress.
pub(super) const LOOKS: Duration = Duration::from_millis(200);

/// Ends when the training has.
pub(super) async fn over(mut view: watch::Receiver<Arc<View>>, job: Job) {
    // A registry that is gone for good says nothing any more.
    if view
        .wait_for(|view| !is_under_way(view, &job))
        .await
        .is_err()
    {
        std::future::pending::<()>().await;
    }
}

/// Returns true if the registry still names this training; while it is away, it counts
/// as under way.
pub(super) fn is_under_way(view: &View, job: &Job) -> bool {
    let named = view.job.as_deref().map(Job::parse);
    !view.reachable || named.is_some_and(|named| named.is_ok_and(|named| named.array == job.array))
}
