//! Endless shuffled passes over a data set.

use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

/// Indices `0..count` in random order, shuffled afresh each time they run out.
#[derive(Debug)]
pub(crate) struct Shuffle {
    order: Vec<usize>,
    next: usize,
}

impl Shuffle {
    /// Indices below `count`, which must not be 0.
    pub(crate) fn new(count: usize) -> Self {
        Self {
            order: (0..count).collect(),
            next: count,
        }
    }

    pub(crate) fn next(&mut self, rng: &mut ChaCha8Rng) -> usize {
        if self.next >= self.order.len() {
            self.order.shuffle(rng);
            self.next = 0;
        }
        self.next += 1;
        self.order.get(self.next - 1).copied().unwrap_or_default()
    }

    /// The order and how much of it is used up, for a checkpoint.
    pub(crate) fn position(&self) -> (&[usize], usize) {
        (&self.order, self.next)
    }

    /// One that goes on from a [`position`](Self::position).
    pub(crate) fn at(order: Vec<usize>, next: usize) -> Self {
        Self { order, next }
    }
}
