//! Requests over the Open Inference Protocol's gRPC form.

use std::error::Error as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{BufMut as _, Bytes};
use parapet_open_inference::ModelMetadata;
use parapet_open_inference::grpc::message::{ModelInferResponse, ModelMetadataRequest};
use parapet_open_inference::grpc::{InferenceClient, read_response};
use serde_json::Value;
use tonic::client::Grpc;
use tonic::codec::{Codec, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, ConnectError, Request, Status};
use tonic_prost::{ProstCodec, ProstDecoder};

use super::find::Unanswered;
use super::http::{provenance, top_class};
use super::{Answer, Failure, LIMITS, Transport};
use crate::payload::Body;

/// HTTP/2 connections, in turns: servers let one carry some hundred requests at a time.
const CONNECTIONS: usize = 8;
const WINDOW: u32 = 8 << 20;

#[derive(Debug)]
pub struct GrpcTransport {
    connections: Vec<Channel>,
    next: AtomicUsize,
}

impl GrpcTransport {
    pub fn new(address: SocketAddr) -> anyhow::Result<Self> {
        let endpoint = endpoint(address)?;
        let connections = (0..CONNECTIONS).map(|_| endpoint.connect_lazy()).collect();
        Ok(Self { connections, next: AtomicUsize::new(0) })
    }
}

fn endpoint(address: SocketAddr) -> anyhow::Result<Endpoint> {
    Ok(Endpoint::from_shared(format!("http://{address}"))?
        .tcp_nodelay(true)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW))
}

impl Transport for GrpcTransport {
    async fn send(&self, body: &Body) -> Result<Answer, Failure> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % CONNECTIONS;
        let channel = self.connections.get(turn).ok_or(Failure::Connect)?.clone();
        let mut client = Grpc::new(channel).max_decoding_message_size(LIMITS.max_response_bytes);
        client.ready().await.map_err(|_| Failure::Connect)?;
        let path = PathAndQuery::from_static("/inference.GRPCInferenceService/ModelInfer");
        let answer = client.unary(Request::new(body.bytes.clone()), path, Encoded).await;
        let message = answer.map_err(|status| failure(&status))?.into_inner();
        let response = read_response(message).map_err(|_| Failure::InvalidAnswer)?;
        let parameter = |name: &str| response.parameters.get(name);
        let confidence = parameter("confidence").and_then(Value::as_f64).map(|value| value as f32);
        Ok(Answer {
            provenance: provenance(parameter("provenance").and_then(Value::as_str)),
            confidence: confidence.filter(|confidence| confidence.is_finite()),
            class: top_class(&response),
        })
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Encoded;

impl Codec for Encoded {
    type Encode = Bytes;
    type Decode = ModelInferResponse;
    type Encoder = Self;
    type Decoder = ProstDecoder<ModelInferResponse>;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<ModelInferResponse, ModelInferResponse>::default().decoder()
    }
}

impl Encoder for Encoded {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(message);
        Ok(())
    }
}

/// A status with a source was made on this side, by a connection that failed.
fn failure(status: &Status) -> Failure {
    let mut cause = status.source();
    let made_here = cause.is_some();
    while let Some(error) = cause {
        if error.is::<ConnectError>() {
            return Failure::Connect;
        }
        cause = error.source();
    }
    if made_here { Failure::ConnectionLost } else { Failure::Grpc(status.code() as i32) }
}

pub(super) async fn metadata(
    address: SocketAddr,
    model: &str,
) -> Result<ModelMetadata, Unanswered> {
    let unreachable = |error| Unanswered::Unreachable(format!("{error:#}"));
    let channel = endpoint(address).map_err(unreachable)?.connect().await;
    let channel = channel.map_err(|error| unreachable(error.into()))?;
    let request = ModelMetadataRequest { name: model.to_owned(), version: String::new() };
    let answer = InferenceClient::new(channel).model_metadata(request).await;
    let answer = answer.map_err(|status| match status.code() {
        Code::NotFound => Unanswered::UnknownModel,
        _ if status.source().is_some() => unreachable(status.into()),
        code => Unanswered::Wrong(format!("{code:?}: {}", status.message())),
    });
    let unreadable = |error| Unanswered::Wrong(format!("no model metadata ({error})"));
    answer?.into_inner().try_into().map_err(unreadable)
}
