//! Counters of what engines add up themselves.

use std::sync::atomic::{AtomicU64, Ordering};

use metrics::Counter;

/// A counter of what an engine adds up itself. A model that is served anew begins at zero; its
/// counters go on.
#[derive(Debug)]
pub(super) struct Total {
    counter: Counter,
    published: AtomicU64,
}

impl Total {
    pub(super) fn new(counter: Counter) -> Self {
        Self {
            counter,
            published: AtomicU64::new(0),
        }
    }

    pub(super) fn publish(&self, total: u64) {
        let before = self.published.fetch_max(total, Ordering::Relaxed);
        self.counter.increment(total.saturating_sub(before));
    }
}
