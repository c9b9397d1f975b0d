//! The memory that all requests' bodies may hold together.
//!
//! A limit for each body and one for the number of connections bound memory only by their product, which is more than most
//! machines have. The beginning of each body is not counted: whoever fills the memory with large bodies does not keep small
//! ones out, and for these the number of connections is bound enough.

use crate::body::BodyError;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that are held, and how many may be.
#[derive(Debug)]
pub struct BodyMemory {
    held: AtomicUsize,
    limit: usize,
    uncounted: usize,
}

impl BodyMemory {
    /// At most `limit` bytes, the first 64 KB of each body aside.
    pub const fn new(limit: usize) -> Self {
        Self::counting_beyond(64 * 1024, limit)
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

    /// A reservation to grow.
    pub(crate) fn reserve_nothing(self: &Arc<Self>) -> Reserved {
        Reserved { memory: Arc::clone(self), bytes: 0 }
    }
}

/// A body's share; given back when dropped.
#[derive(Debug)]
pub struct Reserved {
    memory: Arc<BodyMemory>,
    bytes: usize,
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
        let more = bytes.saturating_sub(self.memory.uncounted).saturating_sub(self.bytes);
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
    }
}
