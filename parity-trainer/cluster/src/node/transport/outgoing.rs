//! The outgoing side of a connection: a queue of frames, and the task that writes them, as many
//! together as there are when the stream can take more.

use std::collections::VecDeque;
use std::hash::Hasher as _;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Notify, mpsc};
use tokio_util::task::AbortOnDropHandle;
use twox_hash::XxHash3_64;
use twox_hash::xxhash3_64::Hasher;

use crate::node::wire::{Frame, HEADER_LEN, Header, MAX_HEAD, PIECE, SUM_LEN, Section, WireError};

/// Frames are put together up to this many bytes, then written: the checksum is made of what the
/// write finds in the cache.
const TOGETHER: usize = 256 * 1024;

const SLICES: usize = 64;

/// Times the length that counts as long at which a queue takes no more.
const HARD: usize = 4;

#[derive(Debug)]
struct State {
    bytes: AtomicUsize,
    /// Above this, [`Sender::room`] waits.
    long: usize,
    closed: AtomicBool,
    changed: Notify,
}

/// The way out of a connection. The connection's outgoing side ends when all clones are gone.
#[derive(Debug, Clone)]
pub struct Sender {
    frames: mpsc::UnboundedSender<(Frame, usize)>,
    state: Arc<State>,
}

/// Starts the task that writes what is put into a queue, in which `long` bytes count as long.
pub(super) fn start(
    stream: Box<dyn AsyncWrite + Send + Unpin>,
    long: usize,
    max_frame: u64,
) -> (Sender, AbortOnDropHandle<()>) {
    let (sender, frames) = mpsc::unbounded_channel();
    let state = Arc::new(State {
        bytes: AtomicUsize::new(0),
        long: long.max(1),
        closed: AtomicBool::new(false),
        changed: Notify::new(),
    });
    let sender = Sender { frames: sender, state: Arc::clone(&state) };
    let writing = write(stream, Outgoing { frames, state }, max_frame);
    (sender, AbortOnDropHandle::new(tokio::spawn(writing)))
}

impl Sender {
    /// Puts a frame into the queue. Returns false if the connection is gone or the queue is full;
    /// then the frame is gone, too.
    pub fn try_send(&self, mut frame: Frame) -> bool {
        let cost = frame.cost();
        let State { bytes, long, .. } = &*self.state;
        let waiting = bytes.load(Ordering::Relaxed);
        // One frame may be longer than the queue: a sender that waited for room gets it through.
        if waiting >= *long && waiting.saturating_add(cost) > long.saturating_mul(HARD) {
            return false;
        }
        bytes.fetch_add(cost, Ordering::Relaxed);
        self.frames.send((frame, cost)).is_ok()
    }

    pub fn is_long(&self) -> bool {
        self.free() == Some(0)
    }

    /// Bytes until the queue is long; `None` if the connection is gone.
    pub fn free(&self) -> Option<usize> {
        let bytes = self.state.bytes.load(Ordering::Relaxed);
        let open = !self.state.closed.load(Ordering::Relaxed);
        open.then(|| self.state.long.saturating_sub(bytes))
    }

    pub async fn room(&self) {
        while self.is_long() {
            let changed = self.state.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.is_long() {
                changed.await;
            }
        }
    }
}

struct Outgoing {
    frames: mpsc::UnboundedReceiver<(Frame, usize)>,
    state: Arc<State>,
}

impl Outgoing {
    fn sent(&self, cost: usize) {
        let before = self.state.bytes.fetch_sub(cost, Ordering::Relaxed);
        if before >= self.state.long && before - cost < self.state.long {
            self.state.changed.notify_waiters();
        }
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.state.closed.store(true, Ordering::Relaxed);
        self.state.changed.notify_waiters();
    }
}

/// Writes what is in the queue, until the queue's other end or the connection is gone.
async fn write(
    mut stream: Box<dyn AsyncWrite + Send + Unpin>,
    mut queue: Outgoing,
    max_frame: u64,
) {
    let mut batch = Batch::new(max_frame);
    while let Some(next) = queue.frames.recv().await {
        let (mut next, mut total) = (Some(next), 0);
        while let Some((frame, cost)) = next.take() {
            if let Err(error) = batch.push(frame) {
                tracing::error!(%error, "a message cannot be sent");
            }
            total += cost;
            if batch.len() < TOGETHER {
                next = queue.frames.try_recv().ok();
            }
        }
        while !batch.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let filled = batch.slices(&mut slices);
            let slices = slices.get(..filled).unwrap_or_default();
            match stream.write_vectored(slices).await {
                Ok(count) if count > 0 => batch.advance(count),
                // The reading side tells the node.
                _ => return,
            }
        }
        queue.sent(total);
    }
    // The connection may be gone already.
    let _ = stream.shutdown().await;
}

/// Up to this many bytes, a copy is cheaper than an element of a vectored write.
const COPIED: usize = 4096;

enum Part {
    /// A piece of `small`, summed up already.
    Small(Range<usize>),
    /// Summed up piece by piece, as it is written.
    Large(Box<dyn Section>),
    /// The checksum of the frame that ends here, once all of it is summed up.
    Sum([u8; SUM_LEN]),
}

impl Part {
    fn as_bytes<'a>(&'a self, small: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Small(range) => small.get(range.clone()).unwrap_or_default(),
            Self::Large(numbers) => numbers.as_bytes(),
            Self::Sum(bytes) => bytes,
        }
    }
}

/// Frames as slices for vectored writes. Heads and short sections are copied next to one another,
/// so that many small frames are one slice; long sections stay where they are.
#[derive(Default)]
pub struct Batch {
    max_frame: u64,
    head: Vec<u8>,
    small: Vec<u8>,
    parts: VecDeque<Part>,
    written: usize,
    bytes: usize,
    /// Parts at the front that may be written, and bytes of the one after them.
    ready: usize,
    ready_bytes: usize,
    /// Of each frame with large parts that has not been summed up to its end.
    sums: VecDeque<Hasher>,
}

impl Batch {
    pub fn new(max_frame: u64) -> Self {
        Self { max_frame, ..Self::default() }
    }

    pub const fn len(&self) -> usize {
        self.bytes
    }

    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Adds a frame; one above the limit is left out.
    pub fn push(&mut self, mut frame: Frame) -> Result<(), WireError> {
        self.head.clear();
        frame.encode_head(&mut self.head)?;
        let (head, sections) = (self.head.len(), frame.section_bytes());
        for (length, limit) in [(head + sections, self.max_frame), (head, MAX_HEAD as u64)] {
            let length = length as u64;
            if length > limit {
                return Err(WireError::TooLong { length, limit });
            }
        }
        let length = head + sections;
        let start = self.small.len();
        self.small.extend_from_slice(&Header { head, length }.encode());
        self.small.extend_from_slice(&self.head);
        self.add_sections(start, frame.sections());
        self.bytes += HEADER_LEN + length + SUM_LEN;
        Ok(())
    }

    /// Puts sections after header and head, which begin at `start`, and the checksum after them.
    fn add_sections<'a>(
        &mut self,
        start: usize,
        sections: impl Iterator<Item = &'a mut dyn Section>,
    ) {
        let mut sections = sections.peekable();
        while let Some(section) = sections.next_if(|section| section.as_bytes().len() <= COPIED) {
            self.small.extend_from_slice(section.as_bytes());
        }
        let summed = self.small.get(start + HEADER_LEN..).unwrap_or_default();
        if sections.peek().is_none() {
            let sum = XxHash3_64::oneshot(summed);
            self.small.extend_from_slice(&sum.to_le_bytes());
            self.add_small(start);
            return;
        }
        let mut sum = Hasher::new();
        sum.write(summed);
        self.sums.push_back(sum);
        self.add_small(start);
        let sections = sections.filter(|section| !section.as_bytes().is_empty());
        self.parts.extend(sections.map(|section| Part::Large(section.take())));
        self.parts.push_back(Part::Sum([0; SUM_LEN]));
    }

    /// Small pieces that follow one another are one part.
    fn add_small(&mut self, start: usize) {
        let end = self.small.len();
        match self.parts.back_mut() {
            Some(Part::Small(last)) if last.end == start => last.end = end,
            _ => self.parts.push_back(Part::Small(start..end)),
        }
    }

    /// Fills `slices` with what is to be written next; returns how many are filled.
    pub fn slices<'a>(&'a mut self, slices: &mut [IoSlice<'a>]) -> usize {
        self.sum_up();
        let mut skipped = self.written;
        let mut filled = 0;
        for ((slice, part), at) in slices.iter_mut().zip(&self.parts).zip(0..=self.ready) {
            let bytes = part.as_bytes(&self.small);
            let end = match at < self.ready {
                true => bytes.len(),
                false => self.ready_bytes,
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
            let bytes = part.as_bytes(&self.small);
            let left = bytes.len() - self.ready_bytes;
            let mut now = left;
            match part {
                Part::Small(_) => {}
                Part::Large(_) => {
                    now = left.min(room);
                    let piece = bytes.get(self.ready_bytes..self.ready_bytes + now);
                    if let Some(sum) = self.sums.front_mut() {
                        sum.write(piece.unwrap_or_default());
                    }
                }
                Part::Sum(place) => {
                    let sum = self.sums.pop_front().map_or(0, |sum| sum.finish());
                    *place = sum.to_le_bytes();
                }
            }
            room = room.saturating_sub(now);
            self.ready_bytes += now;
            if now == left {
                (self.ready, self.ready_bytes) = (self.ready + 1, 0);
            }
        }
    }

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
