//! Socket of a connection with a limit on slow readers, and with an end that loses no response.
//!
//! A write that goes through at once, as nearly all do, sets no timer. A client that reads nothing
//! for the time allowed is given up. So is one that reads a few bytes now and then, since each of
//! them would buy it the whole time again. Closing a socket that holds unread data resets the
//! connection, and the client may lose the response that it was about to read: the 413 to a body
//! that it is still sending, for one. So the write side is closed first, and incoming bytes are
//! discarded for a while (a lingering close).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use crate::server::Limits;
use crate::server::http2::Frames;
use crate::tls::Application;

/// The longest that a closed connection is still read from.
const LINGER: Duration = Duration::from_millis(500);
const LINGER_BYTES: usize = 4 << 20;

pub(crate) struct ClientIo<S> {
    io: S,
    limits: Limits,
    /// `None` where the protocol has no frames.
    frames: Option<Frames>,
    blocked: Option<Blocked>,
    lingering: Lingering,
}

struct Blocked {
    since: Instant,
    taken: usize,
    timer: Pin<Box<Sleep>>,
}

enum Lingering {
    No,
    /// All is written, its end too.
    Reading {
        timer: Pin<Box<Sleep>>,
        read: usize,
    },
    Done,
}

impl<S> ClientIo<S> {
    pub(crate) fn new(io: S, limits: &Limits, application: Application) -> Self {
        let frames = (application == Application::Http2).then(Frames::default);
        Self { io, limits: *limits, frames, blocked: None, lingering: Lingering::No }
    }

    fn wrote(
        &mut self,
        context: &mut Context<'_>,
        result: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if result.is_pending() {
            return self.wait(context);
        }
        if let (Poll::Ready(Ok(bytes)), Some(blocked)) = (&result, &mut self.blocked) {
            blocked.taken += bytes;
        }
        if let (Poll::Ready(Ok(bytes)), Some(frames)) = (&result, &mut self.frames) {
            frames.written += *bytes as u64;
        }
        result
    }

    fn wait<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let limits = self.limits;
        let blocked = self.blocked.get_or_insert_with(|| Blocked {
            since: Instant::now(),
            taken: 0,
            timer: Box::pin(sleep(limits.write_timeout)),
        });
        let end = blocked.since.checked_add(limits.time_to_take(blocked.taken));
        if let Some(end) = end.filter(|end| *end != blocked.timer.deadline()) {
            blocked.timer.as_mut().reset(end);
        }
        ready!(blocked.timer.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the client takes too little of its response",
        )))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ClientIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        match &mut this.frames {
            Some(frames) => frames.poll_read(&mut this.io, context, buffer),
            None => Pin::new(&mut this.io).poll_read(context, buffer),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ClientIo<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.io).poll_write(context, data);
        self.wrote(context, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.io).poll_write_vectored(context, data);
        self.wrote(context, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    /// hyper flushes once all that it has is written: the client has caught up.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.io).poll_flush(context);
        if result.is_pending() {
            return self.wait(context);
        }
        self.blocked = None;
        result
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            match &mut this.lingering {
                Lingering::No => {
                    let result = Pin::new(&mut this.io).poll_shutdown(context);
                    if result.is_pending() {
                        return this.wait(context);
                    }
                    ready!(result)?;
                    this.lingering = Lingering::Reading { timer: Box::pin(sleep(LINGER)), read: 0 };
                }
                Lingering::Reading { timer, read } => {
                    let mut scratch = [0; 4096];
                    let mut buffer = ReadBuf::new(&mut scratch);
                    let got = Pin::new(&mut this.io).poll_read(context, &mut buffer);
                    let count = buffer.filled().len();
                    let over = match got {
                        // Nothing has come: no unread data will reset the connection.
                        Poll::Pending if *read == 0 => true,
                        Poll::Pending => {
                            ready!(timer.as_mut().poll(context));
                            true
                        }
                        Poll::Ready(Err(_)) => true,
                        Poll::Ready(Ok(())) => {
                            *read += count;
                            count == 0 || *read >= LINGER_BYTES || timer.is_elapsed()
                        }
                    };
                    if over {
                        this.lingering = Lingering::Done;
                    }
                }
                Lingering::Done => return Poll::Ready(Ok(())),
            }
        }
    }
}
