//! Reading a call's message within bounds, before tonic sees it.
//!
//! tonic reads messages, too, but sets aside what a message says that it will be, undoes
//! compression before its output can be counted, reads on for as long as something comes, and
//! decodes on the thread that serves connections.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::compression::{Coding, CodingError, Reader, decode};
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, SizeHint};
use tonic::Code;

use crate::grpc::code_of;

/// Reason why a message was not read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum ReceiveError {
    /// The message is longer than allowed, or says so.
    #[error("the message has {length} bytes, the limit is: {limit} bytes")]
    TooLarge {
        /// Bytes that it has, or says to have.
        length: usize,
        limit: usize,
    },
    /// The message did not arrive in time. Worth a retry.
    #[error("the message did not arrive within {limit:?}")]
    Timeout { limit: Duration },
    /// All messages together hold as much memory as they may. Worth a retry.
    #[error("all requests' messages together would be larger than may be; try again later")]
    NoMemory,
    /// There is more than the one message that a call has.
    #[error("there is more than one message")]
    More,
    /// The stream ended in the middle of the message, or its connection broke.
    #[error("the message broke off: {reason}")]
    Aborted {
        reason: Box<dyn Error + Send + Sync>,
    },
    /// The compression cannot be undone.
    #[error(transparent)]
    Coding(#[from] CodingError),
}

impl ReceiveError {
    /// The HTTP status that says the same.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Timeout { .. } => StatusCode::REQUEST_TIMEOUT,
            Self::NoMemory => StatusCode::SERVICE_UNAVAILABLE,
            Self::More | Self::Aborted { .. } => StatusCode::BAD_REQUEST,
            Self::Coding(error) => error.status(),
        }
    }

    /// The code that tells the client; of a message that is too large that which tonic gives it.
    pub fn code(&self) -> Code {
        match self {
            Self::TooLarge { .. } => Code::OutOfRange,
            other => code_of(other.status()),
        }
    }
}

/// Bytes before a message: whether it is compressed, and its length.
pub(crate) const PREFIX: usize = 5;
/// Pieces that are shorter are copied together: each may hold on to a whole buffer
/// of its connection.
const SHORT: usize = 4096;
pub(crate) const ENCODING: &str = "grpc-encoding";

/// Memory that all messages share.
pub trait Hold: Send + 'static {
    /// Sets aside `bytes` bytes in all for a message and for what it decodes to, unless there
    /// are no more.
    fn hold(&mut self, bytes: usize) -> bool;
}

/// Reads the message of a call, which has no more than `limit` bytes and takes no longer than
/// `time`, and undoes its compression (the headers say so then). Memory is asked of `held` first. A
/// body that is no message is left to tonic, which says what is wrong with it.
///
/// # Errors
/// [`ReceiveError`].
pub async fn receive<B, H: Hold>(
    headers: &mut HeaderMap,
    body: B,
    limit: usize,
    time: Duration,
    mut held: H,
) -> Result<(Message, H), ReceiveError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let read = async {
        let mut message = collect(body, limit, &mut held).await?;
        headers.remove(header::CONTENT_LENGTH);
        let Some(coding) = message.coding(headers) else {
            return Ok((message, held));
        };
        headers.remove(ENCODING);
        let unpacked = Unpacked {
            length: message.length,
            held,
        };
        decode(coding, message.joined().slice(PREFIX..), limit, unpacked).await
    };
    let read = tokio::time::timeout(time, read).await;
    read.unwrap_or(Err(ReceiveError::Timeout { limit: time }))
}

/// Takes a message that was compressed.
struct Unpacked<H> {
    /// Its length when it was.
    length: usize,
    held: H,
}

impl<H: Hold> Reader for Unpacked<H> {
    type Read = (Message, H);
    type Error = ReceiveError;

    fn hold(&mut self, bytes: usize) -> Result<(), ReceiveError> {
        if self.held.hold(self.length + PREFIX + bytes) {
            Ok(())
        } else {
            Err(ReceiveError::NoMemory)
        }
    }

    fn read(self, message: Bytes) -> Result<(Message, H), ReceiveError> {
        Ok((Message::of(message), self.held))
    }
}

/// The body of a call, as it came.
pub(crate) async fn collect<B>(
    mut body: B,
    limit: usize,
    held: &mut impl Hold,
) -> Result<Message, ReceiveError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let mut message = Message::default();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| ReceiveError::Aborted {
            reason: error.into(),
        })?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        if !held.hold(message.length + data.len()) {
            return Err(ReceiveError::NoMemory);
        }
        message.push(data);
        match message.announced() {
            Some(length) if length > limit => return Err(ReceiveError::TooLarge { length, limit }),
            Some(length) if message.length > PREFIX + length => return Err(ReceiveError::More),
            _ => {}
        }
    }
    if message.length > 0
        && message
            .announced()
            .is_none_or(|length| message.length < PREFIX + length)
    {
        return Err(ReceiveError::Aborted {
            reason: "it ends too soon".into(),
        });
    }
    message.finish();
    Ok(message)
}

/// A body with one message, in the pieces in which it came.
#[derive(Debug, Default)]
pub struct Message {
    pieces: VecDeque<Bytes>,
    /// Short pieces that come after those.
    short: BytesMut,
    pub(crate) length: usize,
    prefix: [u8; PREFIX],
}

impl Message {
    /// A message without fields.
    pub(crate) fn empty() -> Self {
        Self::of(Bytes::new())
    }

    /// With its prefix.
    fn of(message: Bytes) -> Self {
        let mut prefix = BytesMut::with_capacity(PREFIX);
        prefix.put_u8(0);
        // No message is longer than its limit, and no limit than what a prefix can say.
        prefix.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
        let mut this = Self::default();
        this.push(prefix.freeze());
        this.push(message);
        this.finish();
        this
    }

    fn push(&mut self, piece: Bytes) {
        for (at, byte) in (self.length..PREFIX).zip(piece.iter()) {
            self.prefix[at] = *byte;
        }
        self.length += piece.len();
        if piece.len() < SHORT {
            self.short.extend_from_slice(&piece);
        } else {
            self.finish();
            self.pieces.push_back(piece);
        }
    }

    fn finish(&mut self) {
        if !self.short.is_empty() {
            self.pieces.push_back(self.short.split().freeze());
        }
    }

    /// Its length as its prefix says.
    fn announced(&self) -> Option<usize> {
        let mut length = self.prefix.get(1..).filter(|_| self.length >= PREFIX)?;
        usize::try_from(length.get_u32()).ok()
    }

    /// Returns whether its prefix says that it is not compressed.
    pub(crate) fn is_plain(&self) -> bool {
        self.length >= PREFIX && self.prefix.first() == Some(&0)
    }

    /// Its compression, if it has one that is known.
    pub(crate) fn coding(&self, headers: &HeaderMap) -> Option<Coding> {
        let is_compressed = self.length >= PREFIX && self.prefix.first() == Some(&1);
        let name = headers.get(ENCODING).filter(|_| is_compressed)?;
        Coding::of_name(name.to_str().ok()?)
    }

    /// Takes it whole, with its prefix.
    pub(crate) fn joined(&mut self) -> Bytes {
        if self.pieces.len() <= 1 {
            return self.pieces.pop_front().unwrap_or_default();
        }
        let mut whole = BytesMut::with_capacity(self.length);
        self.pieces
            .drain(..)
            .for_each(|piece| whole.extend_from_slice(&piece));
        whole.freeze()
    }
}

impl Body for Message {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.pieces.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.pieces.iter().map(|piece| piece.len() as u64).sum())
    }
}

#[cfg(test)]
mod tests;
