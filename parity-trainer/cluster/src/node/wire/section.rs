//! Arrays of numbers in messages, whatever their type: their bytes are sent as they lie, and are
//! read into the vector that the message will keep.

use std::ops::Range;

use bytemuck::Pod;
use parapet_parameter_server::{Pool, Shared, are_moderate};

/// Array of numbers, in its place in a message or taken out of it.
pub(in crate::node) trait Section: Send {
    fn as_bytes(&self) -> &[u8];
    /// Bytes of a number.
    fn width(&self) -> usize;
    fn take(&mut self) -> Box<dyn Section>;
    /// Makes room for `count` numbers, in a vector of a pool.
    fn allocate(&mut self, count: usize, pools: &mut Pools);
    /// Room for the numbers, until all of them have come.
    fn bytes_mut(&mut self) -> &mut [u8];
    /// Returns true if these bytes, which have just come, are moderate numbers: they are still in
    /// the processor's cache. A number that came in two pieces is looked at with the second.
    fn are_moderate(&self, bytes: Range<usize>) -> bool;
    /// All numbers have come.
    fn complete(&mut self, moderate: bool, pools: &mut Pools);
}

impl<T: Number> Section for Shared<T> {
    fn as_bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self)
    }

    fn width(&self) -> usize {
        size_of::<T>()
    }

    fn take(&mut self) -> Box<dyn Section> {
        Box::new(std::mem::take(self))
    }

    fn allocate(&mut self, count: usize, pools: &mut Pools) {
        *self = Self::window(T::pool(pools).take(count), 0..count);
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.get_mut()
            .map(bytemuck::cast_slice_mut)
            .unwrap_or_default()
    }

    fn are_moderate(&self, bytes: Range<usize>) -> bool {
        let numbers = bytes.start / size_of::<T>()..bytes.end / size_of::<T>();
        T::are_moderate(self.get(numbers).unwrap_or_default())
    }

    fn complete(&mut self, moderate: bool, pools: &mut Pools) {
        self.keep_in(T::pool(pools));
        *self = T::marked(std::mem::take(self), moderate);
    }
}

/// Vectors of each type, to be read into again.
pub(in crate::node) struct Pools {
    u64s: Pool<u64>,
    u32s: Pool<u32>,
    f32s: Pool<f32>,
    u16s: Pool<u16>,
    u8s: Pool<u8>,
}

impl Pools {
    pub(super) const fn new(bytes: usize) -> Self {
        Self {
            u64s: Pool::new(bytes),
            // Only snapshots have them.
            u32s: Pool::new(0),
            f32s: Pool::new(bytes),
            u16s: Pool::new(bytes),
            u8s: Pool::new(bytes),
        }
    }
}

/// Number as it lies in a section.
pub(super) trait Number: Pod + Default + Send + Sync {
    fn pool(pools: &mut Pools) -> &mut Pool<Self>;

    fn are_moderate(_: &[Self]) -> bool {
        false
    }

    fn marked(numbers: Shared<Self>, _moderate: bool) -> Shared<Self> {
        numbers
    }
}

impl Number for f32 {
    fn pool(pools: &mut Pools) -> &mut Pool<Self> {
        &mut pools.f32s
    }

    fn are_moderate(numbers: &[Self]) -> bool {
        are_moderate(numbers)
    }

    fn marked(numbers: Shared<Self>, moderate: bool) -> Shared<Self> {
        numbers.marked_moderate(moderate)
    }
}

impl Number for u64 {
    fn pool(pools: &mut Pools) -> &mut Pool<Self> {
        &mut pools.u64s
    }
}

impl Number for u32 {
    fn pool(pools: &mut Pools) -> &mut Pool<Self> {
        &mut pools.u32s
    }
}

impl Number for u16 {
    fn pool(pools: &mut Pools) -> &mut Pool<Self> {
        &mut pools.u16s
    }
}

impl Number for u8 {
    fn pool(pools: &mut Pools) -> &mut Pool<Self> {
        &mut pools.u8s
    }
}
