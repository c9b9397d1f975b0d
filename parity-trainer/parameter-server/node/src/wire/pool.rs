//! Vectors that messages are read into, used again once nobody has them any more.
//!
//! Fresh memory is not free: the system maps and clears each page, which costs about as much as reading a message from
//! the socket. The pool keeps a reference to each vector that it gave out; when it is the only one, the vector is free.

use std::sync::Arc;

/// Vectors kept at most: the search is linear.
const MOST: usize = 32;

/// Below this many bytes, memory comes from the allocator's own pools at next to no cost.
const LEAST: usize = 16 * 1024;

#[derive(Debug)]
pub(super) struct Pool<T> {
    kept: Vec<Arc<Vec<T>>>,
    bytes: usize,
    max_bytes: usize,
}

impl<T: Copy + Default> Pool<T> {
    pub(super) const fn new(max_bytes: usize) -> Self {
        Self { kept: Vec::new(), bytes: 0, max_bytes }
    }

    /// A vector of at least `len` elements that nobody else has; what is in it is left from earlier.
    pub(super) fn take(&mut self, len: usize) -> Arc<Vec<T>> {
        let fits = |kept: &Arc<Vec<T>>| kept.len() >= len && kept.len() / 2 <= len;
        let free = self.kept.iter_mut().position(|kept| fits(kept) && Arc::get_mut(kept).is_some());
        match free {
            Some(at) => {
                let vector = self.kept.swap_remove(at);
                self.bytes -= size_of_val(&vector[..]);
                vector
            }
            None => Arc::new(vec![T::default(); len]),
        }
    }

    /// Keeps a vector that has been given out, if it is large and there is room; a free one of another size gives way.
    pub(super) fn keep(&mut self, vector: &Arc<Vec<T>>) {
        let size = size_of_val(&vector[..]);
        if !(LEAST..=self.max_bytes).contains(&size) {
            return;
        }
        while self.bytes + size > self.max_bytes || self.kept.len() >= MOST {
            let Some(at) = self.kept.iter_mut().position(|kept| Arc::get_mut(kept).is_some()) else { return };
            self.bytes -= size_of_val(&self.kept.swap_remove(at)[..]);
        }
        self.bytes += size;
        self.kept.push(Arc::clone(vector));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_out_only_what_nobody_has() {
        let mut pool = Pool::<f32>::new(1 << 20);
        let mut first = pool.take(8192);
        Arc::get_mut(&mut first).unwrap().fill(7.0);
        pool.keep(&first);
        let second = pool.take(8192);
        assert!(!Arc::ptr_eq(&first, &second));
        let place = Arc::as_ptr(&first);
        drop(first);
        assert_eq!(Arc::as_ptr(&pool.take(5000)), place);
    }

    #[test]
    fn keeps_within_its_bound() {
        let mut pool = Pool::<u8>::new(100_000);
        for size in [20_000, 30_000, 40_000, 50_000, 90_000, 200_000] {
            let vector = pool.take(size);
            pool.keep(&vector);
            assert!(pool.bytes <= 100_000 && pool.bytes == pool.kept.iter().map(|v| v.len()).sum::<usize>());
        }
        let busy: Vec<_> = (0..MOST + 1).map(|_| Arc::new(vec![0u8; LEAST])).collect();
        let mut pool = Pool::<u8>::new(1 << 30);
        busy.iter().for_each(|vector| pool.keep(vector));
        assert_eq!(pool.kept.len(), MOST);
    }
}
