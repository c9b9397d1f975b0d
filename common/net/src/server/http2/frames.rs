//! Counts the bytes of a connection that are requests, and those that are other frames.
//!
//! A PING takes 17 bytes and an answer. SETTINGS, empty frames and frames of priority are as cheap,
//! and nothing in HTTP/2 bounds them. Like nginx, the server closes a connection that brings
//! several times as many bytes of them as of headers and data. Window updates are expected in
//! proportion to what is written.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

/// Bytes of other frames than requests' that a connection may bring: a long-lived one's pings.
const FREE: u64 = 1 << 20;
/// The same for each byte of a request.
const SHARE: u64 = 8;
/// Bytes of answers worth one of them: window updates take far less of each, pings far more.
const WRITTEN: u64 = 64;
/// Bytes after which others have their turn: small frames take longest for their size.
const TURN: usize = 16 * 1024;

const PREFACE: usize = 24;
/// Of a frame: three of its length, one of its type, and what is of no interest here.
const HEAD: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;

#[derive(Debug)]
struct Tally {
    /// Of the part that began last, how many bytes are to come.
    left: usize,
    /// Bytes of a frame's head that were read and matter; `None` within a frame.
    head: Option<[u8; 4]>,
    requests: u64,
    others: u64,
}

impl Default for Tally {
    fn default() -> Self {
        Self { left: PREFACE, head: None, requests: 0, others: 0 }
    }
}

impl Tally {
    fn count(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (part, rest) = bytes.split_at(self.left.min(bytes.len()));
            if let Some(head) = &mut self.head {
                for (byte, read) in head.iter_mut().skip(HEAD - self.left).zip(part) {
                    *byte = *read;
                }
            }
            (self.left, bytes) = (self.left - part.len(), rest);
            // A frame may have nothing but its head.
            while self.left == 0 {
                self.next_part();
            }
        }
    }

    fn next_part(&mut self) {
        let Some([a, b, c, kind]) = self.head.take() else {
            (self.left, self.head) = (HEAD, Some([0; 4]));
            return;
        };
        self.left = u32::from_be_bytes([0, a, b, c]) as usize;
        let bytes = (HEAD + self.left) as u64;
        match kind {
            DATA | HEADERS | CONTINUATION if self.left > 0 => self.requests += bytes,
            _ => self.others += bytes,
        }
    }
}

/// Reads a connection in turns with others, and for as long as it is read for requests.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    tally: Tally,
    pub(crate) written: u64,
    turn: usize,
}

impl Frames {
    pub(crate) fn poll_read(
        &mut self,
        io: &mut (impl AsyncRead + Unpin),
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.turn >= TURN {
            self.turn = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let read = Pin::new(io).poll_read(context, buffer);
        if read.is_pending() {
            self.turn = 0;
        }
        ready!(read)?;
        let bytes = buffer.filled().get(before..).unwrap_or_default();
        self.turn += bytes.len();
        self.tally.count(bytes);
        let (requests, others) = (self.tally.requests, self.tally.others);
        if others > FREE + requests.saturating_mul(SHARE) + self.written / WRITTEN {
            return Poll::Ready(Err(io::Error::other("frames without requests")));
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_by_their_frames_whatever_their_cuts() {
        let frame = |(kind, length): (u8, u8)| {
            let head = [0, 0, length, kind, 0, 0, 0, 0, 1];
            [&head[..], &vec![0; usize::from(length)]].concat()
        };
        // Settings, a header, data, data of nothing, a ping, another header.
        let frames = [(4, 0), (1, 30), (0, 200), (0, 0), (6, 8), (1, 1)].map(frame);
        let bytes = [&[b'P'; PREFACE][..], &frames.concat()].concat();
        for size in [1, 2, 3, 7, 8, 9, 10, 50, 1000] {
            let mut tally = Tally::default();
            bytes.chunks(size).for_each(|chunk| tally.count(chunk));
            let counted = (tally.requests, tally.others);
            assert_eq!(counted, (39 + 209 + 10, 9 + 9 + 17), "{size}");
        }
    }
}
