//! Requests to an instance at a time, found while serving.
//!
//! An instance that batches, or computes several requests at once, answers more a second the more
//! of them it has; another one only queues them, and a straggler there takes more with it. The
//! search climbs hills, as .NET's thread pool does: while queries wait for a slot, instances are
//! given half as many slots more, and keep them if that raises the rate of answers; after a trial
//! that does not, they are given a third less, and keep to that if it costs nothing. Where mostly
//! no query waits, and slots are not all used either, they become fewer.

use std::time::Duration;

use crate::Time;

/// The search for the number of slots of each instance of a pool.
#[derive(Debug)]
pub(crate) struct Concurrency {
    least: u32,
    most: u32,
    slots: u32,
    began: Time,
    answers: u32,
    /// Of these, while no query waited.
    idle: u32,
    /// Of these, by an instance that had as many requests as slots.
    full: u32,
    /// Slots before the trial that goes on, and answers/s then.
    trial: Option<(u32, f64)>,
    goes_up: bool,
    /// Rounds until the next trial.
    pause: u32,
}

/// Answers and time of a round, at least.
const ANSWERS: u32 = 128;
const ROUND: Duration = Duration::from_millis(100);
/// More slots must raise the rate to so many times what it was; fewer may lower it to so many.
const GAIN: f64 = 1.05;
const LOSS: f64 = 0.97;
/// Slots are used if one answer of so many comes from a full instance.
const FULL_SHARE: u32 = 16;
/// Rounds from a trial that failed to the next.
const PAUSE: u32 = 8;

impl Concurrency {
    /// Begins with `least` slots; there are `most` at most.
    pub(crate) fn new(least: u32, most: u32) -> Self {
        Self {
            least,
            most,
            slots: least,
            began: Time::ZERO,
            answers: 0,
            idle: 0,
            full: 0,
            trial: None,
            goes_up: true,
            pause: 0,
        }
    }

    /// An instance answered while `queued` queries waited; until then it was full, or not. Returns
    /// the slots that instances are to have from now on, at the end of a round.
    pub(crate) fn answered(&mut self, now: Time, queued: usize, is_full: bool) -> Option<u32> {
        self.answers += 1;
        self.full += u32::from(is_full);
        self.idle += u32::from(queued == 0);
        let elapsed = now.since(self.began);
        if self.answers < ANSWERS || elapsed < ROUND {
            return None;
        }
        self.judge(f64::from(self.answers) / elapsed.as_secs_f64());
        (self.began, self.answers) = (now, 0);
        (self.idle, self.full) = (0, 0);
        Some(self.slots)
    }

    /// An instance said that it has enough to do. Returns the slots from now on.
    pub(crate) fn refused(&mut self) -> u32 {
        (self.trial, self.pause) = (None, PAUSE);
        self.slots = self.fewer();
        self.slots
    }

    fn judge(&mut self, rate: f64) {
        let trial = self.trial.take();
        if 2 * self.idle > self.answers {
            if FULL_SHARE * self.full < self.answers {
                self.slots = self.slots.saturating_sub(1).max(self.least);
            }
            return;
        }
        if let Some((slots, before)) = trial {
            let wanted = if self.slots > slots { GAIN } else { LOSS };
            if rate < wanted * before {
                self.slots = slots;
                self.goes_up = !self.goes_up;
                self.pause = PAUSE;
            }
        }
        if self.pause > 0 {
            self.pause -= 1;
            return;
        }
        let next = match self.goes_up {
            true => (self.slots + self.slots.div_ceil(2)).min(self.most),
            false => self.fewer(),
        };
        match next == self.slots {
            true => self.goes_up = !self.goes_up,
            false => self.trial = Some((self.slots, rate)),
        }
        self.slots = next;
    }

    fn fewer(&self) -> u32 {
        (self.slots * 2 / 3).max(self.least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Slots after so many answers of two instances that have always something to do, each of
    /// which answers `rate(slots)` requests a second.
    fn after(answers: u32, clients: u32, rate: impl Fn(u32) -> f64) -> (Concurrency, u32) {
        let mut concurrency = Concurrency::new(2, 64);
        let (mut now, mut slots) = (Time::ZERO, 2);
        for _ in 0..answers {
            let busy = slots.min(clients / 2).max(1);
            now = now + Duration::from_secs_f64(0.5 / rate(busy));
            let queued = clients.saturating_sub(2 * slots) as usize;
            let is_full = busy == slots;
            slots = concurrency.answered(now, queued, is_full).unwrap_or(slots);
        }
        (concurrency, slots)
    }

    /// Batches of all that is there, up to `largest`: each takes 1 ms and 0.1 ms a request.
    fn batching(largest: u32) -> impl Fn(u32) -> f64 {
        move |slots| {
            let batch = f64::from(slots.min(largest));
            batch / (1e-3 + 1e-4 * batch)
        }
    }

    #[test]
    fn instances_that_batch_are_given_what_fills_their_batches() {
        for largest in [4, 8, 16, 32] {
            let (_, slots) = after(50_000, 256, batching(largest));
            let (got, best) = (batching(largest)(slots), batching(largest)(64));
            assert!(got > 0.9 * best, "{slots} slots for batches of {largest}");
        }
    }

    #[test]
    fn instances_that_do_not_gain_keep_the_least() {
        for answers in (1..40).map(|rounds| 1000 * rounds) {
            let (_, slots) = after(answers, 256, |_| 1000.0);
            assert!(slots <= 3, "{slots} after {answers}");
        }
    }

    #[test]
    fn clients_that_fill_the_slots_keep_them() {
        for clients in [8, 16, 32] {
            for answers in (20..60).map(|rounds| 1000 * rounds) {
                let (_, slots) = after(answers, clients, batching(64));
                assert!(slots >= clients / 2, "{slots} for {clients} after {answers}");
            }
        }
    }

    /// Slots after so many rounds with a queue, in which `rate(slots)` answers come a second.
    fn rounds(concurrency: &mut Concurrency, rounds: u32, rate: impl Fn(u32) -> f64) -> u32 {
        for _ in 0..rounds {
            concurrency.judge(rate(concurrency.slots));
        }
        concurrency.slots
    }

    #[test]
    fn slots_that_gain_nothing_are_given_up_and_taken_again_once_they_gain() {
        let mut concurrency = Concurrency::new(2, 64);
        concurrency.slots = 12;
        assert_eq!(rounds(&mut concurrency, 60, |_| 1000.0), 2);
        assert!(rounds(&mut concurrency, 40, f64::from) > 32);
    }

    #[test]
    fn slots_become_fewer_where_most_answers_leave_no_queue() {
        let mut concurrency = Concurrency::new(2, 64);
        concurrency.slots = 12;
        for (idle, slots) in [(70, 11), (51, 10), (50, 15)] {
            (concurrency.answers, concurrency.idle) = (100, idle);
            concurrency.judge(1000.0);
            assert_eq!(concurrency.slots, slots, "{idle} % without a queue");
        }
    }

    #[test]
    fn without_a_queue_slots_become_fewer_again() {
        let (mut concurrency, slots) = after(50_000, 256, batching(32));
        assert!(slots > 16);
        let mut left = slots;
        for answer in 0..20_000u64 {
            let now = Time::from_nanos(10_000_000_000_000 + answer * 1_000_000);
            left = concurrency.answered(now, 0, false).unwrap_or(left);
        }
        assert_eq!(left, 2);
    }

    #[test]
    fn an_instance_that_refuses_gets_fewer() {
        let (mut concurrency, slots) = after(50_000, 256, batching(32));
        assert_eq!(concurrency.refused(), slots * 2 / 3);
        for _ in 0..20 {
            concurrency.refused();
        }
        assert_eq!(concurrency.refused(), 2);
    }

    proptest! {
        #[test]
        fn slots_stay_within_their_bounds(
            least in 1u32..4,
            more in 0u32..64,
            events in proptest::collection::vec((0u64..10_000_000, 0usize..3), 0..5_000),
        ) {
            let most = least + more;
            let mut concurrency = Concurrency::new(least, most);
            let mut now = 0;
            for (pause, queued) in events {
                now += pause;
                let now = Time::from_nanos(now);
                if let Some(slots) = concurrency.answered(now, queued, queued > 1) {
                    prop_assert!((least..=most).contains(&slots), "{slots}");
                }
            }
        }
    }
}
