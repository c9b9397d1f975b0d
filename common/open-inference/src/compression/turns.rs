//! Turns of work on bodies, away from the threads that serve connections.
//!
//! Work takes memory that no request's length tells beforehand. So the number of bodies in work is
//! bounded, and so are the bytes of long ones together: a flood of them waits, and short ones pass
//! it by. Bodies that came uncompressed do not wait for those that unpack to more.

use std::sync::{Arc, LazyLock};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(crate) const SHORT: usize = 1 << 20;
/// Bytes of long bodies in work at a time; a longer body is in work alone.
pub(crate) const LONG_BYTES: usize = 16 << 20;
const UNIT: usize = 1024;

/// One body less than there are processors: the threads that serve connections need one.
static WORKERS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Arc::new(Semaphore::new(processors.saturating_sub(1).max(1)))
});

static UNPACKED: Long = LazyLock::new(long);
static PLAIN: Long = LazyLock::new(long);

type Long = LazyLock<Arc<Semaphore>>;

fn long() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(LONG_BYTES / UNIT))
}

#[derive(Debug)]
pub(crate) struct Turn {
    long: Option<OwnedSemaphorePermit>,
    _worker: OwnedSemaphorePermit,
}

impl Turn {
    /// Waits for the turn of a compressed body that unpacks to at most `bytes` bytes.
    pub(crate) async fn to_unpack(bytes: usize) -> Option<Self> {
        Self::among(&UNPACKED, bytes).await
    }

    /// Waits for the turn of a body of `bytes` bytes that came as it is.
    pub(crate) async fn to_read(bytes: usize) -> Option<Self> {
        Self::among(&PLAIN, bytes).await
    }

    async fn among(long: &Long, bytes: usize) -> Option<Self> {
        let long = match bytes {
            ..=SHORT => None,
            _ => Some(Arc::clone(long).acquire_many_owned(units(bytes)).await.ok()?),
        };
        Some(Self { long, _worker: Arc::clone(&WORKERS).acquire_owned().await.ok()? })
    }

    /// Gives back what a body of `bytes` bytes does not need.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        if let Some(long) = &mut self.long {
            drop(long.split(long.num_permits().saturating_sub(units(bytes) as usize)));
        }
    }

    /// Does `work` on another thread. `None` if it panics.
    ///
    /// The turn is over when the work is, even if the caller is gone by then.
    pub(crate) async fn take<T: Send + 'static>(
        self,
        work: impl FnOnce(&mut Self) -> T + Send + 'static,
    ) -> Option<T> {
        let mut turn = self;
        let working = tokio::task::spawn_blocking(move || (work(&mut turn), turn));
        working.await.ok().map(|(done, _)| done)
    }
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.min(LONG_BYTES).div_ceil(UNIT)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_long_body_waits_for_the_one_before_and_a_short_one_does_not() {
        let long = Arc::clone(&UNPACKED).acquire_many_owned(units(usize::MAX)).await.unwrap();
        assert!(Turn::to_unpack(SHORT + 1).now_or_never().is_none());
        assert!(Turn::to_unpack(SHORT).await.is_some());
        // It is not to be unpacked.
        assert!(Turn::to_read(usize::MAX).await.is_some());
        drop(long);
        let mut first = Turn::to_unpack(usize::MAX).await.unwrap();
        first.shrink_to(LONG_BYTES / 2);
        let half = Arc::clone(&UNPACKED).acquire_many_owned(units(LONG_BYTES / 2));
        assert!(half.await.is_ok());
    }
}
