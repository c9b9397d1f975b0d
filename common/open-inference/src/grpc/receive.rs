//! Reading a call's message within bounds, before tonic sees it.
//!
//! tonic reads messages, too, but sets aside what a message says that it will be, undoes
//! compression before its output can be counted, reads on for as long as something comes, and
//! decodes on the thread that serves connections.

use std::error::Error;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Body;
use prost::Message as _;
use tonic::Code;

use crate::compression::{Coding, CodingError, read};
use crate::grpc::message::ModelInferRequest;
use crate::grpc::outline::{Outline, Part};
use crate::grpc::{Form, code_of, read_request};
use crate::{InferRequest, ProtocolError, Room, Tensor};

/// Path of the calls for inference.
pub const MODEL_INFER: &str = "/inference.GRPCInferenceService/ModelInfer";

/// Bytes before a message: whether it is compressed, and its length.
pub(super) const PREFIX: usize = 5;
/// Shorter pieces are copied together: each may hold on to a whole buffer of its connection.
const SHORT: usize = 4096;
const ENCODING: &str = "grpc-encoding";

#[allow(missing_docs, reason = "the messages say what variants and fields are")]
/// Reason why a message was not read.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// It has `length` bytes, or says so.
    #[error("the message has {length} bytes, the limit is: {limit} bytes")]
    TooLarge { length: usize, limit: usize },
    /// Worth a retry.
    #[error("the message did not arrive within {limit:?}")]
    Timeout { limit: Duration },
    #[error("there is more than one message")]
    More,
    #[error("the message broke off: {reason}")]
    Aborted { reason: Box<dyn Error + Send + Sync> },
}

impl ReceiveError {
    /// The HTTP status that says the same.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Timeout { .. } => StatusCode::REQUEST_TIMEOUT,
            Self::More | Self::Aborted { .. } => StatusCode::BAD_REQUEST,
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

/// Request for inference.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the names say what the fields are")]
pub struct Inference {
    pub model: String,
    /// Its version; empty for the one that the server chooses.
    pub version: String,
    pub request: InferRequest,
    pub form: Form,
}

/// Reads the message of a call, which has no more than `limit` bytes and takes no longer than
/// `time`, and undoes its compression (the headers say so then). Memory is asked of `room` first.
///
/// A request for inference is decoded, too, once `admit` takes its model's name and the bytes of
/// its typed contents. The service finds it among the extensions, as [`Inference`], and its message
/// is empty. A body that is no message is left to tonic, which says what is wrong with it.
///
/// # Errors
/// [`ReceiveError`], [`CodingError`] and [`ProtocolError`]; those of `admit`.
pub async fn receive<B, R, E>(
    parts: &mut Parts,
    body: B,
    limit: usize,
    time: Duration,
    mut room: R,
    admit: impl FnOnce(&R, &str, usize) -> Result<(), E> + Send + 'static,
) -> Result<(Full<Bytes>, R), E>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin,
    R: Room,
    E: From<ReceiveError> + From<CodingError> + From<ProtocolError> + Send + 'static,
{
    let (infers, headers) = (parts.uri.path() == MODEL_INFER, &mut parts.headers);
    let received = async {
        let message = collect::<_, E>(body, limit, &mut room).await?;
        headers.remove(header::CONTENT_LENGTH);
        let flag = message.first().copied();
        let name = headers.get(ENCODING).and_then(|name| name.to_str().ok());
        let coding = name.and_then(Coding::of_name).filter(|_| flag == Some(1));
        match coding {
            Some(_) => drop(headers.remove(ENCODING)),
            None if infers && flag == Some(0) => {}
            None => return Ok((None, message, room)),
        }
        let message = message.slice(PREFIX..);
        let length = message.len();
        let decoded = move |message: Bytes, held, room| {
            if !infers {
                return Ok((None, framed(&message), room));
            }
            let (inference, room) = decode(message, held, room, admit)?;
            Ok((Some(inference), framed(&[]), room))
        };
        read(coding, message, length, limit, room, decoded).await
    };
    let received = tokio::time::timeout(time, received).await;
    let late = |_| Err(E::from(ReceiveError::Timeout { limit: time }));
    let (inference, message, room) = received.unwrap_or_else(late)?;
    if let Some(inference) = inference {
        parts.extensions.insert(inference);
    }
    Ok((Full::new(message), room))
}

/// The message as it is on the wire, not compressed.
fn framed(message: &[u8]) -> Bytes {
    // No message is longer than its limit, and no limit than what a prefix can say.
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&[0][..], &length.to_be_bytes(), message].concat().into()
}

/// The body of a call in one piece, as it came: a message with its prefix, or nothing.
async fn collect<B, E>(mut body: B, limit: usize, room: &mut impl Room) -> Result<Bytes, E>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin,
    E: From<ReceiveError> + From<ProtocolError>,
{
    let (mut pieces, mut short) = (Vec::new(), BytesMut::new());
    let (mut prefix, mut length) = ([0; PREFIX], 0);
    let mut announced = None;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| ReceiveError::Aborted { reason: error.into() })?;
        let Ok(piece) = frame.into_data() else { continue };
        room.hold(length + piece.len())?;
        for (to, byte) in prefix.iter_mut().skip(length).zip(&piece) {
            *to = *byte;
        }
        length += piece.len();
        if piece.len() < SHORT {
            short.extend_from_slice(&piece);
        } else {
            pieces.extend([short.split().freeze(), piece]);
        }
        let [_, of_message @ ..] = prefix;
        announced = (length >= PREFIX).then_some(u32::from_be_bytes(of_message) as usize);
        match announced {
            Some(length) if length > limit => {
                return Err(ReceiveError::TooLarge { length, limit }.into());
            }
            Some(announced) if length > PREFIX + announced => return Err(ReceiveError::More.into()),
            _ => {}
        }
    }
    let is_whole = length == 0 || announced.is_some_and(|announced| length >= PREFIX + announced);
    ensure!(is_whole, ReceiveError::Aborted { reason: "it ends too soon".into() }.into());
    pieces.push(short.freeze());
    pieces.retain(|piece| !piece.is_empty());
    match pieces.as_mut_slice() {
        [] => Ok(Bytes::new()),
        [whole] => Ok(std::mem::take(whole)),
        pieces => Ok(pieces.concat().into()),
    }
}

fn decode<R: Room, E: From<ProtocolError>>(
    message: Bytes,
    held: usize,
    mut room: R,
    admit: impl FnOnce(&R, &str, usize) -> Result<(), E>,
) -> Result<(Inference, R), E> {
    let length = message.len();
    let outline = Outline::of(Part::Request, &message)?;
    let contents = outline.contents;
    admit(&room, &String::from_utf8_lossy(outline.model), contents)?;
    // Typed contents are there twice while they are converted.
    let held = held.saturating_add(contents.saturating_mul(2));
    room.hold(held)?;
    let mut message = ModelInferRequest::decode(message).map_err(ProtocolError::from)?;
    let model = std::mem::take(&mut message.model_name);
    let version = std::mem::take(&mut message.model_version);
    let (mut request, form) = read_request(message)?;
    if form == Form::Raw {
        room.hold(held.saturating_add(Tensor::detached_bytes(&request.inputs, length)))?;
        Tensor::detach(&mut request.inputs, length);
    }
    Ok((Inference { model, version, request, form }, room))
}

#[cfg(test)]
mod tests;
