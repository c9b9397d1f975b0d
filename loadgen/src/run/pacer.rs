//! Letting requests go on time.

use std::os::fd::{AsFd as _, AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

use crate::schedule::Schedule;

/// Lets the request of that index go. Called once for each, in order.
pub type Release = Box<dyn FnMut(usize) + Send>;

pub trait Pacer {
    /// Calls `release` for every request of `schedule`, each as soon after `start` as it is due
    /// and never sooner. Dropping the future ends that. Fails when pacing cannot begin; then
    /// nothing was released.
    fn pace(
        self,
        start: Instant,
        schedule: Arc<Schedule>,
        release: Release,
    ) -> impl Future<Output = std::io::Result<()>> + Send;
}

/// Paces from a task of the runtime's, with a timer of the kernel's.
///
/// The runtime's own timers have a granularity of 1 ms. The kernel's are exact to a few
/// microseconds and are waited for together with the sockets: no thread of their own, and no two
/// switches between threads for each request.
#[derive(Debug, Clone, Copy, Default)]
pub struct KernelPacer;

impl Pacer for KernelPacer {
    async fn pace(
        self,
        start: Instant,
        schedule: Arc<Schedule>,
        mut release: Release,
    ) -> std::io::Result<()> {
        let timer = Timer::new()?;
        for (index, &planned_us) in schedule.planned_us.iter().enumerate() {
            let planned = Duration::from_micros(planned_us);
            while let Some(left) =
                planned.checked_sub(start.elapsed()).filter(|left| !left.is_zero())
            {
                let expiration = Expiration::OneShot(TimeSpec::from_duration(left));
                let Timer(kernel) = timer.get_ref();
                kernel.set(expiration, TimerSetTimeFlags::empty())?;
                // Setting the timer takes its last expiration back: there is nothing to read.
                timer.readable().await?.clear_ready();
            }
            release(index);
        }
        Ok(())
    }
}

/// A timer of the kernel's; readable once it has expired.
struct Timer(TimerFd);

impl Timer {
    fn new() -> std::io::Result<AsyncFd<Self>> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = Self(TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?);
        #[expect(
            deprecated,
            reason = "its successor is unsafe, for types that do not own their descriptor; this \
                one does"
        )]
        AsyncFd::with_interest(timer, Interest::READABLE)
    }
}

impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}
