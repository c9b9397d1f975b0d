//! From bodies to messages.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{self, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::room::{Contents, Room, Unbounded};
use crate::{
    Datatype, Excerpt, InferRequest, InferResponse, Parameters, ProtocolError, RequestedOutput,
    Tensor, bounded, json_data,
};

/// Reads a request. `header_length` is the value of [`crate::HEADER_CONTENT_LENGTH`] where the
/// message has one; without it the whole body is JSON. Binary tensors are slices of `body`, unless
/// they are a small part of it ([`Tensor::detach`]).
pub fn decode_request(
    body: Bytes,
    header_length: Option<usize>,
) -> Result<InferRequest, ProtocolError> {
    decode_request_within(body, header_length, usize::MAX, &mut Unbounded)
}

/// Reads a request as [`decode_request`] does, with at most `limit` bytes of contents in JSON, for
/// which `room` has memory beside the body.
pub fn decode_request_within(
    body: Bytes,
    header_length: Option<usize>,
    limit: usize,
    room: &mut dyn Room,
) -> Result<InferRequest, ProtocolError> {
    let (json, binary) = split(&body, header_length)?;
    let mut contents = Contents { bytes: 0, limit, room };
    let header: RequestHeader<'_> = bounded::read(&json)?;
    let mut inputs = tensors(header.inputs, binary, &mut contents)?;
    if header_length.is_some() {
        contents.hold(Tensor::detached_bytes(&inputs, body.len()))?;
        Tensor::detach(&mut inputs, body.len());
    }
    let outputs = header.outputs.unwrap_or_default().into_iter();
    Ok(InferRequest {
        id: header.id,
        parameters: header.parameters,
        inputs,
        outputs: outputs.map(requested_output).collect::<Result<_, _>>()?,
    })
}

/// Reads a response; `header_length` as for [`decode_request`].
pub fn decode_response(
    body: Bytes,
    header_length: Option<usize>,
) -> Result<InferResponse, ProtocolError> {
    let (json, binary) = split(&body, header_length)?;
    let header: ResponseHeader<'_> = bounded::read(&json)?;
    let mut contents = Contents { bytes: 0, limit: usize::MAX, room: &mut Unbounded };
    Ok(InferResponse {
        model_name: header.model_name,
        model_version: header.model_version,
        id: header.id,
        parameters: header.parameters.unwrap_or_default(),
        outputs: tensors(header.outputs, binary, &mut contents)?,
    })
}

/// The header, and the body after it, of which each announced tensor takes the next piece.
fn split(body: &Bytes, header_length: Option<usize>) -> Result<(Bytes, Bytes), ProtocolError> {
    let header_length = header_length.unwrap_or(body.len());
    let body_length = body.len();
    let beyond = ProtocolError::HeaderBeyondBody { header_length, body_length };
    ensure!(header_length <= body_length, beyond);
    Ok((body.slice(..header_length), body.slice(header_length..)))
}

#[derive(Deserialize)]
struct RequestHeader<'a> {
    id: Option<String>,
    #[serde(default, deserialize_with = "parameters")]
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

#[derive(Deserialize, Default)]
struct OutputParameters {
    binary_data: Option<bool>,
    classification: Option<usize>,
    /// An answer without it would not be what the client asked for.
    shared_memory_region: Option<IgnoredAny>,
}

/// Reads parameters of a request. Nothing is built of one that is an array or an object, which
/// could take many times the bytes that it has in JSON.
fn parameters<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Parameters, D::Error> {
    let entries = Option::<BTreeMap<String, &RawValue>>::deserialize(deserializer)?;
    let entry = |(name, value): (String, &RawValue)| Ok((name, parameter(value)?));
    entries.unwrap_or_default().into_iter().map(entry).collect()
}

fn parameter<E: de::Error>(value: &RawValue) -> Result<serde_json::Value, E> {
    let is_plain = !value.get().starts_with(['[', '{']);
    ensure!(is_plain, E::custom("a parameter is a string, a number or a boolean"));
    bounded::parse(value.get().as_bytes()).map_err(E::custom)
}

fn requested_output(header: OutputHeader) -> Result<RequestedOutput, ProtocolError> {
    let OutputHeader { name, parameters } = header;
    let asked = parameters.unwrap_or_default();
    ensure!(asked.shared_memory_region.is_none(), shared_memory(&name));
    Ok(RequestedOutput {
        name,
        binary_data: asked.binary_data,
        classes: asked.classification.filter(|classes| *classes > 0),
    })
}

pub(crate) const SHARED_MEMORY: &str = "shared_memory_region";

fn shared_memory(tensor: &str) -> ProtocolError {
    ProtocolError::Extension { tensor: tensor.into(), parameter: SHARED_MEMORY }
}

/// `data` stays unparsed here: fields come in any order, and how to read it depends on `datatype`.
#[derive(Deserialize)]
struct TensorHeader<'a> {
    name: String,
    #[serde(borrow)]
    datatype: Cow<'a, str>,
    shape: Vec<usize>,
    parameters: Option<TensorParameters>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

#[derive(Default)]
struct TensorParameters {
    binary_data_size: Option<usize>,
    shared_memory_region: Option<IgnoredAny>,
    others: Parameters,
}

impl<'de> Deserialize<'de> for TensorParameters {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(TensorParametersVisitor)
    }
}

struct TensorParametersVisitor;

impl<'de> Visitor<'de> for TensorParametersVisitor {
    type Value = TensorParameters;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of parameters")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut parameters = TensorParameters::default();
        while let Some(name) = entries.next_key::<Cow<'de, str>>()? {
            match name.as_ref() {
                "binary_data_size" => parameters.binary_data_size = entries.next_value()?,
                SHARED_MEMORY => parameters.shared_memory_region = entries.next_value()?,
                _ => {
                    parameters.others.insert(name.into_owned(), parameter(entries.next_value()?)?);
                }
            }
        }
        Ok(parameters)
    }
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
    let TensorHeader { name, datatype, shape, parameters, data } = header;
    let tensor = || Excerpt::from(&name);
    let datatype = Datatype::of_tensor(&name, &datatype)?;
    let parameters = parameters.unwrap_or_default();
    ensure!(parameters.shared_memory_region.is_none(), shared_memory(&name));
    let read = match (parameters.binary_data_size, data) {
        (Some(announced), None) => {
            let available = binary.len();
            ensure!(
                announced <= available,
                ProtocolError::BinaryTooShort { tensor: tensor(), announced, available }
            );
            Tensor::new(name, datatype, shape, binary.split_to(announced))
        }
        (None, Some(data)) => json_data::tensor(contents, name, datatype, shape, data.get()),
        (None, None) => return Err(ProtocolError::MissingData { tensor: tensor() }),
        (Some(_), Some(_)) => return Err(ProtocolError::AmbiguousData { tensor: tensor() }),
    };
    Ok(Tensor { parameters: parameters.others, ..read? })
}
