//! The outgoing queue of a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::{Notify, mpsc};

use crate::node::wire::Frame;

/// Times the length that counts as long at which a queue takes no more.
const HARD: usize = 4;

#[derive(Debug)]
struct State {
    bytes: AtomicUsize,
    /// Above this, [`Sender::room`] waits.
    long: usize,
    /// The sending end is gone.
    closed: AtomicBool,
    changed: Notify,
}

/// The way out of a connection. The connection's outgoing side ends when all clones are gone.
#[derive(Debug, Clone)]
pub struct Sender {
    frames: mpsc::UnboundedSender<(Frame, usize)>,
    state: Arc<State>,
}

/// A queue in which `long` bytes count as long.
pub(super) fn queue(long: usize) -> (Sender, Outgoing) {
    let (sender, frames) = mpsc::unbounded_channel();
    let state = Arc::new(State {
        bytes: AtomicUsize::new(0),
        long: long.max(1),
        closed: AtomicBool::new(false),
        changed: Notify::new(),
    });
    let sender = Sender {
        frames: sender,
        state: Arc::clone(&state),
    };
    (sender, Outgoing { frames, state })
}

impl Sender {
    /// Puts a frame into the queue. Returns false if the connection is gone or the queue is full;
    /// then the frame is gone, too.
    pub fn try_send(&self, mut frame: Frame) -> bool {
        let cost = frame.cost();
        let State { bytes, long, .. } = &*self.state;
        let waiting = bytes.load(Ordering::Relaxed);
        // One frame may be longer than the queue: a sender that has waited for room gets it
        // through.
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

    /// Waits until the queue is not long, or the connection is gone.
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

/// The end of a queue that sends.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// Frames and their costs.
    pub(super) frames: mpsc::UnboundedReceiver<(Frame, usize)>,
    state: Arc<State>,
}

impl Outgoing {
    /// Frames of `cost` bytes have left.
    pub(super) fn sent(&self, cost: usize) {
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
