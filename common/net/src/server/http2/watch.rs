//! Tracks the open streams of one HTTP/2 connection and decides when to close it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::server::Limits;

/// Requests that may be given up before they have arrived, beyond as many as were answered. A
/// client whose deadline passes gives up what it has sent; one that opens streams and resets them
/// asks for work and pays nothing for it.
const MAX_GIVEN_UP: usize = 128;

/// Reason why a connection is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    /// Nothing is in flight, and was not for some time.
    Idle,
    /// The client leaves an answer unread.
    Unread,
    /// The client opens streams to reset them.
    Resets,
}

/// The requests of a connection.
#[derive(Debug)]
pub(super) struct Watch {
    state: Mutex<State>,
    resets: Notify,
}

#[derive(Debug)]
struct State {
    /// Of the requests that are waited for.
    in_flight: usize,
    /// From then on requests are not waited for any more.
    closed_from: Option<Instant>,
    /// Since when nothing is in flight, if nothing is.
    idle_since: Instant,
    answered: usize,
    /// Before they had arrived.
    given_up: usize,
    /// Answers that are not yet taken, by their number: since when, and the bytes taken.
    answers: BTreeMap<usize, (Instant, usize)>,
}

impl State {
    fn resets(&self) -> bool {
        self.given_up > MAX_GIVEN_UP && self.given_up - MAX_GIVEN_UP > self.answered
    }
}

impl Watch {
    pub(super) fn new() -> Arc<Self> {
        let state = State {
            in_flight: 0,
            closed_from: None,
            idle_since: Instant::now(),
            answered: 0,
            given_up: 0,
            answers: BTreeMap::new(),
        };
        Arc::new(Self {
            state: Mutex::new(state),
            resets: Notify::new(),
        })
    }

    /// The client was told to go elsewhere, and knows after `notice`; a client that opens streams
    /// all the same does not keep its connection by them.
    pub(super) fn close(&self, notice: Duration) {
        self.state.lock().closed_from = Some(Instant::now() + notice);
    }

    /// A request's header is here.
    pub(super) fn begin(self: &Arc<Self>) -> Ticket {
        let mut state = self.state.lock();
        let is_waited_for = state.closed_from.is_none_or(|from| Instant::now() < from);
        state.in_flight += usize::from(is_waited_for);
        Ticket {
            watch: Arc::clone(self),
            arrival: Arc::default(),
            answer: None,
            is_waited_for,
        }
    }

    /// Ends when there was no request for `idle`, or a limit is broken.
    pub(super) async fn over(&self, idle: Duration, limits: &Limits) -> Over {
        loop {
            let next = match self.look(idle, limits) {
                Ok(over) => return over,
                Err(next) => next,
            };
            tokio::select! {
                () = sleep_until(next) => {}
                () = self.resets.notified() => {}
            }
        }
    }

    /// Returns the limit that is exceeded now, or the time of the next check. A stream that begins
    /// meanwhile exceeds none before that time.
    fn look(&self, idle: Duration, limits: &Limits) -> Result<Over, Instant> {
        let (state, now) = (self.state.lock(), Instant::now());
        if state.resets() {
            return Ok(Over::Resets);
        }
        let idle_end = if state.in_flight == 0 {
            state.idle_since + idle
        } else {
            now + idle
        };
        if idle_end <= now {
            return Ok(Over::Idle);
        }
        let min_rate = f64::from(limits.min_write_rate.max(1));
        let end = |(since, taken): &(Instant, usize)| {
            let earned =
                Duration::try_from_secs_f64(*taken as f64 / min_rate).unwrap_or(Duration::MAX);
            since.checked_add(limits.write_timeout.saturating_add(earned))
        };
        let unread = state.answers.values().filter_map(end).min();
        match unread {
            Some(end) if end <= now => Ok(Over::Unread),
            Some(end) => Err(idle_end.min(end)),
            None => Err(idle_end.min(now + limits.write_timeout)),
        }
    }
}

/// A request, until its answer is taken or it is given up.
#[derive(Debug)]
pub(super) struct Ticket {
    watch: Arc<Watch>,
    arrival: Arc<Arrival>,
    /// The number of the answer.
    answer: Option<usize>,
    is_waited_for: bool,
}

impl Ticket {
    /// Returns the progress of the request's arrival.
    pub(super) fn arrival(&self) -> Arc<Arrival> {
        Arc::clone(&self.arrival)
    }

    /// The answer begins; to a request that broke off there is none.
    pub(super) fn answered(&mut self) {
        if self.arrival.is_broken() {
            return;
        }
        let mut state = self.watch.state.lock();
        let number = state.answered;
        state.answered += 1;
        state.answers.insert(number, (Instant::now(), 0));
        self.answer = Some(number);
    }

    /// The client has taken so much of the answer.
    pub(super) fn taken(&self, bytes: usize) {
        let mut state = self.watch.state.lock();
        if let Some((_, taken)) = self
            .answer
            .and_then(|number| state.answers.get_mut(&number))
        {
            *taken += bytes;
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.watch.state.lock();
        if self.is_waited_for {
            state.in_flight -= 1;
            if state.in_flight == 0 {
                state.idle_since = Instant::now();
            }
        }
        match self.answer {
            Some(number) => drop(state.answers.remove(&number)),
            None if self.arrival.is_whole() => {}
            None => {
                state.given_up += 1;
                if state.resets() {
                    self.watch.resets.notify_one();
                }
            }
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Arrival(AtomicU8);

const WHOLE: u8 = 1;
const BROKEN: u8 = 2;

impl Arrival {
    /// All of it is here.
    pub(super) fn is_whole(&self) -> bool {
        self.0.load(Ordering::Relaxed) == WHOLE
    }

    /// The rest of it will not come: its client has reset the stream, or is gone.
    pub(super) fn is_broken(&self) -> bool {
        self.0.load(Ordering::Relaxed) == BROKEN
    }

    pub(super) fn whole(&self) {
        self.0.store(WHOLE, Ordering::Relaxed);
    }

    pub(super) fn broken(&self) {
        self.0.store(BROKEN, Ordering::Relaxed);
    }
}
