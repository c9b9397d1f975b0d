//! Pauses between attempts.

use std::time::Duration;

/// Pauses that double from 50 ms to 1 s.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(50);
    const LONGEST: Duration = Duration::from_secs(1);

    /// The next attempt starts without a pause.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    pub(crate) async fn pause(&mut self) {
        let pause = Self::FIRST
            .saturating_mul(1 << self.failures.min(5))
            .min(Self::LONGEST);
        self.failures = self.failures.saturating_add(1);
        tokio::time::sleep(pause).await;
    }
}
