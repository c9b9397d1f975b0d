//! Warnings about requests, of which there may be thousands a second.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Least time between two messages of a kind, in milliseconds.
const EVERY_MS: u64 = 1000;

static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Lets one message a second of a kind through, and counts the others.
#[derive(Debug, Default)]
pub struct LogLimit {
    /// Milliseconds from the start of the program.
    due: AtomicU64,
    held_back: AtomicU64,
}

impl LogLimit {
    /// A limit that lets the first message through.
    pub const fn new() -> Self {
        Self { due: AtomicU64::new(0), held_back: AtomicU64::new(0) }
    }

    /// If a message may be written now: how many were held back since the last one.
    pub fn pass(&self) -> Option<u64> {
        self.pass_at(STARTED.elapsed())
    }

    fn pass_at(&self, now: Duration) -> Option<u64> {
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX - EVERY_MS);
        let (due, relaxed) = (&self.due, Ordering::Relaxed);
        let next = |due| (now >= due).then_some(now.saturating_add(EVERY_MS));
        if due.fetch_update(relaxed, relaxed, next).is_ok() {
            return Some(self.held_back.swap(0, Ordering::Relaxed));
        }
        self.held_back.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_message_a_second_passes_and_tells_of_the_others() {
        let limit = LogLimit::new();
        let passed = |ms| limit.pass_at(Duration::from_millis(ms));
        assert_eq!([0, 1, 999].map(passed), [Some(0), None, None]);
        assert_eq!([1000, 1999].map(passed), [Some(2), None]);
        assert_eq!(passed(60_000), Some(1));
    }
}
