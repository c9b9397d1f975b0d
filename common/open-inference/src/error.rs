//! Mistakes of messages. Their errors repeat a message's text as [`Excerpt`]s, so none is long.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::excerpt::error_text;
use crate::{Datatype, Excerpt};

pub(crate) const MAX_AXES: usize = 16;

/// A message that breaks the protocol. Sending the same bytes again fails again: none of these is
/// worth a retry, but for [`ProtocolError::NoMemory`].
#[allow(missing_docs, reason = "the messages say what variants and fields are")]
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    #[error("invalid JSON: {0}")]
    Json(String),
    #[error("the JSON is nested deeper than {limit}")]
    Deep { limit: usize },
    /// In JSON, the escapes of the text count in `length`.
    #[error("a text of {length} bytes; at most {limit} are taken")]
    LongText { length: usize, limit: usize },
    #[error("invalid JSON: a number of {length} characters; at most {limit} are taken")]
    LongNumber { length: usize, limit: usize },
    #[error("Inference-Header-Content-Length {value:?} is not a number of bytes")]
    HeaderLength { value: Excerpt },
    #[error(
        "Inference-Header-Content-Length is {header_length} but the body has only {body_length} \
            bytes"
    )]
    HeaderBeyondBody { header_length: usize, body_length: usize },
    #[error(
        "tensor {tensor:?}: unknown datatype {datatype:?}; use one of BOOL, UINT8-64, INT8-64, \
            FP16, BF16, FP32, FP64, BYTES"
    )]
    UnknownDatatype { tensor: Excerpt, datatype: Excerpt },
    #[error("tensor {tensor:?}: {axes} axes; at most {MAX_AXES} are taken")]
    Axes { tensor: Excerpt, axes: usize },
    /// The contents are counted up to the tensor with which they come to be more than `limit`.
    #[error(
        "contents of {bytes} bytes; a request to this model has at most {limit}; send fewer samples"
    )]
    Contents { bytes: usize, limit: usize },
    #[error("the requests together would hold more memory than is allowed; try again later")]
    NoMemory,
    #[error("tensor {tensor:?}: shape {shape:?} is too large")]
    ShapeOverflow { tensor: Excerpt, shape: Vec<usize> },
    #[error("tensor {tensor:?}: give either \"data\" or \"parameters\".\"binary_data_size\"")]
    MissingData { tensor: Excerpt },
    #[error("tensor {tensor:?}: has both \"data\" and \"binary_data_size\"; leave one out")]
    AmbiguousData { tensor: Excerpt },
    #[error(
        "tensor {tensor:?}: shape {shape:?} of {datatype} takes {expected} bytes, got {actual}"
    )]
    ByteCount {
        tensor: Excerpt,
        shape: Vec<usize>,
        datatype: Datatype,
        expected: usize,
        actual: usize,
    },
    #[error("tensor {tensor:?}: shape {shape:?} takes {expected} elements, got {actual}")]
    ElementCount { tensor: Excerpt, shape: Vec<usize>, expected: usize, actual: usize },
    #[error(
        "tensor {tensor:?}: binary_data_size is {announced} but only {available} binary bytes are \
            left in the body"
    )]
    BinaryTooShort { tensor: Excerpt, announced: usize, available: usize },
    #[error(
        "{left} bytes are left over after the last binary tensor; check binary_data_size of each \
         tensor"
    )]
    BinaryLeftOver { left: usize },
    /// Line and column in `mistake` count from the start of `data`.
    #[error("tensor {tensor:?}: \"data\" is not valid {datatype}: {mistake}")]
    Data { tensor: Excerpt, datatype: Datatype, mistake: String },
    #[error("tensor {tensor:?}: BYTES element {element} reaches past the tensor's end")]
    BytesElement { tensor: Excerpt, element: usize },
    #[error("tensor {tensor:?}: has datatype {actual}, expected {expected}")]
    DatatypeMismatch { tensor: Excerpt, expected: Datatype, actual: Datatype },
    #[error(
        "tensor {tensor:?}: parameter {parameter:?} is an extension that is not served; leave it \
            out"
    )]
    Extension { tensor: Excerpt, parameter: &'static str },
    #[error("tensor {tensor:?}: parameter \"classification\" must be a number of classes")]
    Classes { tensor: Excerpt },
    #[error("tensor {tensor:?}: {reason}; use the binary form")]
    NoJsonForm { tensor: Excerpt, reason: &'static str },
    #[cfg(feature = "grpc")]
    #[error("{0}")]
    Malformed(#[from] prost::DecodeError),
    #[error("the message has more than {limit} {parts}")]
    TooMany { parts: &'static str, limit: usize },
    #[error(
        "{raw} raw contents for {tensors} tensors; give one for each, or none and \"contents\" in \
            each"
    )]
    RawCount { raw: usize, tensors: usize },
    #[error("tensor {tensor:?}: has \"contents\" and raw contents; leave one out")]
    AmbiguousContents { tensor: Excerpt },
    #[error("tensor {tensor:?}: shape {shape:?} has a negative axis")]
    NegativeAxis { tensor: Excerpt, shape: Vec<i64> },
    #[error("tensor {tensor:?}: {datatype} has no typed contents; send it as raw contents")]
    RawOnly { tensor: Excerpt, datatype: Datatype },
    #[error("tensor {tensor:?}: {datatype} is sent as \"{wanted}\", not as \"{given}\"")]
    WrongContents { tensor: Excerpt, datatype: Datatype, wanted: &'static str, given: &'static str },
    #[error("tensor {tensor:?}: element {element} is {value}, not a {datatype} value")]
    OutOfRange { tensor: Excerpt, datatype: Datatype, element: usize, value: i64 },
}

/// Text of a JSON mistake that is no longer than an [`Excerpt`], with its place.
pub(crate) fn json_mistake(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match text.strip_suffix(&place) {
        Some(problem) => Excerpt::from(problem).to_string() + &place,
        None => Excerpt::from(&text).to_string(),
    }
}

/// Body of every error response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorObject {
    /// One line for the caller: what, where, and the fix.
    pub error: String,
}

impl ErrorObject {
    /// The object for `error`, in at most 1 KiB.
    pub fn of(error: &dyn fmt::Display) -> Self {
        Self { error: error_text(error) }
    }
}
