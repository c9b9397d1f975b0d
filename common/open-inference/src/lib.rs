//! Parapet: Open Inference Protocol v2 types and codec.
//!
//! The REST form of the protocol and its binary tensor extension, for both sides of a connection.
//! Whatever the form on the wire, a [`Tensor`] holds its contents little-endian and row-major,
//! exactly as the binary extension carries them: a binary tensor is a slice of the body it came in,
//! and only JSON tensors are converted. A body in binary form is the JSON header followed by the
//! contents of the tensors that announced a `binary_data_size`, in the header's order;
//! [`HEADER_CONTENT_LENGTH`] says where the JSON ends. Sizes that a message claims are checked
//! against the bytes that came before anything is allocated for them. Texts, lists and shapes of a
//! header are bounded while it is read, and errors repeat no more than an [`Excerpt`] of them. This
//! crate knows no sockets: the servers and clients hand bodies in and out.

/// Returns the error unless the condition holds.
macro_rules! ensure {
    ($holds:expr, $error:expr) => {
        if !$holds {
            return Err($error);
        }
    };
}

mod bounded;
#[cfg(feature = "compression")]
pub mod compression;
mod datatype;
mod decode;
mod encode;
mod error;
mod excerpt;
#[cfg(feature = "grpc")]
pub mod grpc;
mod json_data;
mod message;
mod openapi;
#[cfg(feature = "compression")]
pub mod rest;
mod room;
mod tensor;

pub use datatype::Datatype;
pub use decode::{decode_request, decode_request_within, decode_response};
pub use encode::{Encoded, Encoding, encode_inputs, encode_request, encode_response};
pub use error::{ErrorObject, ProtocolError};
pub use excerpt::{Excerpt, error_text};
pub use message::{
    InferRequest, InferResponse, ModelMetadata, Parameters, RequestedOutput, ServerMetadata,
    TensorMetadata,
};
pub use openapi::{OPENAPI_PATH, openapi};
pub use room::{Room, Unbounded};
pub use tensor::Tensor;

/// Header (lower case, as HTTP libraries want constants) that gives the length in bytes of
/// the JSON part of a body that carries binary tensors: `Inference-Header-Content-Length`
/// in the specification.
pub const HEADER_CONTENT_LENGTH: &str = "inference-header-content-length";

/// Content type of a body that is JSON alone.
pub const CONTENT_TYPE_JSON: &str = "application/json";

/// Content type of a body that carries binary tensors.
pub const CONTENT_TYPE_BINARY: &str = "application/octet-stream";

/// The name of the binary tensor extension in a server's metadata.
pub const BINARY_EXTENSION: &str = "binary_tensor_data";

/// Request parameter that asks for every output in binary form, unless the output
/// says otherwise itself.
pub const BINARY_DATA_OUTPUT: &str = "binary_data_output";
