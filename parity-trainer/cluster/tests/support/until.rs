//! Waits for a registry's view.

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use parapet_cluster::registry::{Registry, View};
use tokio::time::timeout;

/// Longer than anything may take, on a machine that is busy with other things, too.
pub const LIMIT: Duration = Duration::from_secs(100);

/// Waits until the view is so.
#[track_caller]
pub fn until(
    registry: &Registry,
    is_so: impl Fn(&View) -> bool,
) -> impl Future<Output = Arc<View>> {
    let caller = Location::caller();
    async move {
        match timeout(LIMIT, registry.until(is_so)).await {
            Ok(view) => view.unwrap(),
            Err(_) => panic!("{caller}: never so: {:#?}", registry.view().borrow()),
        }
    }
}
