//! Open Inference Protocol v2 over gRPC, for both sides of a connection.
//!
//! [`message`] has the messages of `inference.GRPCInferenceService`; [`InferenceClient`] and
//! [`InferenceServer`] are generated with them. [`read_request`] and [`write_request`], [`read_response`] and
//! [`write_response`] turn messages into the types that the REST form has too: contents in raw form
//! are passed on without a copy, typed contents are converted. [`receive`] reads a call's message
//! within bounds, [`answer_stream`] those of a stream; [`code_of`] gives the gRPC code of an error
//! that has an HTTP status, so that errors are classified in one place, whatever the protocol.

use tonic::codec::CompressionEncoding;

mod contents;
mod convert;
pub mod message;
mod outline;
mod receive;
mod stream;
mod wire;

pub use convert::{Form, read_request, read_response, write_request, write_response};
pub use receive::{Inference, MODEL_INFER, ReceiveError, receive};
pub use stream::{MODEL_STREAM_INFER, answer_stream};
pub use wire::{code_of, status_of, timeout_of};

/// Client of the service.
pub use message::grpc_inference_service_client::GrpcInferenceServiceClient as InferenceClient;
/// Trait that a server implements, and the HTTP service made of it.
pub use message::grpc_inference_service_server::{
    GrpcInferenceService as InferenceService, GrpcInferenceServiceServer as InferenceServer,
};

/// The service and its messages, as a `FileDescriptorSet` of protobuf: for reflection. It is made of
/// `proto/open_inference.proto`.
pub const DESCRIPTORS: &[u8] = include_bytes!("../../proto/open_inference.bin");

/// Answer of a server to one call.
pub type Answer<T> = Result<tonic::Response<T>, tonic::Status>;

/// The HTTP service of a server whose messages come within their bounds ([`receive`]), and with
/// what they were compressed with undone: tonic only says what that may be.
pub fn serve<T: InferenceService>(service: T) -> InferenceServer<T> {
    InferenceServer::new(service)
        .max_decoding_message_size(usize::MAX)
        .accept_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Deflate)
}
