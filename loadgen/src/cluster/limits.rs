//! Limits of waits for a cluster.

use std::time::Duration;

/// Time that everything may take to be up before a block.
pub(super) const SETTLE_LIMIT: Duration = Duration::from_secs(20);
pub(super) const SETTLE_PERIOD: Duration = Duration::from_millis(50);
pub(super) const ASK_LIMIT: Duration = Duration::from_secs(5);
