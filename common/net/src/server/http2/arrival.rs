//! Progress of a request's arrival.

use std::sync::atomic::{AtomicU8, Ordering};

/// Of a request's body.
#[derive(Debug, Default)]
pub(super) struct Arrival(AtomicU8);

const WHOLE: u8 = 1;
const BROKEN: u8 = 2;

impl Arrival {
    /// All of it is here.
    pub(super) fn is_whole(&self) -> bool {
        self.0.load(Ordering::Relaxed) == WHOLE
    }

    /// The rest of it will not come: its client has reset the stream, or is gone.
    pub(super) fn is_broken(&self) -> bool {
        self.0.load(Ordering::Relaxed) == BROKEN
    }

    pub(super) fn whole(&self) {
        self.0.store(WHOLE, Ordering::Relaxed);
    }

    pub(super) fn broken(&self) {
        self.0.store(BROKEN, Ordering::Relaxed);
    }
}
