//! Requests for inference, read and decoded before tonic sees them.

use std::error::Error;
use std::time::Duration;

use crate::compression::{Coding, CodingError, Reader, decode, in_turn};
use crate::{InferRequest, Tensor};
use bytes::Bytes;
use http::{HeaderMap, header};
use hyper::body::Body;
use prost::Message as _;

use crate::grpc::message::ModelInferRequest;
use crate::grpc::outline::Outline;
use crate::grpc::receive::{ENCODING, Hold, PREFIX, collect};
use crate::grpc::{Form, Message, MessageError, ReceiveError, read_request};

/// A message from this length on is decoded away from the thread that serves.
const LONG: usize = 256 * 1024;

/// Request for inference.
#[derive(Debug, Clone)]
pub struct Inference {
    /// Name of the model.
    pub model: String,
    /// Its version; empty for the one that the server chooses.
    pub version: String,
    /// Request that was decoded.
    pub request: InferRequest,
    /// Form of its tensors' contents.
    pub form: Form,
}

/// Memory for requests for inference, and the server's word on their contents.
pub trait Room: Hold {
    /// Reason for which a request is refused.
    type Error: From<ReceiveError> + From<CodingError> + From<MessageError> + Send + 'static;

    /// Takes typed contents of `bytes` bytes for a model.
    ///
    /// # Errors
    /// The model is not there, or takes less.
    fn admit(&self, model: &str, bytes: usize) -> Result<(), Self::Error>;
}

/// Call for inference whose message was received.
#[derive(Debug)]
pub struct Call<R> {
    /// Its request; `None` for a body that is no message.
    pub inference: Option<Inference>,
    /// The body for tonic: without fields if the request was decoded, else as it came, for tonic to
    /// say what is wrong.
    pub message: Message,
    /// The memory that the request holds.
    pub room: R,
}

/// Reads the message of a call for inference as [`receive`](crate::grpc::receive) does, and
/// decodes it within `room`.
///
/// # Errors
/// [`ReceiveError`], [`CodingError`] and [`MessageError`]; those of `room`.
pub async fn receive_request<B, R: Room>(
    headers: &mut HeaderMap,
    body: B,
    limit: usize,
    time: Duration,
    mut room: R,
) -> Result<Call<R>, R::Error>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let read = async {
        let mut message = collect(body, limit, &mut room).await?;
        headers.remove(header::CONTENT_LENGTH);
        let coding = message.coding(headers);
        if coding.is_none() && !message.is_plain() {
            return Ok(Call {
                inference: None,
                message,
                room,
            });
        }
        if coding.is_some() {
            headers.remove(ENCODING);
        }
        let decoding = Decoding {
            held: message.length,
            room,
        };
        let (inference, room) = decoding
            .of(coding, message.joined().slice(PREFIX..), limit)
            .await?;
        Ok(Call {
            inference: Some(inference),
            message: Message::empty(),
            room,
        })
    };
    let read = tokio::time::timeout(time, read).await;
    read.unwrap_or_else(|_| Err(ReceiveError::Timeout { limit: time }.into()))
}

/// Decodes a message.
struct Decoding<R> {
    held: usize,
    room: R,
}

impl<R: Room> Decoding<R> {
    async fn of(
        self,
        coding: Option<Coding>,
        message: Bytes,
        limit: usize,
    ) -> Result<(Inference, R), R::Error> {
        match coding {
            Some(coding) => decode(coding, message, limit, self).await,
            None if message.len() < LONG => self.read(message),
            None => {
                let failed = || {
                    Err(ReceiveError::Aborted {
                        reason: "it could not be read".into(),
                    }
                    .into())
                };
                let decoded = in_turn(message.len(), move || self.read(message)).await;
                decoded.unwrap_or_else(failed)
            }
        }
    }
}

impl<R: Room> Reader for Decoding<R> {
    type Read = (Inference, R);
    type Error = R::Error;

    fn hold(&mut self, bytes: usize) -> Result<(), R::Error> {
        self.held = self.held.saturating_add(bytes);
        if self.room.hold(self.held) {
            Ok(())
        } else {
            Err(ReceiveError::NoMemory.into())
        }
    }

    fn read(mut self, message: Bytes) -> Result<(Inference, R), R::Error> {
        let length = message.len();
        let outline = Outline::of_request(&message)?;
        let contents = outline.contents;
        self.room
            .admit(&String::from_utf8_lossy(outline.model), contents)?;
        // Typed contents are there twice while they are converted.
        self.hold(contents.saturating_mul(2))?;
        let mut message = ModelInferRequest::decode(message).map_err(MessageError::from)?;
        let (model, version) = (
            std::mem::take(&mut message.model_name),
            std::mem::take(&mut message.model_version),
        );
        let (mut request, form) = read_request(message)?;
        if form == Form::Raw {
            self.hold(Tensor::detached_bytes(&request.inputs, length))?;
            Tensor::detach(&mut request.inputs, length);
        }
        Ok((
            Inference {
                model,
                version,
                request,
                form,
            },
            self.room,
        ))
    }
}
