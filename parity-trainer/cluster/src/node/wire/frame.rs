//! Frames, and the arrays of numbers in them.

use std::ops::Range;

use bytemuck::Pod;
use parapet_parameter_server::{
    Digest, Keys, Message, Operation, Packed, PackedKeys, PackedValues, Pool, Shared, Snapshot,
    Values, are_moderate,
};
use serde::{Deserialize, Serialize};

use super::{HEADER_LEN, SUM_LEN, WireError};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Frame {
    /// Nothing but a sign of life.
    Heartbeat,
    /// The sender does not have this list of keys: send it again with the next message.
    Forget(Digest),
    /// A message, as its [`parapet_parameter_server::Link`] packed it.
    Message(Packed),
}

impl From<Message> for Frame {
    fn from(message: Message) -> Self {
        Self::Message(Packed { message, keys: None, values: None })
    }
}

fn section_of_keys(keys: &mut Keys) -> Option<&mut dyn Section> {
    match keys {
        Keys::All => None,
        Keys::List(keys) => Some(keys),
    }
}

fn section_of_values(values: &mut Values) -> &mut dyn Section {
    match values {
        Values::F32(values) => values,
        Values::Bf16(values) | Values::F16(values) => values,
        Values::Factors(factors) => factors.numbers_mut(),
    }
}

impl Frame {
    /// The arrays of numbers, in the order in which they are sent.
    pub(in crate::node) fn sections(&mut self) -> impl Iterator<Item = &mut dyn Section> {
        let mut sections = [const { None::<&mut dyn Section> }; 6];
        let [keys, values, state, steps, packed_keys, packed_values] = &mut sections;
        if let Self::Message(packed) = self {
            match &mut packed.message {
                Message::Snapshot(Snapshot { rows, .. }) => {
                    *keys = section_of_keys(&mut rows.keys);
                    *values = Some(section_of_values(&mut rows.values));
                    *state = Some(section_of_values(&mut rows.state));
                    *steps = Some(&mut rows.steps);
                }
                message => {
                    if let Some((_, own_keys, own_values)) = message.rows_mut() {
                        *keys = section_of_keys(own_keys);
                        *values = own_values.map(section_of_values);
                    }
                }
            }
            *packed_keys = match &mut packed.keys {
                Some(PackedKeys::Plain { keys, .. }) => section_of_keys(keys),
                Some(PackedKeys::Lz4 { bytes, .. }) => Some(bytes),
                Some(PackedKeys::Known { .. }) | None => None,
            };
            *packed_values = match &mut packed.values {
                Some(PackedValues::Plain(values)) => Some(section_of_values(values)),
                Some(PackedValues::Lz4 { bytes, .. }) => Some(bytes),
                None => None,
            };
        }
        sections.into_iter().flatten()
    }

    /// About how many bytes it takes, on the wire and in memory.
    pub fn cost(&mut self) -> usize {
        let lists = match self {
            Self::Message(packed) => match &packed.message {
                Message::Snapshot(Snapshot { end: Some(end), .. }) => size_of_val(&end.clocks[..]),
                Message::Replicate(entry) => match &entry.operation {
                    Operation::Update(update) => size_of_val(&update.clocks[..]),
                    Operation::Members(members) => size_of_val(&members.workers[..]),
                },
                _ => 0,
            },
            Self::Heartbeat | Self::Forget(_) => 0,
        };
        HEADER_LEN + SUM_LEN + 64 + lists + self.section_bytes()
    }

    pub(in crate::node) fn section_bytes(&mut self) -> usize {
        let sections = self.sections();
        sections.map(|section| section.as_bytes().len()).sum()
    }

    pub(in crate::node) fn encode_head(&mut self, head: &mut Vec<u8>) -> Result<(), WireError> {
        let failed = |_| WireError::Malformed("a head that cannot be written");
        postcard::to_io(self, &mut *head).map_err(failed)?;
        for section in self.sections() {
            let count = section.as_bytes().len() / section.width();
            postcard::to_io(&count, &mut *head).map_err(failed)?;
        }
        Ok(())
    }

    /// Reads the head of a frame of `length` bytes. Returns the frame, whose sections are empty,
    /// and the counts of their numbers. They fill the frame exactly.
    pub(in crate::node) fn decode_head(
        head: &[u8],
        length: usize,
    ) -> Result<(Self, Vec<usize>), WireError> {
        let unreadable = |_| WireError::Malformed("a head that this release cannot read");
        let (mut frame, mut rest) = postcard::take_from_bytes::<Self>(head).map_err(unreadable)?;
        let mut counts = Vec::new();
        let mut total = Some(head.len());
        for section in frame.sections() {
            let (count, after) = postcard::take_from_bytes::<usize>(rest).map_err(unreadable)?;
            rest = after;
            counts.push(count);
            let both = total.zip(count.checked_mul(section.width()));
            total = both.and_then(|(total, bytes)| total.checked_add(bytes));
        }
        if !rest.is_empty() {
            return Err(WireError::Malformed("a head that is too long"));
        }
        if total != Some(length) {
            return Err(WireError::Malformed("sections that do not fill it"));
        }
        if let Self::Message(packed) = &frame
            && matches!(packed.message, Message::Snapshot(_))
            && (packed.keys.is_some() || packed.values.is_some())
        {
            return Err(WireError::Malformed("a compressed snapshot"));
        }
        Ok((frame, counts))
    }
}

/// Array of numbers, in its place in a message or taken out of it. Its bytes are sent as they lie,
/// and are read into the vector that the message will keep.
pub(in crate::node) trait Section: Send {
    fn as_bytes(&self) -> &[u8];
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
        let numbers = self.get_mut();
        numbers.map(bytemuck::cast_slice_mut).unwrap_or_default()
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
