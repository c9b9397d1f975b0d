//! `ModelStreamInfer`, of Triton's protocol: each message of the stream is a call of `ModelInfer`,
//! with the stream's headers. Responses come in the order of the requests; an error is the answer
//! to its request, and the stream goes on.

use std::error::Error;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures::{StreamExt as _, stream};
use http::{HeaderMap, Request, Response, Uri, header};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Body, Frame};
use tonic::{Code, Status};

use super::receive::{MODEL_INFER, PREFIX, ReceiveError};
use crate::{ProtocolError, Room};

/// Path of the calls for streams of inferences.
pub const MODEL_STREAM_INFER: &str = "/inference.GRPCInferenceService/ModelStreamInfer";

/// Requests of a stream that are in work at the same time.
const IN_WORK: usize = 64;
/// Field `error_message` of `ModelStreamInferResponse`, and `infer_response`, as protobuf's tags.
const ERROR: u8 = 0x0a;
const RESPONSE: u8 = 0x12;

/// Answers a call of `ModelStreamInfer` by `call`, which answers calls of `ModelInfer`. No message
/// has more than `limit` bytes, or takes longer than `time` from its first byte on; while one
/// arrives its memory is asked of a `room`. A stream's idle time is for its connection to bound.
pub fn answer_stream<B, R, F>(
    request: Request<B>,
    (limit, time): (usize, Duration),
    room: impl Fn() -> R + Send + 'static,
    call: impl Fn(Request<Full<Bytes>>) -> F + Send + 'static,
) -> Response<tonic::body::Body>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
    R: Room + Send,
    F: Future<Output = Response<tonic::body::Body>> + Send + 'static,
{
    let (mut parts, body) = request.into_parts();
    parts.uri = Uri::from_static(MODEL_INFER);
    let messages = Messages { body, buffer: BytesMut::new() };
    let messages = stream::unfold(Some((messages, room)), move |state| async move {
        let (mut messages, room) = state?;
        match messages.next(limit, time, room()).await {
            Ok(message) => message.map(|message| (Ok(message), Some((messages, room)))),
            Err(status) => Some((Err(status), None)),
        }
    });
    let answers = messages.map(move |message| {
        let answering =
            message.map(|message| call(Request::from_parts(parts.clone(), Full::new(message))));
        async move { Ok::<_, Status>(answered(answering?.await).await) }
    });
    // The stream ends with its trailers, as the first error of its own does.
    let frames = answers.buffered(IN_WORK).map(|answer| match answer {
        Ok(message) => (Frame::data(message), false),
        Err(status) => (trailers(&status), true),
    });
    let end = stream::once(async { (trailers(&Status::new(Code::Ok, "")), true) });
    let frames = frames.chain(end).scan(false, |is_over, (frame, is_last)| {
        let frame = (!std::mem::replace(is_over, is_last)).then_some(Ok::<_, Status>(frame));
        std::future::ready(frame)
    });
    let mut response = Response::new(tonic::body::Body::new(StreamBody::new(frames)));
    let grpc = header::HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(header::CONTENT_TYPE, grpc);
    response
}

fn trailers(status: &Status) -> Frame<Bytes> {
    let mut trailers = HeaderMap::new();
    // A text that no header could have is left out.
    let _ = status.add_header(&mut trailers);
    Frame::trailers(trailers)
}

/// The `ModelStreamInferResponse` that says the same as a call's response, with its prefix.
async fn answered(response: Response<tonic::body::Body>) -> Bytes {
    let refused = Status::from_header_map(response.headers());
    let (status, message) = match (refused, response.into_body().collect().await) {
        (Some(refused), _) => (refused, Bytes::new()),
        (None, Ok(body)) => {
            let status = body.trailers().and_then(Status::from_header_map);
            (status.unwrap_or_else(|| Status::new(Code::Ok, "")), body.to_bytes())
        }
        (None, Err(failed)) => (failed, Bytes::new()),
    };
    match (status.code(), message.get(PREFIX..)) {
        (Code::Ok, Some(response)) => field(RESPONSE, response),
        _ => field(ERROR, status.message().as_bytes()),
    }
}

/// A message of one field, with its prefix.
fn field(tag: u8, contents: &[u8]) -> Bytes {
    let mut message = BytesMut::with_capacity(2 * PREFIX + 6 + contents.len());
    message.put_bytes(0, PREFIX);
    message.put_u8(tag);
    prost::encoding::encode_varint(contents.len() as u64, &mut message);
    message.put_slice(contents);
    let length = u32::try_from(message.len() - PREFIX).unwrap_or(u32::MAX);
    message[1..PREFIX].copy_from_slice(&length.to_be_bytes());
    message.freeze()
}

struct Messages<B> {
    body: B,
    /// Bytes that came after the last message.
    buffer: BytesMut,
}

impl<B> Messages<B>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin,
{
    /// The next message with its prefix; `None` at the end.
    async fn next(
        &mut self,
        limit: usize,
        time: Duration,
        mut room: impl Room,
    ) -> Result<Option<Bytes>, Status> {
        if self.buffer.is_empty() && !self.more(&mut room).await? {
            return Ok(None);
        }
        let whole = tokio::time::timeout(time, async {
            loop {
                if let Some([_, length @ ..]) = self.buffer.first_chunk::<PREFIX>() {
                    let length = u32::from_be_bytes(*length) as usize;
                    ensure!(length <= limit, refused(&ReceiveError::TooLarge { length, limit }));
                    if self.buffer.len() >= PREFIX + length {
                        return Ok(self.buffer.split_to(PREFIX + length).freeze());
                    }
                }
                let torn = || refused(&ReceiveError::Aborted { reason: "it ends too soon".into() });
                ensure!(self.more(&mut room).await?, torn());
            }
        });
        let late = |_| Err(refused(&ReceiveError::Timeout { limit: time }));
        whole.await.unwrap_or_else(late).map(Some)
    }

    /// Reads on; false at the end.
    async fn more(&mut self, room: &mut impl Room) -> Result<bool, Status> {
        while let Some(frame) = self.body.frame().await {
            let frame =
                frame.map_err(|error| refused(&ReceiveError::Aborted { reason: error.into() }))?;
            if let Ok(piece) = frame.into_data() {
                room.hold(self.buffer.len() + piece.len()).map_err(|full: ProtocolError| {
                    Status::resource_exhausted(crate::error_text(&full))
                })?;
                self.buffer.extend_from_slice(&piece);
                if !piece.is_empty() {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

fn refused(error: &ReceiveError) -> Status {
    Status::new(error.code(), crate::error_text(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unbounded;
    use std::convert::Infallible;

    fn framed(message: &[u8]) -> Bytes {
        let length = message.len() as u32;
        [&[0][..], &length.to_be_bytes(), message].concat().into()
    }

    /// Sends the pieces of a stream to a server that gives a message back, but for `bad`; returns
    /// the responses' fields and the status that ends the stream.
    async fn ask(pieces: Vec<Bytes>, limit: usize) -> (Vec<Bytes>, Status) {
        let pieces = pieces.into_iter().map(|piece| Ok::<_, Infallible>(Frame::data(piece)));
        let body = StreamBody::new(stream::iter(pieces));
        let call = |request: Request<Full<Bytes>>| async move {
            assert_eq!(request.uri().path(), MODEL_INFER);
            let body = request.into_body().collect().await.unwrap().to_bytes();
            match &body[PREFIX..] {
                b"bad" => Status::invalid_argument("what is bad").into_http(),
                _ => Response::new(tonic::body::Body::new(Full::new(body))),
            }
        };
        let bounds = (limit, Duration::from_secs(1));
        let response = answer_stream(Request::new(body), bounds, || Unbounded, call);
        let body = response.into_body().collect().await.unwrap();
        let status = Status::from_header_map(body.trailers().unwrap()).unwrap();
        let mut all = body.to_bytes();
        let mut fields = Vec::new();
        while !all.is_empty() {
            let length = u32::from_be_bytes(all[1..PREFIX].try_into().unwrap()) as usize;
            fields.push(all.split_to(PREFIX + length).slice(PREFIX..));
        }
        (fields, status)
    }

    #[tokio::test]
    async fn each_message_is_answered_in_order_and_an_error_is_an_answer() {
        let all: Bytes = [framed(b"one"), framed(b"bad"), framed(b"")].concat().into();
        for piece in [1, 4, 7, 100] {
            let pieces = all.chunks(piece).map(Bytes::copy_from_slice).collect();
            let (fields, status) = ask(pieces, 10).await;
            assert_eq!(fields, [&b"\x12\x03one"[..], b"\x0a\x0bwhat is bad", b"\x12\x00"]);
            assert_eq!(status.code(), Code::Ok);
        }
    }

    #[tokio::test]
    async fn a_message_that_is_too_long_or_broken_off_ends_the_stream() {
        let (fields, status) = ask(vec![framed(b"one"), framed(b"too long")], 4).await;
        assert_eq!((fields.len(), status.code()), (1, Code::OutOfRange));
        let (fields, status) = ask(vec![framed(b"one"), framed(b"two").slice(..6)], 4).await;
        assert_eq!((fields.len(), status.code()), (1, Code::InvalidArgument), "{status}");
        assert_eq!(ask(Vec::new(), 4).await.1.code(), Code::Ok);
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_does_not_go_on_ends_the_stream() {
        let first = stream::iter([Ok::<_, Infallible>(Frame::data(framed(b"one").slice(..6)))]);
        let body = StreamBody::new(first.chain(stream::pending()));
        let call = |_| async { Response::new(tonic::body::Body::empty()) };
        let bounds = (10, Duration::from_secs(1));
        let response = answer_stream(Request::new(body), bounds, || Unbounded, call);
        let body = response.into_body().collect().await.unwrap();
        let status = Status::from_header_map(body.trailers().unwrap()).unwrap();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    }
}
