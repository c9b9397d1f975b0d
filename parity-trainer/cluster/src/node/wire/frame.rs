//! Frames, and the arrays of numbers in them.

use parapet_parameter_server::{
    Digest, Keys, Message, Operation, Packed, PackedKeys, PackedValues, Snapshot, Values,
};
use serde::{Deserialize, Serialize};

use super::section::Section;
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
