//! Frames on their way in.

use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;
use parapet_parameter_server::{Pool, Shared, are_moderate};

use super::checksum::{self, Sum};
use super::fields::Fields;
use super::read::{self, Kind, Plan, Slice, Source};
use super::{Frame, HEADER_LEN, MAX_HEAD, PIECE, SUM_LEN, WireError};

/// Limits of a decoder's input and of what it keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest frame, in bytes after its header.
    pub max_frame: u64,
    /// Bytes of vectors that are kept to be used again.
    pub pooled: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_frame: 256 << 20,
            pooled: 32 << 20,
        }
    }
}

/// Bytes that are read ahead.
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
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    staging: Vec<u8>,
    /// Start of the received and unused bytes in `staging`.
    start: usize,
    end: usize,
    /// A long frame that is being read into its place.
    long: Option<Long>,
    pools: Pools,
}

#[derive(Debug)]
struct Header {
    head: usize,
    length: usize,
}

impl Decoder {
    /// At the start of a connection, after the handshake.
    pub fn new(limits: Limits) -> Self {
        let Limits { pooled, .. } = limits;
        let pools = Pools {
            u64s: Pool::new(pooled),
            f32s: Pool::new(pooled),
            u16s: Pool::new(pooled),
            u8s: Pool::new(pooled),
        };
        Self {
            limits,
            staging: vec![0; STAGING],
            start: 0,
            end: 0,
            long: None,
            pools,
        }
    }

    /// Where the next bytes belong: all of the first space, which may be empty, before the second.
    pub fn spaces(&mut self) -> [&mut [u8]; 2] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start > 0 {
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
        self.end = (self.end + count - direct.min(count)).min(self.staging.len());
    }

    /// Takes bytes from a slice; how many. For those who do not read into [`Decoder::spaces`].
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
        if self.long.is_none() {
            let Some(header) = self.header()? else {
                return Ok(None);
            };
            let available = self
                .staging
                .get(self.start + HEADER_LEN..self.end)
                .unwrap_or_default();
            if header.length <= SHORT {
                let Some((body, rest)) = available.split_at_checked(header.length) else {
                    return Ok(None);
                };
                let Some(sum) = rest.first_chunk() else {
                    return Ok(None);
                };
                let frame = short(&header, body, u64::from_le_bytes(*sum))?;
                self.start += HEADER_LEN + header.length + SUM_LEN;
                return Ok(Some(frame));
            }
            let Some(head) = available.get(..header.head) else {
                return Ok(None);
            };
            self.long = Some(Long::new(&header, head, &mut self.pools)?);
            self.start += HEADER_LEN + header.head;
        }
        let Some(long) = &mut self.long else {
            return Ok(None);
        };
        loop {
            let available = self.staging.get(self.start..self.end).unwrap_or_default();
            let space = long.space();
            if space.is_empty() {
                if long.next_section(&mut self.pools) {
                    continue;
                }
                let Some(sum) = available.first_chunk() else {
                    return Ok(None);
                };
                let sum = u64::from_le_bytes(*sum);
                self.start += SUM_LEN;
                return self
                    .long
                    .take()
                    .map(|long| long.finish(sum, &mut self.pools))
                    .transpose();
            }
            let count = space.len().min(available.len());
            if count == 0 {
                return Ok(None);
            }
            let from = available.get(..count).unwrap_or_default();
            space
                .get_mut(..count)
                .unwrap_or_default()
                .copy_from_slice(from);
            long.filled(count);
            self.start += count;
        }
    }

    fn header(&self) -> Result<Option<Header>, WireError> {
        let Some(bytes) = self
            .staging
            .get(self.start..self.end)
            .and_then(|bytes| bytes.get(..HEADER_LEN))
        else {
            return Ok(None);
        };
        let mut fields = Fields(bytes);
        let check = fields.u32()?;
        if !checksum::agree(check, checksum::of_header(fields.0)) {
            return Err(WireError::Header);
        }
        let (head, reserved, length) = (fields.u16()?, fields.u16()?, fields.u64()?);
        let limit = self.limits.max_frame;
        let Some(length) = usize::try_from(length)
            .ok()
            .filter(|&length| length as u64 <= limit)
        else {
            return Err(WireError::TooLong { length, limit });
        };
        let head = usize::from(head);
        if reserved != 0 || head > length.min(MAX_HEAD) {
            return Err(WireError::Malformed("a head longer than any"));
        }
        Ok(Some(Header { head, length }))
    }
}

/// Checks that the sections fill the frame exactly.
fn plan(header: &Header, head: &[u8]) -> Result<Plan, WireError> {
    let mut plan = Plan::default();
    read::frame(head, &mut plan)?;
    let total = plan.0.iter().try_fold(header.head, |total, (kind, count)| {
        total.checked_add(count.checked_mul(kind.size())?)
    });
    match total {
        Some(total) if total == header.length => Ok(plan),
        _ => Err(WireError::Malformed("sections that do not fill it")),
    }
}

/// A frame of which everything is here.
fn short(header: &Header, body: &[u8], sum: u64) -> Result<Frame, WireError> {
    if !checksum::agree(Sum::of(body), sum) {
        return Err(WireError::Checksum);
    }
    let (head, sections) = body.split_at(header.head.min(body.len()));
    plan(header, head)?;
    read::frame(head, &mut Slice(sections))
}

#[derive(Debug)]
struct Pools {
    u64s: Pool<u64>,
    f32s: Pool<f32>,
    u16s: Pool<u16>,
    u8s: Pool<u8>,
}

/// A section in the vector that the message will keep.
#[derive(Debug)]
enum Buffer {
    U64(Arc<Vec<u64>>),
    U32(Arc<Vec<u32>>),
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
            Self::U32(vector) => bytes_of(vector),
            Self::F32(vector, _) => bytes_of(vector),
            Self::U16(vector) => bytes_of(vector),
            Self::U8(vector) => bytes_of(vector),
        }
    }

    /// Looks at these bytes, which have just come.
    fn check(&mut self, bytes: Range<usize>) {
        if let Self::F32(vector, moderate) = self {
            // A number that came in two pieces is looked at with the second.
            let numbers = bytes.start / size_of::<f32>()..bytes.end / size_of::<f32>();
            *moderate &= are_moderate(vector.get(numbers).unwrap_or_default());
        }
    }
}

impl Pools {
    fn take(&mut self, kind: Kind, count: usize) -> Buffer {
        match kind {
            Kind::U64 => Buffer::U64(self.u64s.take(count)),
            // Only snapshots have them.
            Kind::U32 => Buffer::U32(Arc::new(vec![0; count])),
            Kind::F32 => Buffer::F32(self.f32s.take(count), true),
            Kind::U16 => Buffer::U16(self.u16s.take(count)),
            Kind::U8 => Buffer::U8(self.u8s.take(count)),
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

/// A frame that is read into its place.
#[derive(Debug)]
struct Long {
    head: Vec<u8>,
    sum: Sum,
    /// The sections that have not been begun.
    later: std::vec::IntoIter<(Kind, usize)>,
    done: Vec<Buffer>,
    current: Option<Buffer>,
    /// Bytes of the current section, and those that have come and are in `sum`.
    length: usize,
    filled: usize,
}

impl Long {
    fn new(header: &Header, head: &[u8], pools: &mut Pools) -> Result<Self, WireError> {
        let mut sum = Sum::new();
        sum.add(head);
        let mut long = Self {
            head: head.to_vec(),
            sum,
            later: plan(header, head)?.0.into_iter(),
            done: Vec::new(),
            current: None,
            length: 0,
            filled: 0,
        };
        long.next_section(pools);
        Ok(long)
    }

    /// Free part of the current section.
    fn space(&mut self) -> &mut [u8] {
        let (filled, length) = (self.filled, self.length);
        let bytes = self
            .current
            .as_mut()
            .map(Buffer::bytes_mut)
            .unwrap_or_default();
        bytes.get_mut(filled..length).unwrap_or_default()
    }

    /// Up to `count` bytes have come; how many of them were for the current section.
    fn filled(&mut self, count: usize) -> usize {
        let count = count.min(self.length - self.filled);
        let new = self.filled..self.filled + count;
        if let Some(buffer) = &mut self.current {
            self.sum
                .add(buffer.bytes_mut().get(new.clone()).unwrap_or_default());
            buffer.check(new);
        }
        self.filled += count;
        count
    }

    /// Goes on to the next section, when the current one is complete. Whether there is one.
    fn next_section(&mut self, pools: &mut Pools) -> bool {
        self.done.extend(self.current.take());
        (self.length, self.filled) = (0, 0);
        let Some((kind, count)) = self.later.next() else {
            return false;
        };
        self.length = kind.size() * count;
        self.current = Some(pools.take(kind, count));
        true
    }

    fn finish(self, sum: u64, pools: &mut Pools) -> Result<Frame, WireError> {
        if !checksum::agree(self.sum.get(), sum) {
            return Err(WireError::Checksum);
        }
        self.done.iter().for_each(|buffer| pools.keep(buffer));
        read::frame(&self.head, &mut Filled(self.done.into_iter()))
    }
}

/// Sections that have been read into their place.
struct Filled(std::vec::IntoIter<Buffer>);

/// The plan asked for these kinds in this order, so the other arms are never taken.
macro_rules! filled {
    ($($function:ident $variant:ident $type:ty;)*) => {$(
        fn $function(&mut self, count: usize) -> Shared<$type> {
            match self.0.next() {
                Some(Buffer::$variant(vector)) => Shared::window(vector, 0..count),
                _ => Shared::default(),
            }
        }
    )*};
}

impl Source for Filled {
    filled! {
        u64s U64 u64;
        u32s U32 u32;
        u16s U16 u16;
        u8s U8 u8;
    }

    fn f32s(&mut self, count: usize) -> Shared<f32> {
        match self.0.next() {
            Some(Buffer::F32(vector, moderate)) => {
                let numbers = Shared::window(vector, 0..count);
                if moderate {
                    numbers.known_to_be_moderate()
                } else {
                    numbers
                }
            }
            _ => Shared::default(),
        }
    }
}
