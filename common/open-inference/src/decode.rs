//! From bodies to messages.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::contents::Contents;
use crate::{
    Datatype, Excerpt, InferRequest, InferResponse, Parameters, ProtocolError, RequestedOutput,
    Tensor, bounded, json_data, parameters,
};

/// Memory for what a body decodes to, asked for before it is set aside.
pub trait Room {
    /// Bytes of contents that one request may have.
    fn max_contents(&self) -> usize;

    /// Sets aside `bytes` bytes in all beside the body, unless there are no more.
    fn hold(&mut self, bytes: usize) -> bool;
}

/// Room without a bound.
struct Unbounded;

impl Room for Unbounded {
    fn max_contents(&self) -> usize {
        usize::MAX
    }

    fn hold(&mut self, _: usize) -> bool {
        true
    }
}

/// Reads a request. `header_length` is the value of [`crate::HEADER_CONTENT_LENGTH`] where the
/// message has one; without it the whole body is JSON. Binary tensors are slices of `body`, unless
/// they are a small part of it ([`Tensor::detach`]).
pub fn decode_request(
    body: Bytes,
    header_length: Option<usize>,
) -> Result<InferRequest, ProtocolError> {
    decode_request_within(body, header_length, &mut Unbounded)
}

/// Reads a request as [`decode_request`] does, within `room`.
///
/// # Errors
/// [`ProtocolError`].
pub fn decode_request_within(
    body: Bytes,
    header_length: Option<usize>,
    room: &mut dyn Room,
) -> Result<InferRequest, ProtocolError> {
    let (json, binary) = split(&body, header_length)?;
    let mut contents = Contents::of(room);
    let header: RequestHeader<'_> = bounded::read(&json)?;
    let mut inputs = tensors(header.inputs, binary, &mut contents)?;
    if header_length.is_some() {
        contents.hold(Tensor::detached_bytes(&inputs, body.len()))?;
        Tensor::detach(&mut inputs, body.len());
    }
    let outputs = header.outputs.unwrap_or_default().into_iter();
    let outputs = outputs
        .map(RequestedOutput::try_from)
        .collect::<Result<_, _>>()?;
    Ok(InferRequest {
        id: header.id,
        parameters: header.parameters,
        inputs,
        outputs,
    })
}

/// Reads a response; `header_length` as for [`decode_request`].
pub fn decode_response(
    body: Bytes,
    header_length: Option<usize>,
) -> Result<InferResponse, ProtocolError> {
    let (json, binary) = split(&body, header_length)?;
    let header: ResponseHeader<'_> = bounded::read(&json)?;
    Ok(InferResponse {
        model_name: header.model_name,
        model_version: header.model_version,
        id: header.id,
        parameters: header.parameters.unwrap_or_default(),
        outputs: tensors(header.outputs, binary, &mut Contents::of(&mut Unbounded))?,
    })
}

/// The header, and the part of the body after it, of which each announced tensor takes
/// the next piece.
fn split(body: &Bytes, header_length: Option<usize>) -> Result<(Bytes, Bytes), ProtocolError> {
    let header_length = header_length.unwrap_or(body.len());
    if header_length > body.len() {
        return Err(ProtocolError::HeaderBeyondBody {
            header_length,
            body_length: body.len(),
        });
    }
    Ok((body.slice(..header_length), body.slice(header_length..)))
}

#[derive(Deserialize)]
struct RequestHeader<'a> {
    id: Option<String>,
    #[serde(default, deserialize_with = "parameters::of_request")]
    parameters: Parameters,
    #[serde(borrow)]
    inputs: Vec<TensorHeader<'a>>,
    outputs: Option<Vec<OutputHeader>>,
}

#[derive(Deserialize)]
struct ResponseHeader<'a> {
    model_name: String,
    model_version: Option<String>,
    id: Option<String>,
    parameters: Option<Parameters>,
    #[serde(borrow)]
    outputs: Vec<TensorHeader<'a>>,
}

#[derive(Deserialize)]
struct OutputHeader {
    name: String,
    parameters: Option<OutputParameters>,
}

#[derive(Deserialize)]
struct OutputParameters {
    binary_data: Option<bool>,
    /// Triton's extensions: an answer without them would not be what the client asked for.
    classification: Option<IgnoredAny>,
    shared_memory_region: Option<IgnoredAny>,
}

impl TryFrom<OutputHeader> for RequestedOutput {
    type Error = ProtocolError;

    fn try_from(header: OutputHeader) -> Result<Self, ProtocolError> {
        let OutputHeader { name, parameters } = header;
        let Some(parameters) = parameters else {
            return Ok(Self {
                name,
                binary_data: None,
            });
        };
        let tensor = Excerpt::from(&name);
        let unsupported = |parameter| Err(ProtocolError::Extension { tensor, parameter });
        match parameters {
            OutputParameters {
                classification: Some(_),
                ..
            } => unsupported("classification"),
            OutputParameters {
                shared_memory_region: Some(_),
                ..
            } => unsupported(SHARED_MEMORY),
            OutputParameters { binary_data, .. } => Ok(Self { name, binary_data }),
        }
    }
}

const SHARED_MEMORY: &str = "shared_memory_region";

/// `data` stays unparsed here: fields come in any order, and how to read it depends on `datatype`.
#[derive(Deserialize)]
struct TensorHeader<'a> {
    name: String,
    #[serde(borrow)]
    datatype: Cow<'a, str>,
    #[serde(deserialize_with = "bounded::shape")]
    shape: Vec<usize>,
    parameters: Option<TensorParameters>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct TensorParameters {
    binary_data_size: Option<usize>,
    shared_memory_region: Option<IgnoredAny>,
}

fn tensors(
    headers: Vec<TensorHeader<'_>>,
    mut binary: Bytes,
    contents: &mut Contents<'_>,
) -> Result<Vec<Tensor>, ProtocolError> {
    let tensor = |header| tensor(header, &mut binary, contents);
    let tensors = headers.into_iter().map(tensor).collect::<Result<_, _>>()?;
    match binary.len() {
        0 => Ok(tensors),
        left => Err(ProtocolError::BinaryLeftOver { left }),
    }
}

fn tensor(
    header: TensorHeader<'_>,
    binary: &mut Bytes,
    contents: &mut Contents<'_>,
) -> Result<Tensor, ProtocolError> {
    let TensorHeader {
        name,
        datatype,
        shape,
        parameters,
        data,
    } = header;
    let tensor = || Excerpt::from(&name);
    let Ok(datatype) = datatype.parse::<Datatype>() else {
        let datatype = Excerpt::from(datatype.as_ref());
        return Err(ProtocolError::UnknownDatatype {
            tensor: tensor(),
            datatype,
        });
    };
    if parameters
        .as_ref()
        .is_some_and(|parameters| parameters.shared_memory_region.is_some())
    {
        return Err(ProtocolError::Extension {
            tensor: tensor(),
            parameter: SHARED_MEMORY,
        });
    }
    let binary_data_size = parameters.and_then(|parameters| parameters.binary_data_size);
    match (binary_data_size, data) {
        (Some(announced), None) => {
            let available = binary.len();
            if announced > available {
                return Err(ProtocolError::BinaryTooShort {
                    tensor: tensor(),
                    announced,
                    available,
                });
            }
            Tensor::new(name, datatype, shape, binary.split_to(announced))
        }
        (None, Some(data)) => json_data::tensor(contents, name, datatype, shape, data.get()),
        (None, None) => Err(ProtocolError::MissingData { tensor: tensor() }),
        (Some(_), Some(_)) => Err(ProtocolError::AmbiguousData { tensor: tensor() }),
    }
}
