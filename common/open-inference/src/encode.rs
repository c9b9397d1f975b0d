//! From messages to bodies.

use bytes::Bytes;
use serde::Serialize;

use crate::error::json_mistake;
use crate::json_data::JsonData;
use crate::{
    Datatype, InferRequest, InferResponse, Parameters, ProtocolError, RequestedOutput, Tensor,
};

/// Form in which a request's inputs travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// All of the body is JSON.
    Json,
    /// A JSON header, then the tensors' contents.
    Binary,
}

/// A body, ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// Bytes of the body.
    pub body: Bytes,
    /// Value for [`crate::HEADER_CONTENT_LENGTH`]; `None` when the body is JSON alone and the
    /// header must be left out.
    pub header_length: Option<usize>,
}

impl Encoded {
    /// The body's content type.
    pub fn content_type(&self) -> &'static str {
        self.header_length.map_or(crate::CONTENT_TYPE_JSON, |_| crate::CONTENT_TYPE_BINARY)
    }
}

/// Writes a request with its inputs in the given form. The form of the answer is the request's own
/// matter: see [`InferRequest::ask_binary_outputs`].
pub fn encode_request(
    request: &InferRequest,
    encoding: Encoding,
) -> Result<Encoded, ProtocolError> {
    let InferRequest { id, parameters, inputs, outputs } = request;
    encode_inputs(id.as_deref(), parameters, inputs, outputs, encoding)
}

/// Writes a request of these inputs, as [`encode_request`] does; without `outputs`, for all.
pub fn encode_inputs(
    id: Option<&str>,
    parameters: &Parameters,
    inputs: &[Tensor],
    outputs: &[RequestedOutput],
    encoding: Encoding,
) -> Result<Encoded, ProtocolError> {
    let binary = |_: &str| encoding == Encoding::Binary;
    let outputs = outputs.iter().map(|RequestedOutput { name, binary_data, classes }| {
        let (binary_data, classification) = (*binary_data, *classes);
        let says = binary_data.is_some() || classification.is_some();
        let parameters = says.then_some(OutputParameters { binary_data, classification });
        OutputHeader { name, parameters }
    });
    let header = RequestHeader {
        id,
        parameters,
        inputs: tensor_headers(inputs, binary)?,
        outputs: outputs.collect(),
    };
    write(&header, inputs, binary)
}

/// Writes a response; `binary` says for each output whether it goes in binary form.
pub fn encode_response(
    response: &InferResponse,
    binary: impl Fn(&str) -> bool,
) -> Result<Encoded, ProtocolError> {
    let header = ResponseHeader {
        model_name: &response.model_name,
        model_version: response.model_version.as_deref(),
        id: response.id.as_deref(),
        parameters: &response.parameters,
        outputs: tensor_headers(&response.outputs, &binary)?,
    };
    write(&header, &response.outputs, &binary)
}

/// Room for the JSON header beside the contents, so that most bodies are written without growing.
const HEADER_ROOM: usize = 512;

fn write(
    header: &impl Serialize,
    tensors: &[Tensor],
    binary: impl Fn(&str) -> bool,
) -> Result<Encoded, ProtocolError> {
    let contents: usize = tensors.iter().map(|tensor| tensor.data.len()).sum();
    let mut body = Vec::with_capacity(contents + HEADER_ROOM);
    serde_json::to_writer(&mut body, header)
        .map_err(|error| ProtocolError::Json(json_mistake(&error)))?;
    let mut header_length = None;
    let json_length = body.len();
    for tensor in tensors.iter().filter(|tensor| binary(&tensor.name)) {
        header_length = Some(json_length);
        body.extend_from_slice(&tensor.data);
    }
    Ok(Encoded { body: body.into(), header_length })
}

fn tensor_headers<'a>(
    tensors: &'a [Tensor],
    binary: impl Fn(&str) -> bool,
) -> Result<Vec<TensorHeader<'a>>, ProtocolError> {
    let header = |tensor: &'a Tensor| {
        let is_binary = binary(&tensor.name);
        Ok(TensorHeader {
            name: &tensor.name,
            datatype: tensor.datatype,
            shape: &tensor.shape,
            parameters: (is_binary || !tensor.parameters.is_empty()).then_some(TensorParameters {
                binary_data_size: is_binary.then_some(tensor.data.len()),
                others: &tensor.parameters,
            }),
            data: (!is_binary).then(|| JsonData::new(tensor)).transpose()?,
        })
    };
    tensors.iter().map(header).collect()
}

#[derive(Serialize)]
struct RequestHeader<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Parameters::is_empty")]
    parameters: &'a Parameters,
    inputs: Vec<TensorHeader<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    outputs: Vec<OutputHeader<'a>>,
}

#[derive(Serialize)]
struct ResponseHeader<'a> {
    model_name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    model_version: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Parameters::is_empty")]
    parameters: &'a Parameters,
    outputs: Vec<TensorHeader<'a>>,
}

#[derive(Serialize)]
struct TensorHeader<'a> {
    name: &'a str,
    datatype: Datatype,
    shape: &'a [usize],
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<TensorParameters<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<JsonData<'a>>,
}

#[derive(Serialize)]
struct TensorParameters<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    binary_data_size: Option<usize>,
    #[serde(flatten)]
    others: &'a Parameters,
}

#[derive(Serialize)]
struct OutputHeader<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<OutputParameters>,
}

#[derive(Serialize)]
struct OutputParameters {
    #[serde(skip_serializing_if = "Option::is_none")]
    binary_data: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    classification: Option<usize>,
}
