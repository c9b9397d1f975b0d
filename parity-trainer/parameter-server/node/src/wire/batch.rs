//! Frames on their way out.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;

use super::fields::Put as _;
use super::write::{self, Section};
use super::{Frame, HEADER_LEN, WireError, checksum};

/// Up to this many bytes, a copy is cheaper than an element of a vectored write.
const COPIED: usize = 4096;

#[derive(Debug)]
enum Part {
    /// A piece of `small`.
    Small(Range<usize>),
    Large(Section),
}

impl Part {
    fn as_bytes<'a>(&'a self, small: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Small(range) => small.get(range.clone()).unwrap_or_default(),
            Self::Large(section) => section.as_bytes(),
        }
    }
}

/// Frames as slices for vectored writes. Heads and short sections are copied next to one another, so that many small
/// frames are one slice; long sections stay where they are.
#[derive(Debug)]
pub struct Batch {
    max_frame: u64,
    small: Vec<u8>,
    parts: VecDeque<Part>,
    /// Bytes of the first part that have been written.
    written: usize,
    bytes: usize,
    sections: Vec<Section>,
}

impl Batch {
    /// Of frames up to `max_frame` bytes.
    pub const fn new(max_frame: u64) -> Self {
        Self {
            max_frame,
            small: Vec::new(),
            parts: VecDeque::new(),
            written: 0,
            bytes: 0,
            sections: Vec::new(),
        }
    }

    /// Bytes that have not been written.
    pub const fn len(&self) -> usize {
        self.bytes
    }

    /// Whether all has been written.
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Adds a frame; one above the limit is left out.
    pub fn push(&mut self, frame: Frame) -> Result<(), WireError> {
        let start = self.small.len();
        self.small.resize(start + HEADER_LEN, 0);
        self.sections.clear();
        write::encode(frame, &mut self.small, &mut self.sections);
        let head = self.small.get(start + HEADER_LEN..).unwrap_or_default();
        let head_len = u16::try_from(head.len()).unwrap_or(u16::MAX);
        let sections: u64 = self.sections.iter().map(|section| section.as_bytes().len() as u64).sum();
        let length = u64::from(head_len) + sections;
        if length > self.max_frame {
            self.small.truncate(start);
            self.sections.clear();
            return Err(WireError::TooLong { length, limit: self.max_frame });
        }
        let hash = checksum::add(0, head);
        let hash = self.sections.iter().fold(hash, |hash, section| checksum::add(hash, section.as_bytes()));
        let mut fields = Vec::with_capacity(HEADER_LEN);
        fields.u16(head_len);
        fields.u16(0);
        fields.u64(length);
        fields.u64(hash);
        let header = checksum::of_header(&fields).to_le_bytes().into_iter().chain(fields);
        let place = self.small.get_mut(start..start + HEADER_LEN).unwrap_or_default();
        place.iter_mut().zip(header).for_each(|(to, from)| *to = from);
        let mut start = start;
        for section in self.sections.drain(..) {
            if section.as_bytes().len() <= COPIED {
                self.small.extend_from_slice(section.as_bytes());
            } else {
                add_small(&mut self.parts, start..self.small.len());
                start = self.small.len();
                self.parts.push_back(Part::Large(section));
            }
        }
        add_small(&mut self.parts, start..self.small.len());
        self.bytes += HEADER_LEN + usize::try_from(length).unwrap_or(usize::MAX);
        Ok(())
    }

    /// Fills `slices` with what is to be written next; how many are filled.
    pub fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut skipped = self.written;
        let mut filled = 0;
        for (slice, part) in slices.iter_mut().zip(&self.parts) {
            *slice = IoSlice::new(part.as_bytes(&self.small).get(skipped..).unwrap_or_default());
            skipped = 0;
            filled += 1;
        }
        filled
    }

    /// `count` more bytes have been written.
    pub fn advance(&mut self, count: usize) {
        self.bytes = self.bytes.saturating_sub(count);
        self.written += count;
        while let Some(part) = self.parts.front() {
            let length = part.as_bytes(&self.small).len();
            if self.written < length {
                return;
            }
            self.written -= length;
            self.parts.pop_front();
        }
        self.small.clear();
    }
}

/// Small pieces that follow one another are one part.
fn add_small(parts: &mut VecDeque<Part>, range: Range<usize>) {
    match parts.back_mut() {
        Some(Part::Small(last)) if last.end == range.start => last.end = range.end,
        _ if range.is_empty() => {}
        _ => parts.push_back(Part::Small(range)),
    }
}
