//! The run's own time, which stands still when the machine does: what is planned must not all
//! happen at once afterwards, and nothing is said about how long a request took that met such a
//! moment.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;

const TICK: Duration = Duration::from_millis(10);
/// A client that misses its deadline by this much was not merely late.
const STALL: Duration = Duration::from_millis(150);
/// Delay of a tick that is not worth noting.
const PROMPT: Duration = Duration::from_millis(5);
/// Older ones are dropped.
const KEPT: usize = 1000;

/// Clones are the same clock.
#[derive(Debug, Clone)]
pub struct Clock {
    elapsed: watch::Receiver<Duration>,
    stalls: Arc<Mutex<Stalls>>,
}

#[derive(Debug, Default)]
struct Stalls {
    /// Ends of ticks that came late, and how long these took.
    late: VecDeque<(Instant, Duration)>,
    total: Duration,
    longest: Duration,
}

impl Clock {
    /// Starts it; the task ends with the runtime.
    pub fn start() -> Self {
        let (sender, elapsed) = watch::channel(Duration::ZERO);
        let stalls: Arc<Mutex<Stalls>> = Arc::default();
        let found = Arc::clone(&stalls);
        tokio::spawn(async move {
            let mut before = Instant::now();
            loop {
                tokio::time::sleep(TICK).await;
                let now = Instant::now();
                let passed = now - before;
                if passed > TICK + PROMPT {
                    found.lock().note(now, passed);
                }
                sender.send_modify(|elapsed| *elapsed += passed.min(STALL));
                before = now;
            }
        });
        Self { elapsed, stalls }
    }

    pub fn elapsed(&self) -> Duration {
        *self.elapsed.borrow()
    }

    pub async fn until(&self, moment: Duration) {
        let mut elapsed = self.elapsed.clone();
        let _gone = elapsed.wait_for(|elapsed| *elapsed >= moment).await;
    }

    pub async fn pass(&self, duration: Duration) {
        self.until(self.elapsed() + duration).await;
    }

    /// Returns true if the machine stood still at some time since `start`, or shortly before.
    pub fn stalled_since(&self, start: Instant) -> bool {
        let stalls = self.stalls.lock();
        // One that is not over has not been found yet.
        let mut late = stalls.late.iter();
        late.any(|(end, passed)| *passed > STALL && *end + STALL >= start)
    }

    /// Longest delay with which this process was scheduled since `start`.
    pub fn delay_since(&self, start: Instant) -> Duration {
        let stalls = self.stalls.lock();
        let late = stalls.late.iter().rev();
        let recent = late.take_while(|(end, _)| *end >= start);
        recent.map(|(_, passed)| *passed - TICK).max().unwrap_or_default()
    }

    /// For how long in all, and at most.
    pub fn stalls(&self) -> (Duration, Duration) {
        let stalls = self.stalls.lock();
        (stalls.total, stalls.longest)
    }
}

impl Stalls {
    fn note(&mut self, end: Instant, passed: Duration) {
        self.late.push_back((end, passed));
        if self.late.len() > KEPT {
            self.late.pop_front();
        }
        if passed > STALL {
            self.total += passed;
            self.longest = self.longest.max(passed);
        }
    }
}
