//! The bounded queue between the requests and the thread that runs them.

use std::collections::VecDeque;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use super::BatchError;
use super::policy::{BatchPolicy, Decision};

/// An item of the queue.
pub(super) trait Waiting {
    /// Rows on the batch axis.
    fn rows(&self) -> usize;
    /// When it came.
    fn arrived(&self) -> Instant;
    /// Returns true if its client no longer waits for the answer.
    fn is_abandoned(&self) -> bool;
}

/// First come, first served; at most `capacity` wait.
pub(super) struct Queue<T> {
    policy: BatchPolicy,
    capacity: usize,
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    waiting: VecDeque<T>,
    closed: bool,
}

impl<T: Waiting> Queue<T> {
    pub(super) fn new(policy: BatchPolicy, capacity: usize) -> Self {
        let state = State {
            waiting: VecDeque::new(),
            closed: false,
        };
        Self {
            policy,
            capacity,
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// Puts an item at the end. Items whose clients have gone make room for it.
    pub(super) fn push(&self, item: T) -> Result<(), BatchError> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(BatchError::Closed);
        }
        if state.waiting.len() >= self.capacity {
            state.waiting.retain(|item| !item.is_abandoned());
            if state.waiting.len() >= self.capacity {
                return Err(BatchError::Full);
            }
        }
        state.waiting.push_back(item);
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Blocks until a batch is due, and takes it; items whose clients have gone are dropped. `None`
    /// once the queue is closed and empty.
    pub(super) fn next_batch(&self) -> Option<Vec<T>> {
        let mut state = self.state.lock();
        loop {
            state.waiting.retain(|item| !item.is_abandoned());
            let waiting = state.waiting.iter();
            let waiting = waiting.map(|item| (item.rows(), item.arrived()));
            match self.policy.decide(waiting, Instant::now()) {
                Decision::Run(count) => return Some(state.waiting.drain(..count).collect()),
                // Nothing more will come: what waits is all there will be.
                Decision::WaitUntil(_) if state.closed => {
                    return Some(state.waiting.drain(..).collect());
                }
                Decision::WaitUntil(until) => drop(self.changed.wait_until(&mut state, until)),
                Decision::Idle if state.closed => return None,
                Decision::Idle => self.changed.wait(&mut state),
            }
        }
    }

    /// Takes no more items; those that wait are still handed out.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }

    /// Takes no more items and drops those that wait, so that their clients hear of it.
    pub(super) fn close_and_clear(&self) {
        self.close();
        let abandoned = std::mem::take(&mut self.state.lock().waiting);
        drop(abandoned);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;

    struct Item {
        rows: usize,
        arrived: Instant,
        abandoned: Arc<AtomicBool>,
    }

    impl Waiting for Item {
        fn rows(&self) -> usize {
            self.rows
        }
        fn arrived(&self) -> Instant {
            self.arrived
        }
        fn is_abandoned(&self) -> bool {
            self.abandoned.load(Ordering::Relaxed)
        }
    }

    fn item(rows: usize) -> Item {
        Item {
            rows,
            arrived: Instant::now(),
            abandoned: Arc::default(),
        }
    }

    fn queue(max_rows: usize, max_delay: Duration, capacity: usize) -> Queue<Item> {
        let policy = BatchPolicy {
            max_rows,
            max_delay,
        };
        Queue::new(policy, capacity)
    }

    #[test]
    fn a_full_queue_refuses_until_a_client_goes() {
        let queue = queue(4, Duration::ZERO, 2);
        let first = item(1);
        let gone = first.abandoned.clone();
        queue.push(first).unwrap();
        queue.push(item(2)).unwrap();
        assert!(matches!(queue.push(item(3)), Err(BatchError::Full)));
        gone.store(true, Ordering::Relaxed);
        queue.push(item(2)).unwrap();
        let rows: Vec<_> = queue.next_batch().unwrap().iter().map(Item::rows).collect();
        assert_eq!(rows, [2, 2]);
    }

    #[test]
    fn closing_hands_out_what_waits_and_then_ends() {
        let queue = queue(8, Duration::from_secs(3600), 8);
        queue.push(item(1)).unwrap();
        queue.push(item(1)).unwrap();
        queue.close();
        assert!(matches!(queue.push(item(1)), Err(BatchError::Closed)));
        assert_eq!(queue.next_batch().unwrap().len(), 2);
        assert!(queue.next_batch().is_none());
    }

    #[test]
    fn a_waiting_thread_is_woken() {
        let queue = Arc::new(queue(2, Duration::from_secs(3600), 8));
        let taker = std::thread::spawn({
            let queue = queue.clone();
            move || queue.next_batch().map(|batch| batch.len())
        });
        queue.push(item(1)).unwrap();
        queue.push(item(1)).unwrap();
        assert_eq!(taker.join().unwrap(), Some(2));
    }
}
