//! Pool of vectors for messages and sums, reused once they are released.
//!
//! Fresh memory is not free: the system maps and clears each page, which costs about as much as
//! reading a message from the socket. The pool keeps a reference to each vector that it gave out;
//! when it is the only one, the vector is free.

use std::sync::Arc;

/// Vectors kept at most: the search is linear.
const MOST: usize = 128;

/// Below this many bytes, memory comes from the allocator's own pools at next to no cost.
const LEAST: usize = 16 * 1024;

/// Large vectors that have been given out, up to a number of bytes.
#[derive(Debug)]
pub struct Pool<T> {
    kept: Vec<Arc<Vec<T>>>,
    bytes: usize,
    max_bytes: usize,
}

fn size<T>(vector: &Vec<T>) -> usize {
    vector.capacity() * size_of::<T>()
}

impl<T: Copy + Default> Pool<T> {
    /// Of vectors that take up to `max_bytes` together.
    pub const fn new(max_bytes: usize) -> Self {
        Self { kept: Vec::new(), bytes: 0, max_bytes }
    }

    /// Returns a vector of at least `len` elements that is shared with no other owner; its contents
    /// are left from earlier.
    pub fn take(&mut self, len: usize) -> Arc<Vec<T>> {
        let fits = |kept: &Arc<Vec<T>>| kept.capacity() >= len && kept.capacity() / 2 <= len;
        // The latest first: it may still be in the processor's cache.
        let mut kept = self.kept.iter_mut();
        let free = kept.rposition(|kept| fits(kept) && Arc::get_mut(kept).is_some());
        let Some(free) = free else {
            return Arc::new(vec![T::default(); len]);
        };
        let mut vector = self.kept.remove(free);
        self.bytes -= size(&vector);
        if let Some(own) = Arc::get_mut(&mut vector).filter(|own| own.len() < len) {
            own.resize(len, T::default());
        }
        vector
    }

    /// Keeps a vector that has been given out, if it is large and there is room; a free one of
    /// another size gives way.
    pub fn keep(&mut self, vector: &Arc<Vec<T>>) {
        let size_of_new = size(vector);
        if !(LEAST..=self.max_bytes).contains(&size_of_new) {
            return;
        }
        while self.bytes + size_of_new > self.max_bytes || self.kept.len() >= MOST {
            let mut kept = self.kept.iter_mut();
            let Some(at) = kept.position(|kept| Arc::get_mut(kept).is_some()) else {
                return;
            };
            self.bytes -= size(&self.kept.remove(at));
        }
        self.bytes += size_of_new;
        self.kept.push(Arc::clone(vector));
    }

    /// A window of elements that `fill` appends, `len` of them, in a vector of the pool.
    pub fn filled(&mut self, len: usize, fill: impl FnOnce(&mut Vec<T>)) -> crate::Shared<T> {
        let mut vector = self.take(len);
        if let Some(own) = Arc::get_mut(&mut vector) {
            own.clear();
            fill(own);
        }
        self.keep(&vector);
        let filled = vector.len();
        crate::Shared::window(vector, 0..filled)
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
    fn a_shorter_vector_is_used_again_at_its_full_length() {
        let mut pool = Pool::<f32>::new(1 << 20);
        let short = pool.filled(8192, |own| own.extend([1.0; 5000]));
        assert_eq!(short[..], [1.0; 5000]);
        let place = short.as_bytes().as_ptr();
        drop(short);
        let long = pool.take(8192);
        assert_eq!(long.as_ptr().cast(), place);
        assert_eq!(long.len(), 8192);
    }

    #[test]
    fn a_vector_of_more_than_twice_the_length_is_left_for_others() {
        let mut pool = Pool::<f32>::new(1 << 20);
        let kept = pool.take(8192);
        pool.keep(&kept);
        let place = Arc::as_ptr(&kept);
        drop(kept);
        assert_ne!(Arc::as_ptr(&pool.take(4095)), place);
        assert_eq!(Arc::as_ptr(&pool.take(4096)), place);
    }

    #[test]
    fn keeps_within_its_bound() {
        let mut pool = Pool::<u8>::new(100_000);
        for size in [20_000, 30_000, 40_000, 50_000, 90_000, 200_000] {
            let vector = pool.take(size);
            pool.keep(&vector);
            assert!(
                pool.bytes <= 100_000
                    && pool.bytes == pool.kept.iter().map(|v| v.len()).sum::<usize>()
            );
        }
        let busy: Vec<_> = (0..MOST + 1).map(|_| Arc::new(vec![0u8; LEAST])).collect();
        let mut pool = Pool::<u8>::new(1 << 30);
        busy.iter().for_each(|vector| pool.keep(vector));
        assert_eq!(pool.kept.len(), MOST);
    }
}
