//! Mistakes of messages. Their errors repeat a message's text as [`Excerpt`]s, so that none is
//! long.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::bounded::MAX_AXES;
use crate::excerpt::error_text;
use crate::{Datatype, Excerpt};

/// A message that breaks the protocol. Sending the same bytes again fails again: none of these is
/// worth a retry, but for [`ProtocolError::NoMemory`].
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum ProtocolError {
    /// The JSON part is malformed, lacks a required field, or has a field of the wrong type.
    #[error("invalid JSON: {0}")]
    Json(#[source] JsonError),
    /// The JSON part has values within values within values.
    #[error("the JSON is nested deeper than {limit}")]
    Deep {
        /// The deepest that is taken.
        limit: usize,
    },
    /// The JSON part has a long text where no tensor's data are.
    #[error("invalid JSON: a text of {length} bytes; at most {limit} are taken")]
    LongText {
        /// Bytes of the text, with its escapes.
        length: usize,
        /// Bytes that are taken, without them.
        limit: usize,
    },
    /// The JSON part has a long number.
    #[error("invalid JSON: a number of {length} characters; at most {limit} are taken")]
    LongNumber {
        /// Characters of the number.
        length: usize,
        /// Characters that are taken.
        limit: usize,
    },
    /// `Inference-Header-Content-Length` reaches past the end of the body.
    #[error(
        "Inference-Header-Content-Length is {header_length} but the body has only {body_length} \
            bytes"
    )]
    HeaderBeyondBody {
        header_length: usize,
        /// Bytes in the body.
        body_length: usize,
    },
    /// The tensor's datatype is none of the protocol's.
    #[error(
        "tensor {tensor:?}: unknown datatype {datatype:?}; use one of BOOL, UINT8-64, INT8-64, \
            FP16, BF16, FP32, FP64, BYTES"
    )]
    UnknownDatatype {
        /// Name of the tensor.
        tensor: Excerpt,
        datatype: Excerpt,
    },
    /// The shape has more axes than are taken.
    #[error("tensor {tensor:?}: {axes} axes; at most {MAX_AXES} are taken")]
    Axes {
        /// Name of the tensor.
        tensor: Excerpt,
        /// Axes of the shape.
        axes: usize,
    },
    /// The tensors' contents are more than the model takes.
    #[error(
        "contents of {bytes} bytes; a request to this model has at most {limit}; send fewer samples"
    )]
    Contents {
        /// Bytes of the contents, up to the tensor with which they come to be more.
        bytes: usize,
        limit: usize,
    },
    /// All requests together hold as much memory as they may. Worth a retry.
    #[error("the requests together would hold more memory than is allowed; try again later")]
    NoMemory,
    /// The shape's element or byte count does not fit the address space.
    #[error("tensor {tensor:?}: shape {shape:?} is too large")]
    ShapeOverflow {
        /// Name of the tensor.
        tensor: Excerpt,
        shape: Vec<usize>,
    },
    /// The tensor has neither `data` nor `parameters.binary_data_size`.
    #[error("tensor {tensor:?}: give either \"data\" or \"parameters\".\"binary_data_size\"")]
    MissingData {
        /// Name of the tensor.
        tensor: Excerpt,
    },
    /// The tensor has both `data` and `parameters.binary_data_size`.
    #[error("tensor {tensor:?}: has both \"data\" and \"binary_data_size\"; leave one out")]
    AmbiguousData {
        /// Name of the tensor.
        tensor: Excerpt,
    },
    /// Shape times element size differs from the bytes given.
    #[error(
        "tensor {tensor:?}: shape {shape:?} of {datatype} takes {expected} bytes, got {actual}"
    )]
    ByteCount {
        /// Name of the tensor.
        tensor: Excerpt,
        shape: Vec<usize>,
        datatype: Datatype,
        /// Bytes that shape and datatype make.
        expected: usize,
        actual: usize,
    },
    /// The shape's element count differs from the elements given.
    #[error("tensor {tensor:?}: shape {shape:?} takes {expected} elements, got {actual}")]
    ElementCount {
        /// Name of the tensor.
        tensor: Excerpt,
        shape: Vec<usize>,
        /// Elements that the shape makes.
        expected: usize,
        actual: usize,
    },
    /// An announced binary tensor reaches past the end of the body.
    #[error(
        "tensor {tensor:?}: binary_data_size is {announced} but only {available} binary bytes are \
            left in the body"
    )]
    BinaryTooShort {
        /// Name of the tensor.
        tensor: Excerpt,
        /// Its `binary_data_size`.
        announced: usize,
        /// Bytes left in the body.
        available: usize,
    },
    /// Bytes are left after the last announced binary tensor.
    #[error(
        "{left} bytes are left over after the last binary tensor; check binary_data_size of each \
         tensor"
    )]
    BinaryLeftOver { left: usize },
    /// `data` is not an array of what the datatype asks for, or a number lies outside
    /// the datatype's range.
    #[error("tensor {tensor:?}: \"data\" is not valid {datatype}: {source}")]
    Data {
        /// Name of the tensor.
        tensor: Excerpt,
        datatype: Datatype,
        /// Mistake; line and column count from the start of `data`.
        source: JsonError,
    },
    /// A BYTES tensor whose element lengths do not add up to its contents.
    #[error("tensor {tensor:?}: BYTES element {element} reaches past the tensor's end")]
    BytesElement {
        /// Name of the tensor.
        tensor: Excerpt,
        /// Index of the element.
        element: usize,
    },
    /// The contents were read as another type than they are.
    #[error("tensor {tensor:?}: has datatype {actual}, expected {expected}")]
    DatatypeMismatch {
        /// Name of the tensor.
        tensor: Excerpt,
        expected: Datatype,
        actual: Datatype,
    },
    /// The message asks for an extension of the protocol that is not spoken here.
    #[error(
        "tensor {tensor:?}: parameter {parameter:?} is an extension that is not served; leave it \
            out"
    )]
    Extension {
        /// Name of the tensor.
        tensor: Excerpt,
        parameter: &'static str,
    },
    /// JSON cannot carry the tensor.
    #[error("tensor {tensor:?}: {reason}; use the binary form")]
    NoJsonForm {
        /// Name of the tensor.
        tensor: Excerpt,
        reason: &'static str,
    },
}

/// Mistake in JSON, and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonError {
    problem: Excerpt,
    line: usize,
    column: usize,
}

impl From<serde_json::Error> for JsonError {
    fn from(error: serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        let text = error.to_string();
        let place = format!(" at line {line} column {column}");
        Self {
            problem: text.strip_suffix(&place).unwrap_or(&text).into(),
            line,
            column,
        }
    }
}

impl fmt::Display for JsonError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            problem,
            line,
            column,
        } = self;
        match line {
            0 => write!(formatter, "{problem}"),
            line => write!(formatter, "{problem} at line {line} column {column}"),
        }
    }
}

impl std::error::Error for JsonError {}

/// Body of every error response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorObject {
    /// One line for the caller: what, where, and the fix.
    pub error: String,
}

impl ErrorObject {
    /// The object for `error`, in at most 1 KiB.
    pub fn of(error: &dyn fmt::Display) -> Self {
        Self {
            error: error_text(error),
        }
    }
}
