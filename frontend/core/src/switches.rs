//! What operators change while the engine serves.

use std::time::Duration;

/// What counts as late, in place of what is configured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum HoldBackOverride {
    /// Whoever has waited this long.
    Fixed(Duration),
    /// Whoever has waited longer than this quantile (0 to 1) of recent latency, within
    /// the configured bounds.
    Percentile(f64),
}

/// How the switches stand. The default is what is configured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Switches {
    /// True if new queries get redundancy. Without it each gets its one request, with retries; what
    /// was begun for queries before ends as it would have.
    pub redundancy: bool,
    /// What counts as late, for all classes.
    pub hold_back: Option<HoldBackOverride>,
}

impl Default for Switches {
    fn default() -> Self {
        Self {
            redundancy: true,
            hold_back: None,
        }
    }
}
