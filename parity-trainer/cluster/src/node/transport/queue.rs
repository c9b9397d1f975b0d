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
    /// The node has dropped the connection's receiving side.
    severed: AtomicBool,
    changed: Notify,
}

/// The way out of a connection. The connection's outgoing side ends when all clones are gone.
#[derive(Debug, Clone)]
pub struct Sender {
    frames: mpsc::UnboundedSender<Frame>,
    state: Arc<State>,
}

/// Reason why a frame was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what they are")]
pub enum SendError {
    #[error("the connection was closed")]
    Closed,
    #[error("{bytes} bytes wait to be sent already: wait for room")]
    Full { bytes: usize },
}

/// A queue in which `long` bytes count as long.
pub(super) fn queue(long: usize) -> (Sender, Outgoing) {
    let (frames, outgoing) = mpsc::unbounded_channel();
    let state = State {
        bytes: AtomicUsize::new(0),
        long: long.max(1),
        closed: AtomicBool::new(false),
        severed: AtomicBool::new(false),
        changed: Notify::new(),
    };
    let state = Arc::new(state);
    (
        Sender {
            frames,
            state: Arc::clone(&state),
        },
        Outgoing {
            frames: outgoing,
            state,
        },
    )
}

impl Sender {
    /// Puts a frame into the queue.
    ///
    /// # Errors
    /// If the connection is gone or the queue is full; then the frame is, too.
    pub fn try_send(&self, frame: Frame) -> Result<(), SendError> {
        let cost = frame.cost();
        let bytes = self.state.bytes.load(Ordering::Relaxed);
        // One frame may be longer than the queue: a sender that has waited for room
        // gets it through.
        if bytes >= self.state.long
            && bytes.saturating_add(cost) > self.state.long.saturating_mul(HARD)
        {
            return Err(SendError::Full { bytes });
        }
        self.state.bytes.fetch_add(cost, Ordering::Relaxed);
        self.frames.send(frame).map_err(|_| SendError::Closed)
    }

    pub fn is_long(&self) -> bool {
        self.state.bytes.load(Ordering::Relaxed) >= self.state.long
            && !self.state.closed.load(Ordering::Relaxed)
    }

    /// Bytes until the queue is long; `None` if the connection is gone.
    pub fn free(&self) -> Option<usize> {
        let bytes = self.state.bytes.load(Ordering::Relaxed);
        let open = !self.state.closed.load(Ordering::Relaxed);
        open.then(|| self.state.long.saturating_sub(bytes))
    }

    /// Returns a guard that closes the connection in this direction when it is dropped.
    pub(super) fn severing(&self) -> Severing {
        Severing(Arc::clone(&self.state))
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
    frames: mpsc::UnboundedReceiver<Frame>,
    state: Arc<State>,
}

impl Outgoing {
    pub(super) async fn recv(&mut self) -> Option<Frame> {
        self.frames.recv().await
    }

    /// The next frame, unless the connection was severed.
    pub(super) async fn recv_unless_severed(&mut self) -> Option<Frame> {
        let changed = Arc::clone(&self.state);
        loop {
            let changed = changed.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.state.severed.load(Ordering::Relaxed) {
                return None;
            }
            tokio::select! {
                biased;
                frame = self.frames.recv() => return frame,
                () = &mut changed => {}
            }
        }
    }

    pub(super) fn try_recv(&mut self) -> Option<Frame> {
        self.frames.try_recv().ok()
    }

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

/// Severs a connection when dropped.
#[derive(Debug)]
pub(super) struct Severing(Arc<State>);

impl Drop for Severing {
    fn drop(&mut self) {
        self.0.severed.store(true, Ordering::Relaxed);
        self.0.changed.notify_waiters();
    }
}
