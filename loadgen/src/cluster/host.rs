//! Detection of stalls of the machine.
//!
//! On a virtual machine a core may stand still for tens of milliseconds because its host runs
//! another one. Whatever is measured meanwhile is late through no fault of its own. One thread for
//! each core wakes up every millisecond, with a real-time priority that nothing measured has, so
//! how late it wakes up is how long nothing could run there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

use crate::compare::HostStalls;

const PERIOD: Duration = Duration::from_millis(1);
/// Shorter waits are the scheduler's and the kernel's own.
const STALL: Duration = Duration::from_millis(3);
/// Above all that is measured, below the kernel's own threads.
const PRIORITY: u8 = 10;

#[derive(Debug)]
pub(super) struct HostWatch {
    cores: Vec<Arc<Core>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
pub(super) struct Mark(Vec<u64>);

#[derive(Debug, Default)]
struct Core {
    stalled_us: AtomicU64,
    longest_us: AtomicU64,
    /// True if the thread has a real-time priority, so that nothing measured delays it.
    apart: AtomicBool,
}

impl Core {
    fn woke(&self, late: Duration) {
        if late >= STALL {
            let late_us = late.as_micros() as u64;
            self.stalled_us.fetch_add(late_us, Ordering::Relaxed);
            self.longest_us.fetch_max(late_us, Ordering::Relaxed);
        }
    }

    fn watch(&self, stop: &AtomicBool) {
        let priority = u8::try_into(PRIORITY).map(ThreadPriority::Crossplatform);
        let policy = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
        let apart = priority.is_ok_and(|priority| {
            set_thread_priority_and_policy(thread_native_id(), priority, policy).is_ok()
        });
        self.apart.store(apart, Ordering::Release);
        let mut due = Instant::now() + PERIOD;
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let now = Instant::now();
            self.woke(now.saturating_duration_since(due));
            due = now + PERIOD;
        }
    }
}

impl HostWatch {
    pub(super) fn start() -> std::io::Result<Self> {
        let allowed = sched_getaffinity(Pid::from_raw(0))?;
        let mut watch = Self {
            cores: Vec::new(),
            stop: Arc::default(),
            threads: Vec::new(),
        };
        for cpu in (0..CpuSet::count()).filter(|&cpu| allowed.is_set(cpu).unwrap_or(false)) {
            let mut only = CpuSet::new();
            only.set(cpu)?;
            let (core, stop) = (Arc::new(Core::default()), Arc::clone(&watch.stop));
            watch.cores.push(Arc::clone(&core));
            let thread = std::thread::Builder::new()
                .name(format!("host-watch-{cpu}"))
                .spawn(move || {
                    // A core that was taken away meanwhile is no reason to end; the thread watches
                    // another then.
                    let _unpinned = sched_setaffinity(Pid::from_raw(0), &only);
                    core.watch(&stop);
                })?;
            watch.threads.push(thread);
        }
        Ok(watch)
    }

    pub(super) fn mark(&self) -> Mark {
        let mark = |core: &Arc<Core>| {
            core.longest_us.store(0, Ordering::Relaxed);
            core.stalled_us.load(Ordering::Relaxed)
        };
        Mark(self.cores.iter().map(mark).collect())
    }

    /// Returns the stalls since the newest mark. `None` where that cannot be told from the load's
    /// own doing: without the right to real-time priorities.
    pub(super) fn since(&self, mark: &Mark) -> Option<HostStalls> {
        let (mut total_us, mut longest_us) = (0, 0);
        for (core, before) in self.cores.iter().zip(&mark.0) {
            if !core.apart.load(Ordering::Acquire) {
                return None;
            }
            total_us += core
                .stalled_us
                .load(Ordering::Relaxed)
                .saturating_sub(*before);
            longest_us = longest_us.max(core.longest_us.load(Ordering::Relaxed));
        }
        let [total_ms, longest_ms] = [total_us, longest_us].map(|us| us as f64 / 1e3);
        Some(HostStalls {
            total_ms,
            longest_ms,
        })
    }
}

impl Drop for HostWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // It only sleeps and counts.
            let _ended = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_long_counts_and_only_since_the_mark() {
        let watch = HostWatch {
            cores: vec![Arc::default(), Arc::default()],
            stop: Arc::default(),
            threads: vec![],
        };
        let stalls = |total_ms, longest_ms| {
            Some(HostStalls {
                total_ms,
                longest_ms,
            })
        };
        let ms = Duration::from_millis;
        watch.cores[0].woke(ms(50));
        let mark = watch.mark();
        assert_eq!(
            watch.since(&mark),
            None,
            "no thread watches with a priority"
        );
        for core in &watch.cores {
            core.apart.store(true, Ordering::Release);
        }
        assert_eq!(watch.since(&mark), stalls(0.0, 0.0));
        for late in [1, 2, 20, 10] {
            watch.cores[1].woke(ms(late));
        }
        watch.cores[0].woke(ms(4));
        assert_eq!(watch.since(&mark), stalls(34.0, 20.0));
    }

    #[test]
    fn threads_end_with_the_watch() {
        let watch = HostWatch::start().unwrap();
        let cores: Vec<_> = watch.cores.iter().map(Arc::downgrade).collect();
        assert!(!cores.is_empty());
        drop(watch);
        assert!(cores.iter().all(|core| core.upgrade().is_none()));
    }
}
