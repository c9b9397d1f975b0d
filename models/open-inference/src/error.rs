//! What a message can do wrong.

use serde::{Deserialize, Serialize};

use crate::Datatype;

/// A message that breaks the protocol. Sending the same bytes again fails again: none of these is worth a retry.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    /// The JSON part is malformed, lacks a required field, or has a field of the wrong type.
    #[error("invalid JSON: {0}")]
    Json(#[source] serde_json::Error),
    /// `Inference-Header-Content-Length` reaches past the end of the body.
    #[error("Inference-Header-Content-Length is {header_length} but the body has only {body_length} bytes")]
    HeaderBeyondBody {
        /// The header's value.
        header_length: usize,
        /// Bytes in the body.
        body_length: usize,
    },
    /// The tensor's datatype is none of the protocol's.
    #[error(
        "tensor {tensor:?}: unknown datatype {datatype:?}; use one of BOOL, UINT8-64, INT8-64, FP16, BF16, FP32, FP64, BYTES"
    )]
    UnknownDatatype {
        /// Name of the tensor.
        tensor: String,
        /// What was given.
        datatype: String,
    },
    /// The shape's element or byte count does not fit the address space.
    #[error("tensor {tensor:?}: shape {shape:?} is too large")]
    ShapeOverflow {
        /// Name of the tensor.
        tensor: String,
        /// The shape.
        shape: Vec<usize>,
    },
    /// The tensor has neither `data` nor `parameters.binary_data_size`.
    #[error("tensor {tensor:?}: give either \"data\" or \"parameters\".\"binary_data_size\"")]
    MissingData {
        /// Name of the tensor.
        tensor: String,
    },
    /// The tensor has both `data` and `parameters.binary_data_size`.
    #[error("tensor {tensor:?}: has both \"data\" and \"binary_data_size\"; leave one out")]
    AmbiguousData {
        /// Name of the tensor.
        tensor: String,
    },
    /// Shape times element size differs from the bytes given.
    #[error("tensor {tensor:?}: shape {shape:?} of {datatype} takes {expected} bytes, got {actual}")]
    ByteCount {
        /// Name of the tensor.
        tensor: String,
        /// Its shape.
        shape: Vec<usize>,
        /// Its datatype.
        datatype: Datatype,
        /// Bytes that shape and datatype make.
        expected: usize,
        /// Bytes given.
        actual: usize,
    },
    /// The shape's element count differs from the elements given.
    #[error("tensor {tensor:?}: shape {shape:?} takes {expected} elements, got {actual}")]
    ElementCount {
        /// Name of the tensor.
        tensor: String,
        /// Its shape.
        shape: Vec<usize>,
        /// Elements that the shape makes.
        expected: usize,
        /// Elements given.
        actual: usize,
    },
    /// An announced binary tensor reaches past the end of the body.
    #[error(
        "tensor {tensor:?}: binary_data_size is {announced} but only {available} binary bytes are left in the body"
    )]
    BinaryTooShort {
        /// Name of the tensor.
        tensor: String,
        /// Its `binary_data_size`.
        announced: usize,
        /// Bytes left in the body.
        available: usize,
    },
    /// Bytes are left after the last announced binary tensor.
    #[error("{left} bytes are left over after the last binary tensor; check binary_data_size of each tensor")]
    BinaryLeftOver {
        /// How many.
        left: usize,
    },
    /// `data` is not an array of what the datatype asks for, or a number lies outside the datatype's range.
    #[error("tensor {tensor:?}: \"data\" is not valid {datatype}: {source}")]
    Data {
        /// Name of the tensor.
        tensor: String,
        /// Its datatype.
        datatype: Datatype,
        /// What is wrong; line and column count from the start of `data`.
        source: serde_json::Error,
    },
    /// A BYTES tensor whose element lengths do not add up to its contents.
    #[error("tensor {tensor:?}: BYTES element {element} reaches past the tensor's end")]
    BytesElement {
        /// Name of the tensor.
        tensor: String,
        /// Index of the element.
        element: usize,
    },
    /// The contents were read as another type than they are.
    #[error("tensor {tensor:?}: has datatype {actual}, expected {expected}")]
    DatatypeMismatch {
        /// Name of the tensor.
        tensor: String,
        /// What the reader wants.
        expected: Datatype,
        /// What the tensor has.
        actual: Datatype,
    },
    /// The message asks for an extension of the protocol that is not spoken here.
    #[error("tensor {tensor:?}: parameter {parameter:?} is an extension that is not served; leave it out")]
    Extension {
        /// Name of the tensor.
        tensor: String,
        /// The parameter.
        parameter: &'static str,
    },
    /// JSON cannot carry the tensor.
    #[error("tensor {tensor:?}: {reason}; use the binary form")]
    NoJsonForm {
        /// Name of the tensor.
        tensor: String,
        /// Why not.
        reason: &'static str,
    },
}

/// Body of every error response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorObject {
    /// One line for the caller: what, where, and the fix.
    pub error: String,
}
