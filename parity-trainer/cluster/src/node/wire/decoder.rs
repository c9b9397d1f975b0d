//! Frames on their way in.

use std::hash::Hasher as _;

use twox_hash::XxHash3_64;
use twox_hash::xxhash3_64::Hasher;

use super::frame::{Frame, Pools, Section};
use super::{HEADER_LEN, Header, PIECE, SUM_LEN, WireError, agree};

/// Bytes that are read ahead, but for a longer head.
const STAGING: usize = 128 * 1024;

/// Bytes that are read ahead with the end of a long frame: its checksum and the next one's head,
/// and no more, because they are copied.
const AHEAD: usize = 4 * 1024;

/// Frames up to this length are waited for as a whole and copied out; longer ones are read
/// into their place.
const SHORT: usize = 16 * 1024;

/// Makes frames of bytes that come in any pieces; a state machine that reads nothing itself.
///
/// Read into [`Decoder::spaces`], say how much with [`Decoder::filled`], and call [`Decoder::next`]
/// until it has no more. After an error there is nothing to be had from the connection.
pub struct Decoder {
    max_frame: u64,
    staging: Vec<u8>,
    /// Start and end of the received and unused bytes in `staging`.
    start: usize,
    end: usize,
    /// A long frame that is being read into its place.
    long: Option<Long>,
    pools: Pools,
}

impl Decoder {
    /// For frames of up to `max_frame` bytes after the header; keeps vectors of up to `pooled`
    /// bytes to be used again.
    pub fn new(max_frame: u64, pooled: usize) -> Self {
        Self {
            max_frame,
            staging: vec![0; STAGING],
            start: 0,
            end: 0,
            long: None,
            pools: Pools::new(pooled),
        }
    }

    /// Where the next bytes belong: all of the first space, which may be empty, before the second.
    pub fn spaces(&mut self) -> [&mut [u8]; 2] {
        if self.start > 0 {
            self.staging.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let rest = self.staging.get_mut(self.end..).unwrap_or_default();
        let Some(long) = &mut self.long else {
            return [&mut [], rest];
        };
        let direct = long.space();
        let ahead = match direct.len() {
            0 => rest.len(),
            1..=PIECE => AHEAD.min(rest.len()),
            _ => 0,
        };
        let piece = direct.len().min(PIECE);
        [direct.get_mut(..piece).unwrap_or_default(), rest.get_mut(..ahead).unwrap_or_default()]
    }

    pub fn filled(&mut self, count: usize) {
        let direct = self.long.as_mut().map_or(0, |long| long.filled(count));
        self.end = (self.end + count - direct).min(self.staging.len());
    }

    /// The next frame, if all of it has come.
    #[allow(
        clippy::should_implement_trait,
        reason = "not an iterator: more bytes may come after `None`"
    )]
    pub fn next(&mut self) -> Result<Option<Frame>, WireError> {
        let received = self.staging.get(self.start..self.end).unwrap_or_default();
        if self.long.is_none() {
            let Some((header, body)) = received.split_first_chunk() else {
                return Ok(None);
            };
            let header = Header::decode(header, self.max_frame)?;
            if header.length <= SHORT {
                let Some((body, rest)) = body.split_at_checked(header.length) else {
                    return Ok(None);
                };
                let Some(&sum) = rest.first_chunk() else {
                    return Ok(None);
                };
                let frame = short(header, body, sum)?;
                self.start += HEADER_LEN + header.length + SUM_LEN;
                return Ok(Some(frame));
            }
            let Some(head) = body.get(..header.head) else {
                let needed = HEADER_LEN + header.head;
                self.staging.resize(self.staging.len().max(needed), 0);
                return Ok(None);
            };
            self.long = Some(Long::new(head, header.length, &mut self.pools)?);
            self.start += HEADER_LEN + header.head;
        }
        self.next_long()
    }

    fn next_long(&mut self) -> Result<Option<Frame>, WireError> {
        while let Some(long) = &mut self.long {
            let received = self.staging.get(self.start..self.end).unwrap_or_default();
            let space = long.space();
            if space.is_empty() {
                if long.next_section(&mut self.pools) {
                    continue;
                }
                let Some(&sum) = received.first_chunk() else {
                    return Ok(None);
                };
                self.start += SUM_LEN;
                let long = self.long.take();
                return long.map(|long| long.finish(sum)).transpose();
            }
            let count = space.len().min(received.len());
            if count == 0 {
                return Ok(None);
            }
            let copied = space.iter_mut().zip(received);
            copied.for_each(|(to, from)| *to = *from);
            long.filled(count);
            self.start += count;
        }
        Ok(None)
    }
}

/// A frame of which everything is here.
fn short(header: Header, body: &[u8], sum: [u8; SUM_LEN]) -> Result<Frame, WireError> {
    if !agree(XxHash3_64::oneshot(body).to_le_bytes(), sum) {
        return Err(WireError::Checksum);
    }
    let (head, mut rest) = body.split_at(header.head);
    let (mut frame, counts) = Frame::decode_head(head, header.length)?;
    let mut pools = Pools::new(0);
    for (section, count) in frame.sections().zip(counts) {
        let (bytes, after) = rest.split_at(count * section.width());
        rest = after;
        section.allocate(count, &mut pools);
        section.bytes_mut().copy_from_slice(bytes);
        let moderate = section.are_moderate(0..bytes.len());
        section.complete(moderate, &mut pools);
    }
    Ok(frame)
}

struct Long {
    frame: Frame,
    counts: Vec<usize>,
    sum: Hasher,
    /// Sections that have been begun; the last of them is being read.
    begun: usize,
    /// Bytes of that section, and those that have come and are in `sum`.
    length: usize,
    filled: usize,
    /// True while every number that has come is moderate.
    moderate: bool,
}

impl Long {
    fn new(head: &[u8], length: usize, pools: &mut Pools) -> Result<Self, WireError> {
        let (frame, counts) = Frame::decode_head(head, length)?;
        let mut sum = Hasher::new();
        sum.write(head);
        let mut long = Self { frame, counts, sum, begun: 0, length: 0, filled: 0, moderate: true };
        long.next_section(pools);
        Ok(long)
    }

    fn current(&mut self) -> Option<&mut dyn Section> {
        self.frame.sections().nth(self.begun.checked_sub(1)?)
    }

    fn space(&mut self) -> &mut [u8] {
        let free = self.filled..self.length;
        let current = self.current();
        let space = current.and_then(|section| section.bytes_mut().get_mut(free));
        space.unwrap_or_default()
    }

    /// Up to `count` bytes have come; returns how many of them were for the current section.
    fn filled(&mut self, count: usize) -> usize {
        let count = count.min(self.length - self.filled);
        let new = self.filled..self.filled + count;
        let current = self.frame.sections().nth(self.begun.saturating_sub(1));
        if let Some(section) = current {
            self.sum.write(section.as_bytes().get(new.clone()).unwrap_or_default());
            self.moderate &= section.are_moderate(new);
        }
        self.filled += count;
        count
    }

    /// Goes on to the next section, when the current one is complete. Returns true if there is one.
    fn next_section(&mut self, pools: &mut Pools) -> bool {
        let moderate = self.moderate;
        if let Some(section) = self.current() {
            section.complete(moderate, pools);
        }
        let mut sections = self.frame.sections().zip(&self.counts);
        let next = sections.nth(self.begun);
        self.begun += 1;
        let Some((section, &count)) = next else {
            (self.length, self.filled) = (0, 0);
            return false;
        };
        section.allocate(count, pools);
        (self.length, self.filled) = (count * section.width(), 0);
        self.moderate = true;
        true
    }

    fn finish(self, sum: [u8; SUM_LEN]) -> Result<Frame, WireError> {
        if !agree(self.sum.finish().to_le_bytes(), sum) {
            return Err(WireError::Checksum);
        }
        Ok(self.frame)
    }
}
