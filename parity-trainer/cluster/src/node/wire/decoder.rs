//! Frames on their way in.

use std::hash::Hasher as _;
use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;
use parapet_parameter_server::{Pool, Shared, are_moderate};
use twox_hash::XxHash3_64;
use twox_hash::xxhash3_64::Hasher;

use super::frame::{Frame, Section};
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
        [
            direct.get_mut(..piece).unwrap_or_default(),
            rest.get_mut(..ahead).unwrap_or_default(),
        ]
    }

    /// `count` bytes have been put into the spaces.
    pub fn filled(&mut self, count: usize) {
        let direct = self.long.as_mut().map_or(0, |long| long.filled(count));
        self.end = (self.end + count - direct).min(self.staging.len());
    }

    /// Takes bytes from a slice; returns how many. For those who do not read into the spaces.
    pub fn feed(&mut self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        for space in self.spaces() {
            let (now, later) = rest.split_at(space.len().min(rest.len()));
            space.iter_mut().zip(now).for_each(|(to, from)| *to = *from);
            rest = later;
        }
        let count = bytes.len() - rest.len();
        self.filled(count);
        count
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
                return long
                    .map(|long| long.finish(sum, &mut self.pools))
                    .transpose();
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
        let mut buffer = pools.take(&section, count);
        buffer.bytes_mut().copy_from_slice(bytes);
        buffer.check(0..bytes.len());
        buffer.put(section, count);
    }
    Ok(frame)
}

/// A section's numbers in the vector that the message will keep.
enum Buffer {
    U64(Arc<Vec<u64>>),
    U32(Vec<u32>),
    /// And true while those that have come are moderate.
    F32(Arc<Vec<f32>>, bool),
    U16(Arc<Vec<u16>>),
    U8(Arc<Vec<u8>>),
}

fn bytes_of<T: Pod>(vector: &mut Arc<Vec<T>>) -> &mut [u8] {
    Arc::get_mut(vector)
        .map(|vector| bytemuck::cast_slice_mut(vector))
        .unwrap_or_default()
}

impl Buffer {
    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::U64(vector) => bytes_of(vector),
            Self::U32(vector) => bytemuck::cast_slice_mut(vector),
            Self::F32(vector, _) => bytes_of(vector),
            Self::U16(vector) => bytes_of(vector),
            Self::U8(vector) => bytes_of(vector),
        }
    }

    /// Checks these bytes, which have just come, while they are in the processor's cache.
    fn check(&mut self, bytes: Range<usize>) {
        if let Self::F32(vector, moderate) = self {
            // A number that came in two pieces is looked at with the second.
            let numbers = bytes.start / size_of::<f32>()..bytes.end / size_of::<f32>();
            *moderate &= are_moderate(vector.get(numbers).unwrap_or_default());
        }
    }

    /// Puts the numbers into the message. Section and buffer are of one kind.
    fn put(self, section: Section<'_>, count: usize) {
        match (section, self) {
            (Section::U64(to), Self::U64(vector)) => *to = Shared::window(vector, 0..count),
            (Section::U32(to), Self::U32(vector)) => *to = vector,
            (Section::F32(to), Self::F32(vector, moderate)) => {
                *to = Shared::window(vector, 0..count).marked_moderate(moderate);
            }
            (Section::U16(to), Self::U16(vector)) => *to = Shared::window(vector, 0..count),
            (Section::U8(to), Self::U8(vector)) => *to = Shared::window(vector, 0..count),
            _ => {}
        }
    }
}

struct Pools {
    u64s: Pool<u64>,
    f32s: Pool<f32>,
    u16s: Pool<u16>,
    u8s: Pool<u8>,
}

impl Pools {
    const fn new(bytes: usize) -> Self {
        Self {
            u64s: Pool::new(bytes),
            f32s: Pool::new(bytes),
            u16s: Pool::new(bytes),
            u8s: Pool::new(bytes),
        }
    }

    /// A buffer for at least `count` numbers of a section.
    fn take(&mut self, section: &Section<'_>, count: usize) -> Buffer {
        match section {
            Section::U64(_) => Buffer::U64(self.u64s.take(count)),
            // Only snapshots have them.
            Section::U32(_) => Buffer::U32(vec![0; count]),
            Section::F32(_) => Buffer::F32(self.f32s.take(count), true),
            Section::U16(_) => Buffer::U16(self.u16s.take(count)),
            Section::U8(_) => Buffer::U8(self.u8s.take(count)),
        }
    }

    fn keep(&mut self, buffer: &Buffer) {
        match buffer {
            Buffer::U64(vector) => self.u64s.keep(vector),
            Buffer::U32(_) => {}
            Buffer::F32(vector, _) => self.f32s.keep(vector),
            Buffer::U16(vector) => self.u16s.keep(vector),
            Buffer::U8(vector) => self.u8s.keep(vector),
        }
    }
}

struct Long {
    frame: Frame,
    counts: Vec<usize>,
    sum: Hasher,
    /// The sections that have been begun; the last of them is being read.
    buffers: Vec<Buffer>,
    /// Bytes of that section, and those that have come and are in `sum`.
    length: usize,
    filled: usize,
}

impl Long {
    fn new(head: &[u8], length: usize, pools: &mut Pools) -> Result<Self, WireError> {
        let (frame, counts) = Frame::decode_head(head, length)?;
        let mut sum = Hasher::new();
        sum.write(head);
        let mut long = Self {
            frame,
            buffers: Vec::with_capacity(counts.len()),
            counts,
            sum,
            length: 0,
            filled: 0,
        };
        long.next_section(pools);
        Ok(long)
    }

    /// Free part of the current section.
    fn space(&mut self) -> &mut [u8] {
        let free = self.filled..self.length;
        let current = self.buffers.last_mut();
        current
            .and_then(|buffer| buffer.bytes_mut().get_mut(free))
            .unwrap_or_default()
    }

    /// Up to `count` bytes have come; returns how many of them were for the current section.
    fn filled(&mut self, count: usize) -> usize {
        let count = count.min(self.length - self.filled);
        let new = self.filled..self.filled + count;
        if let Some(buffer) = self.buffers.last_mut() {
            self.sum
                .write(buffer.bytes_mut().get(new.clone()).unwrap_or_default());
            buffer.check(new);
        }
        self.filled += count;
        count
    }

    /// Goes on to the next section, when the current one is complete. Returns true if there is one.
    fn next_section(&mut self, pools: &mut Pools) -> bool {
        let mut sections = self.frame.sections().zip(&self.counts);
        let Some((section, &count)) = sections.nth(self.buffers.len()) else {
            return false;
        };
        self.buffers.push(pools.take(&section, count));
        (self.length, self.filled) = (count * section.width(), 0);
        true
    }

    fn finish(mut self, sum: [u8; SUM_LEN], pools: &mut Pools) -> Result<Frame, WireError> {
        if !agree(self.sum.finish().to_le_bytes(), sum) {
            return Err(WireError::Checksum);
        }
        let filled = self.buffers.into_iter().zip(self.counts);
        for (section, (buffer, count)) in self.frame.sections().zip(filled) {
            pools.keep(&buffer);
            buffer.put(section, count);
        }
        Ok(self.frame)
    }
}
