//! Frames on their way out.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;

use super::fields::Put as _;
use super::write::{self, Section};
use super::{Frame, HEADER_LEN, PIECE, SUM_LEN, WireError, checksum};
use checksum::Sum;

/// Up to this many bytes, a copy is cheaper than an element of a vectored write.
const COPIED: usize = 4096;

#[derive(Debug)]
enum Part {
    /// A piece of `small`, summed up already.
    Small(Range<usize>),
    /// Summed up piece by piece, as it is written.
    Large(Section),
    /// The checksum of the frame that ends here, once all of it is summed up.
    Sum([u8; SUM_LEN]),
}

impl Part {
    fn as_bytes<'a>(&'a self, small: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Small(range) => small.get(range.clone()).unwrap_or_default(),
            Self::Large(section) => section.as_bytes(),
            Self::Sum(bytes) => bytes,
        }
    }
}

/// Frames as slices for vectored writes. Heads and short sections are copied next to one another,
/// so that many small frames are one slice; long sections stay where they are.
#[derive(Debug)]
pub struct Batch {
    max_frame: u64,
    small: Vec<u8>,
    parts: VecDeque<Part>,
    /// Bytes of the first part that have been written.
    written: usize,
    bytes: usize,
    /// Parts at the front that may be written, and bytes of the one after them.
    ready: usize,
    ready_bytes: usize,
    /// Of each frame with large parts that has not been summed up to its end.
    sums: VecDeque<Sum>,
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
            ready: 0,
            ready_bytes: 0,
            sums: VecDeque::new(),
            sections: Vec::new(),
        }
    }

    /// Bytes that have not been written.
    pub const fn len(&self) -> usize {
        self.bytes
    }

    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Adds a frame; one above the limit is left out.
    pub fn push(&mut self, frame: Frame) -> Result<(), WireError> {
        let start = self.small.len();
        self.small.resize(start + HEADER_LEN, 0);
        self.sections.clear();
        write::encode(frame, &mut self.small, &mut self.sections);
        let head = self.small.len() - start - HEADER_LEN;
        let sections: u64 = self
            .sections
            .iter()
            .map(|section| section.as_bytes().len() as u64)
            .sum();
        let length = head as u64 + sections;
        if length > self.max_frame {
            self.small.truncate(start);
            self.sections.clear();
            return Err(WireError::TooLong {
                length,
                limit: self.max_frame,
            });
        }
        let mut fields = Vec::with_capacity(HEADER_LEN);
        fields.u16(u16::try_from(head).unwrap_or(u16::MAX));
        fields.u16(0);
        fields.u64(length);
        let header = checksum::of_header(&fields)
            .to_le_bytes()
            .into_iter()
            .chain(fields);
        let place = self
            .small
            .get_mut(start..start + HEADER_LEN)
            .unwrap_or_default();
        place
            .iter_mut()
            .zip(header)
            .for_each(|(to, from)| *to = from);
        self.add_body(start);
        self.bytes += HEADER_LEN + usize::try_from(length).unwrap_or(usize::MAX) + SUM_LEN;
        Ok(())
    }

    /// Puts the sections after header and head, which begin at `start`, and the
    /// checksum after them.
    fn add_body(&mut self, start: usize) {
        let mut sections = self.sections.drain(..).peekable();
        while let Some(section) = sections.next_if(|section| section.as_bytes().len() <= COPIED) {
            self.small.extend_from_slice(section.as_bytes());
        }
        let summed = start + HEADER_LEN..self.small.len();
        let is_short = sections.peek().is_none();
        if is_short {
            let sum = Sum::of(self.small.get(summed).unwrap_or_default());
            self.small.u64(sum);
            add_small(&mut self.parts, start..self.small.len());
            return;
        }
        let mut sum = Sum::new();
        sum.add(self.small.get(summed).unwrap_or_default());
        self.sums.push_back(sum);
        add_small(&mut self.parts, start..self.small.len());
        let sections = sections.filter(|section| !section.as_bytes().is_empty());
        self.parts.extend(sections.map(Part::Large));
        self.parts.push_back(Part::Sum([0; SUM_LEN]));
    }

    /// Fills `slices` with what is to be written next; how many are filled.
    pub fn slices<'a>(&'a mut self, slices: &mut [IoSlice<'a>]) -> usize {
        self.sum_up();
        let mut skipped = self.written;
        let mut filled = 0;
        for ((slice, part), at) in slices.iter_mut().zip(&self.parts).zip(0..=self.ready) {
            let bytes = part.as_bytes(&self.small);
            let end = if at < self.ready {
                bytes.len()
            } else {
                self.ready_bytes
            };
            let Some(bytes) = bytes.get(skipped..end).filter(|bytes| !bytes.is_empty()) else {
                break;
            };
            *slice = IoSlice::new(bytes);
            skipped = 0;
            filled += 1;
        }
        filled
    }

    /// Makes the next piece ready to be written, unless there is some left of the last.
    fn sum_up(&mut self) {
        if self.ready > 0 || self.ready_bytes > self.written {
            return;
        }
        let mut room = PIECE;
        while room > 0
            && let Some(part) = self.parts.get_mut(self.ready)
        {
            let left = part.as_bytes(&self.small).len() - self.ready_bytes;
            let now = if let Part::Large(_) = part {
                left.min(room)
            } else {
                left
            };
            match part {
                Part::Small(_) => {}
                Part::Large(section) => {
                    let piece = section
                        .as_bytes()
                        .get(self.ready_bytes..)
                        .and_then(|rest| rest.get(..now));
                    if let Some(sum) = self.sums.front_mut() {
                        sum.add(piece.unwrap_or_default());
                    }
                }
                Part::Sum(place) => {
                    *place = self
                        .sums
                        .pop_front()
                        .map_or(0, |sum| sum.get())
                        .to_le_bytes();
                }
            }
            room = room.saturating_sub(now);
            self.ready_bytes += now;
            if now == left {
                (self.ready, self.ready_bytes) = (self.ready + 1, 0);
            }
        }
    }

    /// `count` more bytes have been written.
    pub fn advance(&mut self, count: usize) {
        self.bytes = self.bytes.saturating_sub(count);
        self.written += count;
        while self.ready > 0
            && let Some(part) = self.parts.front()
        {
            let length = part.as_bytes(&self.small).len();
            if self.written < length {
                return;
            }
            self.written -= length;
            self.ready -= 1;
            self.parts.pop_front();
        }
        if self.parts.is_empty() {
            self.small.clear();
        }
    }
}

/// Small pieces that follow one another are one part.
fn add_small(parts: &mut VecDeque<Part>, range: Range<usize>) {
    match parts.back_mut() {
        Some(Part::Small(last)) if last.end == range.start => last.end = range.end,
        _ => parts.push_back(Part::Small(range)),
    }
}
