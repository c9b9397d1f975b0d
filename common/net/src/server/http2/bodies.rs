//! Bodies that say how far they are.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::watch::{Arrival, Ticket};

/// A request's body; notes how far it is.
#[derive(Debug)]
pub struct RequestBody {
    body: Incoming,
    arrival: Arc<Arrival>,
}

impl RequestBody {
    pub(super) fn new(body: Incoming, arrival: Arc<Arrival>) -> Self {
        if body.is_end_stream() {
            arrival.whole();
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
            Some(Err(_)) => self.arrival.broken(),
            Some(Ok(_)) if !self.body.is_end_stream() => {}
            Some(Ok(_)) | None => self.arrival.whole(),
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
        Self {
            body: Box::pin(body),
            ticket,
            rest: Bytes::new(),
            handed_on: 0,
        }
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
