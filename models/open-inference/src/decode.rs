//! From bodies to messages.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::{
    Datatype, InferRequest, InferResponse, Parameters, ProtocolError, RequestedOutput, Tensor, json_data,
    parameters,
};

/// Reads a request. `header_length` is the value of [`crate::HEADER_CONTENT_LENGTH`] where the message has one; without
/// it the whole body is JSON. Binary tensors are slices of `body`, unless they are a small part of it ([`Tensor::detach`]).
pub fn decode_request(body: Bytes, header_length: Option<usize>) -> Result<InferRequest, ProtocolError> {
    let (json, mut binary) = split(&body, header_length)?;
    let header: RequestHeader<'_> = serde_json::from_slice(&json).map_err(ProtocolError::Json)?;
    let mut inputs = binary.tensors(header.inputs)?;
    if header_length.is_some() {
        Tensor::detach(&mut inputs, body.len());
    }
    let outputs = header.outputs.unwrap_or_default().into_iter();
    let outputs = outputs.map(RequestedOutput::try_from).collect::<Result<_, _>>()?;
    Ok(InferRequest { id: header.id, parameters: header.parameters, inputs, outputs })
}

/// Reads a response; `header_length` as for [`decode_request`].
pub fn decode_response(body: Bytes, header_length: Option<usize>) -> Result<InferResponse, ProtocolError> {
    let (json, mut binary) = split(&body, header_length)?;
    let header: ResponseHeader<'_> = serde_json::from_slice(&json).map_err(ProtocolError::Json)?;
    Ok(InferResponse {
        model_name: header.model_name,
        model_version: header.model_version,
        id: header.id,
        parameters: header.parameters.unwrap_or_default(),
        outputs: binary.tensors(header.outputs)?,
    })
}

fn split(body: &Bytes, header_length: Option<usize>) -> Result<(Bytes, Binary), ProtocolError> {
    let header_length = header_length.unwrap_or(body.len());
    if header_length > body.len() {
        return Err(ProtocolError::HeaderBeyondBody { header_length, body_length: body.len() });
    }
    Ok((body.slice(..header_length), Binary { rest: body.slice(header_length..) }))
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
        let Some(parameters) = parameters else { return Ok(Self { name, binary_data: None }) };
        let unsupported = |parameter| Err(ProtocolError::Extension { tensor: name.clone(), parameter });
        match parameters {
            OutputParameters { classification: Some(_), .. } => unsupported("classification"),
            OutputParameters { shared_memory_region: Some(_), .. } => unsupported(SHARED_MEMORY),
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

/// The part of the body after the JSON, of which each announced tensor takes the next piece.
struct Binary {
    rest: Bytes,
}

impl Binary {
    fn tensors(&mut self, headers: Vec<TensorHeader<'_>>) -> Result<Vec<Tensor>, ProtocolError> {
        let tensors = headers.into_iter().map(|header| self.tensor(header)).collect::<Result<_, _>>()?;
        match self.rest.len() {
            0 => Ok(tensors),
            left => Err(ProtocolError::BinaryLeftOver { left }),
        }
    }

    fn tensor(&mut self, header: TensorHeader<'_>) -> Result<Tensor, ProtocolError> {
        let TensorHeader { name, datatype, shape, parameters, data } = header;
        let Ok(datatype) = datatype.parse::<Datatype>() else {
            return Err(ProtocolError::UnknownDatatype { tensor: name, datatype: datatype.into_owned() });
        };
        if parameters.as_ref().is_some_and(|parameters| parameters.shared_memory_region.is_some()) {
            return Err(ProtocolError::Extension { tensor: name, parameter: SHARED_MEMORY });
        }
        let binary_data_size = parameters.and_then(|parameters| parameters.binary_data_size);
        match (binary_data_size, data) {
            (Some(size), None) => {
                let data = self.take(&name, size)?;
                Tensor::new(name, datatype, shape, data)
            }
            (None, Some(data)) => json_data::tensor(name, datatype, shape, data.get()),
            (None, None) => Err(ProtocolError::MissingData { tensor: name }),
            (Some(_), Some(_)) => Err(ProtocolError::AmbiguousData { tensor: name }),
        }
    }

    fn take(&mut self, tensor: &str, announced: usize) -> Result<Bytes, ProtocolError> {
        let available = self.rest.len();
        if announced > available {
            return Err(ProtocolError::BinaryTooShort { tensor: tensor.to_owned(), announced, available });
        }
        Ok(self.rest.split_to(announced))
    }
}
