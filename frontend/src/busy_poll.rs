//! Keeping the serving thread awake while there is load.
//!
//! A thread that waits for its sockets goes to sleep, and with it its core, after every event; on
//! virtual machines waking up again takes tens of microseconds, twice for each request. Polling the
//! sockets without sleeping trades a core for that, as HAProxy's `busy-polling` and Linux's
//! `net.core.busy_poll` do. Here the thread polls for a set time after the last request began or
//! ended, then sleeps until the next one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// Time of the last load. Touched by every request, at its beginning and its end.
#[derive(Debug)]
pub(crate) struct BusyPoll {
    window: Duration,
    since: Instant,
    /// When it was touched last, in nanoseconds.
    touched_ns: AtomicU64,
    is_polling: AtomicBool,
    wake: Notify,
}

impl BusyPoll {
    /// Polls for `window` after each touch; not at all if that is zero.
    pub(crate) fn new(window: Duration) -> Self {
        Self {
            window,
            since: Instant::now(),
            touched_ns: AtomicU64::new(0),
            is_polling: AtomicBool::new(false),
            wake: Notify::new(),
        }
    }

    pub(crate) fn is_enabled(&self) -> bool {
        !self.window.is_zero()
    }

    pub(crate) fn touch(&self) {
        if self.is_enabled() {
            self.touched_ns.store(self.now_ns(), Ordering::Relaxed);
            if !self.is_polling.swap(true, Ordering::AcqRel) {
                self.wake.notify_one();
            }
        }
    }

    /// Polls whenever there is load; never ends. To be run as a task of the runtime that serves.
    pub(crate) async fn run(&self) {
        loop {
            self.wake.notified().await;
            self.until_quiet().await;
        }
    }

    /// The runtime asks for events without waiting as long as a task only yields.
    async fn until_quiet(&self) {
        while self.quiet_for() < self.window {
            tokio::task::yield_now().await;
        }
        self.is_polling.store(false, Ordering::Release);
    }

    fn quiet_for(&self) -> Duration {
        let touched = self.touched_ns.load(Ordering::Relaxed);
        Duration::from_nanos(self.now_ns().saturating_sub(touched))
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn polls_for_the_window_after_a_touch_and_again_after_the_next() {
        let window = Duration::from_millis(5);
        let busy = Arc::new(BusyPoll::new(window));
        let polling = {
            let busy = Arc::clone(&busy);
            tokio::spawn(async move { busy.run().await })
        };
        for _ in 0..3 {
            let before = Instant::now();
            busy.touch();
            while busy.is_polling.load(Ordering::Acquire) {
                tokio::task::yield_now().await;
            }
            assert!(before.elapsed() >= window);
        }
        assert!(!polling.is_finished());
        polling.abort();
    }

    #[tokio::test]
    async fn a_touch_without_a_window_wakes_no_thread() {
        let busy = BusyPoll::new(Duration::ZERO);
        busy.touch();
        assert!(!busy.is_enabled() && !busy.is_polling.load(Ordering::Acquire));
    }
}
