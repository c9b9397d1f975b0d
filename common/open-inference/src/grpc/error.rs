//! Errors of messages over gRPC.

use prost::DecodeError;

use crate::{Datatype, Excerpt, ProtocolError};

/// A message that breaks the protocol. Sending it again fails again: none of these is
/// worth a retry.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum MessageError {
    /// The message cannot be decoded.
    #[error("{0}")]
    Malformed(#[from] DecodeError),
    /// The message has more parts than are taken.
    #[error("the message has more than {limit} {parts}")]
    TooMany {
        /// The parts, and their remedy if there is one.
        parts: &'static str,
        /// Number that is taken.
        limit: usize,
    },
    /// A name, id or parameter is longer than is taken.
    #[error("a text of {bytes} bytes; at most {limit} are taken")]
    LongText {
        bytes: usize,
        /// The longest that is taken.
        limit: usize,
    },
    /// A mistake that REST's messages can have, too.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// Some tensors are raw and some are not.
    #[error(
        "{raw} raw contents for {tensors} tensors; give one for each, or none and \"contents\" in \
            each"
    )]
    RawCount { raw: usize, tensors: usize },
    /// A tensor has both forms.
    #[error("tensor {tensor:?}: has \"contents\" and raw contents; leave one out")]
    Ambiguous {
        /// Name of the tensor.
        tensor: Excerpt,
    },
    /// An axis of less than no length.
    #[error("tensor {tensor:?}: shape {shape:?} has a negative axis")]
    Shape {
        /// Name of the tensor.
        tensor: Excerpt,
        shape: Vec<i64>,
    },
    /// The datatype has no typed form.
    #[error("tensor {tensor:?}: {datatype} has no typed contents; send it as raw contents")]
    RawOnly {
        /// Name of the tensor.
        tensor: Excerpt,
        datatype: Datatype,
    },
    /// Contents are in another field than the datatype's.
    #[error("tensor {tensor:?}: {datatype} is sent as \"{wanted}\", not as \"{given}\"")]
    WrongContents {
        /// Name of the tensor.
        tensor: Excerpt,
        datatype: Datatype,
        wanted: &'static str,
        /// A field that has elements.
        given: &'static str,
    },
    /// A number that the datatype cannot hold.
    #[error("tensor {tensor:?}: element {element} is {value}, not a {datatype} value")]
    OutOfRange {
        /// Name of the tensor.
        tensor: Excerpt,
        datatype: Datatype,
        /// Index of the element.
        element: usize,
        value: i64,
    },
}
