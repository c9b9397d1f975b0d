//! The bounded queue between the requests and the threads that run them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parapet_open_inference::Tensor;
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::BatchError;
use crate::engine::EngineError;

#[derive(Debug)]
pub(super) struct Item {
    pub(super) inputs: Vec<Tensor>,
    pub(super) rows: usize,
    pub(super) arrived: Instant,
    /// Closed once its client no longer waits for the answer.
    pub(super) reply: oneshot::Sender<Result<Vec<Tensor>, EngineError>>,
}

impl Item {
    /// Returns true if one batch can hold both: their samples have equal shapes.
    fn is_like(&self, other: &Self) -> bool {
        let mut pairs = self.inputs.iter().zip(&other.inputs);
        pairs.all(|(one, other)| one.shape.get(1..) == other.shape.get(1..))
    }
}

/// First come, first served; at most `capacity` wait.
pub(super) struct Queue {
    pub(super) policy: BatchPolicy,
    capacity: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Item>,
    closed: bool,
}

impl State {
    /// Takes the item at `first` and those like it behind it, `count` at most.
    fn take(&mut self, first: usize, count: usize) -> Vec<Item> {
        let mut batch: Vec<Item> = self.waiting.remove(first).into_iter().collect();
        let mut position = first;
        while let (Some(next), Some(first)) = (self.waiting.get(position), batch.first()) {
            if batch.len() == count {
                break;
            }
            match next.is_like(first) {
                true => batch.extend(self.waiting.remove(position)),
                false => position += 1,
            }
        }
        batch
    }
}

impl Queue {
    pub(super) fn new(policy: BatchPolicy, capacity: usize) -> Self {
        Self { policy, capacity, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Puts an item at the end, and wakes no thread. Items whose clients have gone make room for it.
    pub(super) fn push(&self, item: Item) -> Result<(), BatchError> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(BatchError::Closed);
        }
        if state.waiting.len() >= self.capacity {
            state.waiting.retain(|item| !item.reply.is_closed());
            if state.waiting.len() >= self.capacity {
                return Err(BatchError::Full);
            }
        }
        state.waiting.push_back(item);
        Ok(())
    }

    pub(super) fn wake(&self) {
        if !self.state.lock().waiting.is_empty() {
            self.changed.notify_one();
        }
    }

    /// Takes a batch that is due now, if there is one.
    pub(super) fn try_batch(&self) -> Option<Vec<Item>> {
        let mut state = self.state.lock();
        state.waiting.retain(|item| !item.reply.is_closed());
        match self.decide(&state.waiting) {
            (first, Decision::Run(count)) => Some(state.take(first, count)),
            _ => None,
        }
    }

    /// Blocks until a batch is due, and takes it; items whose clients have gone are dropped. `None`
    /// once the queue is closed and empty.
    pub(super) fn next_batch(&self) -> Option<Vec<Item>> {
        let mut state = self.state.lock();
        loop {
            state.waiting.retain(|item| !item.reply.is_closed());
            let (first, decision) = self.decide(&state.waiting);
            let count = match decision {
                Decision::Run(count) => count,
                // Nothing more will come: what waits is all there will be.
                Decision::WaitUntil(_) if state.closed => usize::MAX,
                Decision::WaitUntil(until) => {
                    let _ = self.changed.wait_until(&mut state, until);
                    continue;
                }
                Decision::Idle if state.closed => return None,
                Decision::Idle => {
                    self.changed.wait(&mut state);
                    continue;
                }
            };
            let batch = state.take(first, count);
            // This thread may have been the only one woken for what is left.
            if !state.waiting.is_empty() {
                self.changed.notify_one();
            }
            return Some(batch);
        }
    }

    /// The decision on the requests of one shape, and the first of them: of the shape that came
    /// first among those with a batch to run, else of the oldest.
    fn decide(&self, waiting: &VecDeque<Item>) -> (usize, Decision) {
        let now = Instant::now();
        let mut firsts: Vec<&Item> = Vec::new();
        let mut oldest = Decision::Idle;
        for (first, item) in waiting.iter().enumerate() {
            if firsts.iter().any(|other| other.is_like(item)) {
                continue;
            }
            let alike = waiting.range(first..).filter(|other| other.is_like(item));
            match self.policy.decide(alike.map(|item| (item.rows, item.arrived)), now) {
                decision @ Decision::Run(_) => return (first, decision),
                decision if firsts.is_empty() => oldest = decision,
                _ => {}
            }
            firsts.push(item);
        }
        (0, oldest)
    }

    /// Takes no more items; those that wait are still handed out.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }

    /// Takes no more items and drops those that wait, so that their clients hear of it.
    pub(super) fn close_and_clear(&self) {
        self.close();
        drop(std::mem::take(&mut self.state.lock().waiting));
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchPolicy {
    /// Rows of a batch at most. No request has more: they are refused on arrival.
    pub max_rows: usize,
    /// Longest wait of the oldest request for others to come.
    pub max_delay: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    Idle,
    WaitUntil(Instant),
    Run(usize),
}

impl BatchPolicy {
    /// Decides on waiting requests of one shape, first come first: each one's rows and arrival.
    ///
    /// A batch is the longest run from the front that fits into `max_rows`. It is closed when it is
    /// full or the next request does not fit (waiting longer could not improve it), or when the
    /// oldest has waited for `max_delay`.
    pub(crate) fn decide(
        &self,
        waiting: impl IntoIterator<Item = (usize, Instant)>,
        now: Instant,
    ) -> Decision {
        let mut oldest = None;
        let (mut count, mut rows) = (0, 0);
        for (more, arrived) in waiting {
            if count > 0 && rows + more > self.max_rows {
                return Decision::Run(count);
            }
            oldest.get_or_insert(arrived);
            count += 1;
            rows += more;
            if rows >= self.max_rows {
                return Decision::Run(count);
            }
        }
        match oldest {
            None => Decision::Idle,
            Some(arrived) if now >= arrived + self.max_delay => Decision::Run(count),
            Some(arrived) => Decision::WaitUntil(arrived + self.max_delay),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    type Answer = oneshot::Receiver<Result<Vec<Tensor>, EngineError>>;

    fn item(rows: usize) -> (Item, Answer) {
        let (reply, answer) = oneshot::channel();
        let item = Item { inputs: Vec::new(), rows, arrived: Instant::now(), reply };
        (item, answer)
    }

    fn queue(max_rows: usize, max_delay: Duration, capacity: usize) -> Queue {
        let policy = BatchPolicy { max_rows, max_delay };
        Queue::new(policy, capacity)
    }

    /// One row of this length.
    fn long(length: usize) -> (Item, Answer) {
        let (mut item, answer) = item(1);
        item.inputs = vec![Tensor::from_f32("x", [1, length], &vec![0.0; length]).unwrap()];
        (item, answer)
    }

    fn lengths(batch: &[Item]) -> Vec<usize> {
        batch.iter().map(|item| item.inputs[0].shape[1]).collect()
    }

    #[test]
    fn a_batch_has_requests_of_one_shape_and_no_shape_is_passed_over() {
        for close in [false, true] {
            let delay = if close { Duration::from_secs(3600) } else { Duration::ZERO };
            let queue = queue(4, delay, 16);
            let (items, _answers): (Vec<_>, Vec<_>) =
                [5, 7, 5, 7, 5, 9].map(long).into_iter().unzip();
            items.into_iter().for_each(|item| queue.push(item).unwrap());
            if close {
                queue.close();
            }
            for expected in [&[5, 5, 5][..], &[7, 7], &[9]] {
                assert_eq!(lengths(&queue.next_batch().unwrap()), expected);
            }
        }
    }

    #[test]
    fn a_full_batch_does_not_wait_for_an_older_request_of_another_shape() {
        let queue = queue(2, Duration::from_secs(3600), 16);
        let (items, _answers): (Vec<_>, Vec<_>) = [5, 7, 7, 7].map(long).into_iter().unzip();
        items.into_iter().for_each(|item| queue.push(item).unwrap());
        assert_eq!(lengths(&queue.next_batch().unwrap()), [7, 7]);
        queue.close();
        assert_eq!(lengths(&queue.next_batch().unwrap()), [5]);
        assert_eq!(lengths(&queue.next_batch().unwrap()), [7]);
        assert!(queue.next_batch().is_none());
    }

    #[test]
    fn a_full_queue_refuses_until_a_client_goes() {
        let queue = queue(4, Duration::ZERO, 2);
        let ((first, gone), (second, _waits), (third, _refused)) = (item(1), item(2), item(3));
        queue.push(first).unwrap();
        queue.push(second).unwrap();
        assert!(matches!(queue.push(third), Err(BatchError::Full)));
        drop(gone);
        let (fourth, _waits_too) = item(2);
        queue.push(fourth).unwrap();
        let batch = queue.next_batch().unwrap();
        let rows: Vec<_> = batch.iter().map(|item| item.rows).collect();
        assert_eq!(rows, [2, 2]);
    }

    #[test]
    fn closing_hands_out_what_waits_and_then_ends() {
        let queue = queue(8, Duration::from_secs(3600), 8);
        let ((first, _one), (second, _two), (late, _refused)) = (item(1), item(1), item(1));
        queue.push(first).unwrap();
        queue.push(second).unwrap();
        queue.close();
        assert!(matches!(queue.push(late), Err(BatchError::Closed)));
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
        let ((first, _one), (second, _two)) = (item(1), item(1));
        for item in [first, second] {
            queue.push(item).unwrap();
            queue.wake();
        }
        assert_eq!(taker.join().unwrap(), Some(2));
    }

    #[test]
    fn batch_that_is_left_wakes_another_thread() {
        let (delay, start) = (Duration::from_secs(60), Instant::now());
        for _ in 0..100 {
            let queue = Arc::new(queue(2, delay, 8));
            let takers = [(); 2].map(|()| {
                let queue = queue.clone();
                std::thread::spawn(move || queue.next_batch().map(|batch| batch.len()))
            });
            std::thread::yield_now();
            let ((first, _one), (second, _two)) = (item(1), item(2));
            queue.push(first).unwrap();
            queue.wake();
            std::thread::yield_now();
            queue.push(second).unwrap();
            queue.wake();
            for taker in takers {
                assert_eq!(taker.join().unwrap(), Some(1));
            }
            assert!(start.elapsed() < delay, "a batch was left until the delay had passed");
        }
    }

    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_single_request_waits_for_nothing_without_delay() {
        let now = Instant::now();
        let policy = BatchPolicy { max_rows: 8, max_delay: Duration::ZERO };
        assert_eq!(policy.decide([(1, now)], now), Decision::Run(1));
        assert_eq!(policy.decide([], now), Decision::Idle);
    }

    proptest! {
        #[test]
        fn batches_are_full_overdue_or_still_waited_for(
            max_rows in 1_usize..10,
            delay in 0_u32..20,
            waiting in prop::collection::vec((1_usize..10, 0_u32..30), 0..20),
        ) {
            let start = Instant::now();
            let now = start + 30 * MS;
            let policy = BatchPolicy {
                max_rows,
                max_delay: delay * MS,
            };
            let mut ages: Vec<u32> = waiting.iter().map(|&(_, age)| age).collect();
            ages.sort_unstable();
            let rows: Vec<usize> = waiting.iter().map(|&(rows, _)| rows.min(max_rows)).collect();
            let queue = rows.iter().zip(&ages);
            let queue: Vec<_> = queue.map(|(&rows, &age)| (rows, start + age * MS)).collect();
            let total: usize = rows.iter().sum();
            match policy.decide(queue.clone(), now) {
                Decision::Idle => prop_assert!(queue.is_empty()),
                Decision::WaitUntil(until) => {
                    prop_assert!(until > now && until == queue[0].1 + policy.max_delay);
                    prop_assert!(total < max_rows);
                }
                Decision::Run(count) => {
                    let taken: usize = rows[..count].iter().sum();
                    prop_assert!(count > 0 && taken <= max_rows);
                    let cannot_grow = taken == max_rows
                        || rows.get(count).is_some_and(|next| taken + next > max_rows);
                    let overdue = count == rows.len() && now >= queue[0].1 + policy.max_delay;
                    prop_assert!(cannot_grow || overdue);
                }
            }
        }
    }
}
