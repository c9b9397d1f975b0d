//! Letting requests go on time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::Duration;

use tokio::time::Instant;

use crate::schedule::Schedule;

/// Lets the request of that index go. Called once for each, in order.
pub type Release = Box<dyn FnMut(usize) + Send>;

/// Calls back when requests are due.
pub trait Pacer {
    /// Calls `release` for every request of `schedule`, each as soon after `start` as it is due and never sooner. Dropping
    /// the future ends that. Fails when pacing cannot begin; then nothing was released.
    fn pace(
        self,
        start: Instant,
        schedule: Arc<Schedule>,
        release: Release,
    ) -> impl Future<Output = std::io::Result<()>> + Send;
}

/// Paces from a thread of its own.
///
/// The runtime's timers have a granularity of 1 ms. A thread's sleep ends within the kernel's timer slack, 50 us unless
/// one asks for less; with that asked for, no time needs to be spun away.
#[derive(Debug, Clone, Copy, Default)]
pub struct ThreadPacer;

impl Pacer for ThreadPacer {
    async fn pace(self, start: Instant, schedule: Arc<Schedule>, release: Release) -> std::io::Result<()> {
        let (done, ended) = tokio::sync::oneshot::channel();
        let stopped = Arc::new(AtomicBool::new(false));
        let thread = {
            let stopped = Arc::clone(&stopped);
            std::thread::Builder::new().name("pacer".to_owned()).spawn(move || {
                sleep_precisely();
                pace_thread(start, &schedule, release, &stopped);
                // Nobody listens any more if the run was ended.
                let _ = done.send(());
            })?
        };
        let _stop = StopOnDrop { stopped, thread: thread.thread().clone() };
        // An error says that the thread is gone, which ends pacing as well.
        let _ = ended.await;
        Ok(())
    }
}

struct StopOnDrop {
    stopped: Arc<AtomicBool>,
    thread: Thread,
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.thread.unpark();
    }
}

fn pace_thread(start: Instant, schedule: &Schedule, mut release: Release, stopped: &AtomicBool) {
    for (index, &planned_us) in schedule.planned_us().iter().enumerate() {
        let planned = Duration::from_micros(planned_us);
        loop {
            if stopped.load(Ordering::Relaxed) {
                return;
            }
            match planned.checked_sub(start.elapsed()) {
                None | Some(Duration::ZERO) => break,
                Some(left) => std::thread::park_timeout(left),
            }
        }
        release(index);
    }
}

/// Asks the kernel to end this thread's sleeps on time.
fn sleep_precisely() {
    #[cfg(target_os = "linux")]
    {
        // Refused, the lag grows by some 50 us, which the report shows.
        let _ = nix::sys::prctl::set_timerslack(1);
    }
}
