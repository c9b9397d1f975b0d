//! Tracks the open streams of one HTTP/2 connection and decides when to close it.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::server::Limits;

/// Requests that may be given up before they have arrived, beyond as many as were answered. A
/// client whose deadline passes gives up what it has sent; one that opens streams and resets them
/// asks for work and pays nothing for it.
const MAX_GIVEN_UP: usize = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    /// Nothing is in flight, and was not for some time.
    Idle,
    /// The client leaves an answer unread.
    Unread,
    /// The client opens streams to reset them.
    Resets,
}

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
        Arc::new(Self { state: Mutex::new(state), resets: Notify::new() })
    }

    /// The client was told to go elsewhere, and knows after `notice`; a client that opens streams
    /// all the same does not keep its connection by them.
    pub(super) fn close(&self, notice: Duration) {
        self.state.lock().closed_from = Some(Instant::now() + notice);
    }

    pub(super) fn begin(self: &Arc<Self>) -> Ticket {
        let mut state = self.state.lock();
        let is_waited_for = state.closed_from.is_none_or(|from| Instant::now() < from);
        state.in_flight += usize::from(is_waited_for);
        Ticket { watch: Arc::clone(self), arrival: Arc::default(), answer: None, is_waited_for }
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
        let idle_end = match state.in_flight {
            0 => state.idle_since + idle,
            _ => now + idle,
        };
        if idle_end <= now {
            return Ok(Over::Idle);
        }
        let end =
            |(since, taken): &(Instant, usize)| since.checked_add(limits.time_to_take(*taken));
        match state.answers.values().filter_map(end).min() {
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
    answer: Option<usize>,
    is_waited_for: bool,
}

impl Ticket {
    pub(super) fn arrival(&self) -> Arc<Arrival> {
        Arc::clone(&self.arrival)
    }

    /// The answer begins; to a request that broke off there is none.
    pub(super) fn answered(&mut self) {
        if self.arrival.is(BROKEN) {
            return;
        }
        let mut state = self.watch.state.lock();
        let number = state.answered;
        state.answered += 1;
        state.answers.insert(number, (Instant::now(), 0));
        self.answer = Some(number);
    }

    pub(super) fn taken(&self, bytes: usize) {
        let mut state = self.watch.state.lock();
        if let Some((_, taken)) = self.answer.and_then(|number| state.answers.get_mut(&number)) {
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
            None if self.arrival.is(WHOLE) => {}
            None => {
                state.given_up += 1;
                if state.resets() {
                    self.watch.resets.notify_one();
                }
            }
        }
    }
}

/// State of a request's body: on its way at first, [`WHOLE`] or [`BROKEN`] in the end.
#[derive(Debug, Default)]
pub(super) struct Arrival(AtomicU8);

const WHOLE: u8 = 1;
/// The rest of it will not come: its client has reset the stream, or is gone.
const BROKEN: u8 = 2;

impl Arrival {
    fn is(&self, state: u8) -> bool {
        self.0.load(Ordering::Relaxed) == state
    }

    fn set(&self, state: u8) {
        self.0.store(state, Ordering::Relaxed);
    }
}

/// A request's body; notes how far it is.
#[derive(Debug)]
pub struct RequestBody {
    body: Incoming,
    arrival: Arc<Arrival>,
}

impl RequestBody {
    pub(super) fn new(body: Incoming, arrival: Arc<Arrival>) -> Self {
        if body.is_end_stream() {
            arrival.set(WHOLE);
        }
        Self { body, arrival }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        match &frame {
            Some(Err(_)) => self.arrival.set(BROKEN),
            Some(Ok(_)) if !self.body.is_end_stream() => {}
            Some(Ok(_)) | None => self.arrival.set(WHOLE),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// As much is handed on at a time as a frame takes. The next piece is asked for when the client
/// has room for it, so that the time for which nothing is asked for is that for which the
/// client takes nothing.
const PIECE: usize = 16 * 1024;

/// A response's body, in pieces; it holds its request's [`Ticket`] until it was taken.
#[derive(Debug)]
pub struct ResponseBody<B> {
    body: Pin<Box<B>>,
    ticket: Ticket,
    /// Unread rest of the last piece of `body`.
    rest: Bytes,
    /// Bytes of the piece that was handed on last.
    handed_on: usize,
}

impl<B> ResponseBody<B> {
    pub(super) fn new(body: B, ticket: Ticket) -> Self {
        Self { body: Box::pin(body), ticket, rest: Bytes::new(), handed_on: 0 }
    }
}

impl<B: Body<Data = Bytes>> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = &mut *self;
        if this.handed_on > 0 {
            this.ticket.taken(std::mem::take(&mut this.handed_on));
        }
        if this.rest.is_empty() {
            match ready!(this.body.as_mut().poll_frame(context)).transpose()? {
                None => return Poll::Ready(None),
                Some(frame) => match frame.into_data() {
                    Ok(data) => this.rest = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
            }
        }
        let piece = this.rest.split_to(this.rest.len().min(PIECE));
        this.handed_on = piece.len();
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, hint) = (self.rest.len() as u64, self.body.size_hint());
        let mut whole = SizeHint::new();
        whole.set_lower(hint.lower().saturating_add(rest));
        if let Some(upper) = hint.upper() {
            whole.set_upper(upper.saturating_add(rest));
        }
        whole
    }
}
