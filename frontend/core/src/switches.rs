//! Switches that operators set while the engine serves.

use std::time::Duration;

/// Hold-back in place of the configured one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum HoldBackOverride {
    /// A query is late after this time.
    Fixed(Duration),
    /// A query is late after this quantile (0 to 1) of recent latency, within
    /// the configured bounds.
    Percentile(f64),
}

/// State of the switches. The default is what is configured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Switches {
    /// True if new queries get redundancy. Without it each gets its one request, with retries; what
    /// was begun for queries before ends as it would have.
    pub redundancy: bool,
    /// Hold-back of all classes.
    pub hold_back: Option<HoldBackOverride>,
}

impl Default for Switches {
    fn default() -> Self {
        Self { redundancy: true, hold_back: None }
    }
}
