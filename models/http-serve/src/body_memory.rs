//! The memory that all requests' bodies may hold together.
//!
//! A limit for each body and one for the number of connections bound memory only by their product, which is more than most
//! machines have. The beginning of each body is not counted: whoever fills the memory with large bodies does not keep small
//! ones out, and for these the number of connections is bound enough. Where a connection has many requests at the same time,
//! they share what is not counted: their [`Allowance`].

use crate::body::BodyError;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a connection's bodies that are not counted.
const UNCOUNTED: usize = 64 * 1024;

/// Bytes that are held, and how many may be.
#[derive(Debug)]
pub struct BodyMemory {
    held: AtomicUsize,
    limit: usize,
    uncounted: usize,
}

/// What the bodies of one connection may still hold without its being counted.
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
        let before = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        before.unwrap_or_else(|left| left).min(bytes)
    }

    fn give_back(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl BodyMemory {
    /// At most `limit` bytes, the first 64 KB of each body aside.
    pub const fn new(limit: usize) -> Self {
        Self::counting_beyond(UNCOUNTED, limit)
    }

    /// At most `limit` bytes, the first `uncounted` of each body aside.
    pub(crate) const fn counting_beyond(uncounted: usize, limit: usize) -> Self {
        Self { held: AtomicUsize::new(0), limit, uncounted }
    }

    /// Bytes held now.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Bytes that may be held.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// A reservation to grow, for the only body of its connection at the time.
    pub(crate) fn reserve_nothing(self: &Arc<Self>) -> Reserved {
        Reserved { memory: Arc::clone(self), bytes: 0, uncounted: 0, allowance: None }
    }

    /// A reservation to grow, for one of several bodies of a connection.
    pub fn reserve_within(self: &Arc<Self>, allowance: Arc<Allowance>) -> Reserved {
        Reserved { memory: Arc::clone(self), bytes: 0, uncounted: 0, allowance: Some(allowance) }
    }
}

/// A body's share; given back when dropped.
#[derive(Debug)]
pub struct Reserved {
    memory: Arc<BodyMemory>,
    bytes: usize,
    /// What it holds beside that.
    uncounted: usize,
    allowance: Option<Arc<Allowance>>,
}

impl Reserved {
    /// Holds `bytes` bytes from now on, if that is more: what a body came to be.
    ///
    /// # Errors
    /// [`BodyError::NoMemory`].
    pub fn hold(&mut self, bytes: usize) -> Result<(), BodyError> {
        if self.grow_to(bytes) { Ok(()) } else { Err(BodyError::NoMemory { limit: self.memory.limit() }) }
    }

    /// Whether a body of `bytes` bytes is held from now on.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> bool {
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
            return false;
        }
        self.bytes += more;
        true
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.memory.held.fetch_sub(self.bytes, Ordering::Relaxed);
        if let Some(allowance) = &self.allowance {
            allowance.give_back(self.uncounted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_of_one_connection_share_what_is_not_counted() {
        let memory = Arc::new(BodyMemory::new(10_000));
        let allowance = Arc::new(Allowance::default());
        let mut first = memory.reserve_within(Arc::clone(&allowance));
        first.hold(60_000).unwrap();
        assert_eq!(memory.held(), 0);
        let mut second = memory.reserve_within(Arc::clone(&allowance));
        second.hold(10_000).unwrap();
        assert_eq!(memory.held(), 70_000 - UNCOUNTED);
        assert!(second.hold(20_000).is_err());
        let mut of_another = memory.reserve_within(Arc::default());
        of_another.hold(60_000).unwrap();
        drop(first);
        drop(second);
        assert_eq!(memory.held(), 0);
        let mut third = memory.reserve_within(allowance);
        third.hold(UNCOUNTED).unwrap();
        assert_eq!(memory.held(), 0, "all of it is there again");
    }
}
