//! Memory that the bodies of all requests may hold together.
//!
//! A limit for each body and one for the number of connections bound memory only by their
//! product, which is more than most machines have. The first bytes of each body are not
//! counted. So large bodies that fill the memory do not keep small ones out, and for small
//! ones the number of connections is bound enough. The requests of one connection share the
//! uncounted bytes: their [`Allowance`].

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

use crate::server::body::BodyError;

/// Bytes of a connection's bodies that are not counted.
const UNCOUNTED: usize = 64 * 1024;

/// Bytes of bodies that are received and decoded at a time; a longer body is alone. Bodies that are
/// refused hold no more than this.
const UNREAD: usize = 24 << 20;

/// Bytes that are held, and how many may be.
#[derive(Debug)]
pub struct BodyMemory {
    held: AtomicUsize,
    /// Bytes of bodies that are not decoded yet: announced, or there.
    unread: AtomicUsize,
    /// Tells bodies that wait that there are fewer of those.
    fewer: Notify,
    limit: usize,
    uncounted: usize,
}

/// Turn of a body to be received and decoded; others wait until this is dropped.
#[derive(Debug)]
struct Turn {
    memory: Arc<BodyMemory>,
    bytes: usize,
}

impl Turn {
    /// Others wait for so many bytes from now on, instead of those that were announced.
    fn set(&mut self, bytes: usize) {
        let bytes = bytes.saturating_sub(self.memory.uncounted);
        self.memory.unread.fetch_add(bytes, Ordering::SeqCst);
        self.memory.unread.fetch_sub(self.bytes, Ordering::SeqCst);
        self.bytes = bytes;
        self.memory.fewer.notify_waiters();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.memory.unread.fetch_sub(self.bytes, Ordering::SeqCst);
        self.memory.fewer.notify_waiters();
    }
}

/// Uncounted bytes that the bodies of one connection may still hold.
#[derive(Debug)]
pub struct Allowance(AtomicUsize);

impl Default for Allowance {
    fn default() -> Self {
        Self(AtomicUsize::new(UNCOUNTED))
    }
}

impl Allowance {
    /// So many of `bytes` as there are.
    fn take(&self, bytes: usize) -> usize {
        let take = |left: usize| Some(left - left.min(bytes));
        let Self(left) = self;
        let before = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        before.unwrap_or_else(|left| left).min(bytes)
    }
}

impl BodyMemory {
    /// At most `limit` bytes, the first 64 KB of each body aside.
    pub const fn new(limit: usize) -> Self {
        Self::counting_beyond(UNCOUNTED, limit)
    }

    /// At most `limit` bytes, the first `uncounted` of each body aside.
    pub(crate) const fn counting_beyond(uncounted: usize, limit: usize) -> Self {
        Self {
            held: AtomicUsize::new(0),
            unread: AtomicUsize::new(0),
            fewer: Notify::const_new(),
            limit,
            uncounted,
        }
    }

    /// Bytes held now.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Waits for the turn of a body that announces `bytes` bytes.
    async fn turn(self: &Arc<Self>, bytes: usize) -> Turn {
        let (bytes, unread) = (bytes.saturating_sub(self.uncounted), &self.unread);
        let takes = |unread: usize| {
            let takes =
                bytes == 0 || unread == 0 || unread.saturating_add(bytes) <= UNREAD.min(self.limit);
            takes.then_some(unread + bytes)
        };
        loop {
            let mut fewer = std::pin::pin!(self.fewer.notified());
            fewer.as_mut().enable();
            if unread.fetch_update(Ordering::SeqCst, Ordering::SeqCst, takes).is_ok() {
                return Turn { memory: Arc::clone(self), bytes };
            }
            fewer.await;
        }
    }

    /// A reservation to grow: for one of several bodies of a connection, which share an allowance,
    /// or for the only one at the time.
    pub fn reserve(self: &Arc<Self>, allowance: Option<Arc<Allowance>>) -> Reserved {
        Reserved { memory: Arc::clone(self), bytes: 0, uncounted: 0, allowance, turn: None }
    }
}

/// A body's share; given back when dropped.
#[derive(Debug)]
pub struct Reserved {
    memory: Arc<BodyMemory>,
    bytes: usize,
    uncounted: usize,
    allowance: Option<Arc<Allowance>>,
    /// Turn of the body, until it is decoded.
    turn: Option<Turn>,
}

impl Reserved {
    /// Holds `bytes` bytes from now on, if that is more: what a body came to be.
    ///
    /// # Errors
    /// [`BodyError::NoMemory`].
    pub fn hold(&mut self, bytes: usize) -> Result<(), BodyError> {
        let more = bytes.saturating_sub(self.bytes + self.uncounted);
        let uncounted = match &self.allowance {
            None => more.min(self.memory.uncounted - self.uncounted),
            Some(allowance) => allowance.take(more),
        };
        // What is held of it is given back with the rest, whether or not there is room for more.
        self.uncounted += uncounted;
        let more = more - uncounted;
        let held = self.memory.held.fetch_add(more, Ordering::Relaxed);
        if held.saturating_add(more) > self.memory.limit {
            self.memory.held.fetch_sub(more, Ordering::Relaxed);
            return Err(self.no_memory());
        }
        self.bytes += more;
        Ok(())
    }

    pub(crate) fn no_memory(&self) -> BodyError {
        BodyError::NoMemory { limit: self.memory.limit }
    }

    /// Returns whether a body of which `bytes` bytes are there has to wait for its turn.
    pub(crate) fn waits_with(&self, bytes: usize) -> bool {
        self.turn.is_none() && bytes > self.memory.uncounted
    }

    pub(crate) async fn turn(&mut self, bytes: usize) {
        self.turn = Some(self.memory.turn(bytes).await);
    }

    /// Has others wait for `bytes` bytes, instead of those that were announced.
    pub(crate) fn expect_no_more_than(&mut self, bytes: usize) {
        if let Some(turn) = &mut self.turn {
            turn.set(bytes);
        }
    }

    /// Lets other bodies be received and decoded: this one is.
    pub fn decoded(&mut self) {
        self.turn = None;
    }

    /// Holds no more than `bytes` bytes from now on: what is left of a body.
    pub fn shrink_to(&mut self, bytes: usize) {
        let counted = self.bytes.min(bytes.saturating_sub(self.uncounted));
        self.memory.held.fetch_sub(self.bytes - counted, Ordering::Relaxed);
        self.bytes = counted;
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.memory.held.fetch_sub(self.bytes, Ordering::Relaxed);
        if let Some(Allowance(left)) = self.allowance.as_deref() {
            left.fetch_add(self.uncounted, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn bodies_of_one_connection_share_what_is_not_counted() {
        let memory = Arc::new(BodyMemory::new(10_000));
        let allowance = Arc::new(Allowance::default());
        let mut first = memory.reserve(Some(Arc::clone(&allowance)));
        first.hold(60_000).unwrap();
        assert_eq!(memory.held(), 0);
        let mut second = memory.reserve(Some(Arc::clone(&allowance)));
        second.hold(10_000).unwrap();
        assert_eq!(memory.held(), 70_000 - UNCOUNTED);
        assert!(second.hold(20_000).is_err());
        let mut of_another = memory.reserve(Some(Arc::default()));
        of_another.hold(60_000).unwrap();
        drop(first);
        drop(second);
        assert_eq!(memory.held(), 0);
        let mut third = memory.reserve(Some(allowance));
        third.hold(UNCOUNTED).unwrap();
        assert_eq!(memory.held(), 0, "all of it is there again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_body_waits_for_those_that_are_not_decoded() {
        let memory = Arc::new(BodyMemory::counting_beyond(10, usize::MAX));
        let mut first = memory.turn(UNREAD - 30).await;
        let second = memory.turn(40).await;
        assert!(memory.turn(10).now_or_never().is_some(), "not counted");
        assert!(memory.turn(21).now_or_never().is_none(), "10 are left");
        let shared = Arc::clone(&memory);
        let third = tokio::spawn(async move { drop(shared.turn(60).await) });
        tokio::task::yield_now().await;
        first.set(UNREAD - 60);
        tokio::task::yield_now().await;
        assert!(!third.is_finished(), "40 are left");
        drop(second);
        third.await.unwrap();
        drop(first);
        assert_eq!(memory.unread.load(Ordering::SeqCst), 0);
        let longer = memory.turn(UNREAD + 100);
        assert!(longer.now_or_never().is_some(), "a longer one is alone");
    }

    #[test]
    fn what_is_left_of_a_body_is_held() {
        let memory = Arc::new(BodyMemory::counting_beyond(10, 100));
        let mut reserved = memory.reserve(None);
        reserved.hold(80).unwrap();
        reserved.shrink_to(30);
        assert_eq!(memory.held(), 20);
        reserved.hold(110).unwrap();
        reserved.shrink_to(5);
        assert_eq!(memory.held(), 0);
    }
}
