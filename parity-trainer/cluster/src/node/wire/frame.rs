//! Frames, and the arrays of numbers in them.

use parapet_parameter_server::{
    Digest, Keys, Message, Operation, Packed, PackedKeys, PackedValues, Pull, PullReply, Push,
    Replicate, Shared, Snapshot, Update, Values,
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
        Self::Message(Packed {
            message,
            keys: None,
            values: None,
        })
    }
}

/// An array of numbers, in its place in a message.
#[derive(Debug)]
pub(in crate::node) enum Section<'a> {
    U64(&'a mut Shared<u64>),
    U32(&'a mut Vec<u32>),
    F32(&'a mut Shared<f32>),
    U16(&'a mut Shared<u16>),
    U8(&'a mut Shared<u8>),
}

/// An array of numbers that was taken out of a message.
#[derive(Debug)]
pub(in crate::node) enum Numbers {
    U64(Shared<u64>),
    U32(Vec<u32>),
    F32(Shared<f32>),
    U16(Shared<u16>),
    U8(Shared<u8>),
}

impl Numbers {
    pub(in crate::node) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::U64(numbers) => numbers.as_bytes(),
            Self::U32(numbers) => bytemuck::cast_slice(numbers),
            Self::F32(numbers) => numbers.as_bytes(),
            Self::U16(numbers) => numbers.as_bytes(),
            Self::U8(numbers) => numbers,
        }
    }
}

impl<'a> Section<'a> {
    pub(in crate::node) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::U64(numbers) => numbers.as_bytes(),
            Self::U32(numbers) => bytemuck::cast_slice(numbers),
            Self::F32(numbers) => numbers.as_bytes(),
            Self::U16(numbers) => numbers.as_bytes(),
            Self::U8(numbers) => numbers,
        }
    }

    pub(in crate::node) const fn width(&self) -> usize {
        match self {
            Self::U64(_) => 8,
            Self::U32(_) | Self::F32(_) => 4,
            Self::U16(_) => 2,
            Self::U8(_) => 1,
        }
    }

    pub(in crate::node) fn take(self) -> Numbers {
        match self {
            Self::U64(numbers) => Numbers::U64(std::mem::take(numbers)),
            Self::U32(numbers) => Numbers::U32(std::mem::take(numbers)),
            Self::F32(numbers) => Numbers::F32(std::mem::take(numbers)),
            Self::U16(numbers) => Numbers::U16(std::mem::take(numbers)),
            Self::U8(numbers) => Numbers::U8(std::mem::take(numbers)),
        }
    }

    fn of_keys(keys: &'a mut Keys) -> Option<Self> {
        match keys {
            Keys::All => None,
            Keys::List(keys) => Some(Self::U64(keys)),
        }
    }

    fn of_values(values: &'a mut Values) -> Option<Self> {
        Some(match values {
            Values::F32(values) => Self::F32(values),
            Values::Bf16(values) | Values::F16(values) => Self::U16(values),
        })
    }
}

impl Frame {
    /// The arrays of numbers, in the order in which they are sent.
    pub(in crate::node) fn sections(&mut self) -> impl Iterator<Item = Section<'_>> {
        let mut sections = [const { None::<Section<'_>> }; 6];
        let [keys, values, state, steps, packed_keys, packed_values] = &mut sections;
        if let Self::Message(packed) = self {
            match &mut packed.message {
                Message::Push(Push {
                    keys: own_keys,
                    values: own_values,
                    ..
                })
                | Message::PullReply(PullReply {
                    keys: own_keys,
                    values: own_values,
                    ..
                })
                | Message::Replicate(Replicate {
                    operation:
                        Operation::Update(Update {
                            keys: own_keys,
                            values: own_values,
                            ..
                        }),
                    ..
                }) => {
                    *keys = Section::of_keys(own_keys);
                    *values = Section::of_values(own_values);
                }
                Message::Pull(Pull { keys: own_keys, .. }) => *keys = Section::of_keys(own_keys),
                Message::Snapshot(Snapshot { rows, .. }) => {
                    *keys = Section::of_keys(&mut rows.keys);
                    *values = Section::of_values(&mut rows.values);
                    *state = Section::of_values(&mut rows.state);
                    *steps = Some(Section::U32(&mut rows.steps));
                }
                _ => {}
            }
            *packed_keys = match &mut packed.keys {
                Some(PackedKeys::Plain { keys, .. }) => Section::of_keys(keys),
                Some(PackedKeys::Lz4 { bytes, .. }) => Some(Section::U8(bytes)),
                Some(PackedKeys::Known { .. }) | None => None,
            };
            *packed_values = match &mut packed.values {
                Some(PackedValues::Plain(values)) => Section::of_values(values),
                Some(PackedValues::Lz4 { bytes, .. }) => Some(Section::U8(bytes)),
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
        let sections: usize = self
            .sections()
            .map(|section| section.as_bytes().len())
            .sum();
        HEADER_LEN + SUM_LEN + 64 + lists + sections
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
            let bytes = count.checked_mul(section.width());
            total = total
                .zip(bytes)
                .and_then(|(total, bytes)| total.checked_add(bytes));
        }
        if !rest.is_empty() {
            return Err(WireError::Malformed("a head that is too long"));
        }
        if total != Some(length) {
            return Err(WireError::Malformed("sections that do not fill it"));
        }
        match &frame {
            Self::Message(packed)
                if matches!(packed.message, Message::Snapshot(_))
                    && (packed.keys.is_some() || packed.values.is_some()) =>
            {
                Err(WireError::Malformed("a compressed snapshot"))
            }
            _ => Ok((frame, counts)),
        }
    }
}
