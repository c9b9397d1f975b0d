//! Instances over gRPC: any server that has `inference.GRPCInferenceService`.
//!
//! Each has one HTTP/2 connection, which carries all of its requests and is opened again when it is lost. Contents go out raw;
//! they come back in either form.

use std::error::Error as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parapet_frontend_core::{Failure, FailureKind, Outcome};
use parapet_open_inference::InferRequest;
use parapet_open_inference_grpc::message::ModelReadyRequest;
use parapet_open_inference_grpc::{InferenceClient, read_response, write_request};
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, ConnectError, Status};

use super::outputs::Expected;
use crate::payload::{Input, Output};
use crate::traces::TRACEPARENT;

/// Bytes of answers on their way that nobody has read; one of this size needs no round trip more.
const WINDOW: u32 = 1 << 20;

/// One instance of a model.
#[derive(Debug)]
pub(super) struct Instance {
    /// Name for people: the address as configured.
    name: String,
    /// The model's name and its version.
    model: (String, String),
    client: InferenceClient<Channel>,
    expected: Arc<Expected>,
}

impl Instance {
    pub(super) fn new(
        name: &str,
        address: SocketAddr,
        model: (String, String),
        connect_timeout: Duration,
        expected: Arc<Expected>,
    ) -> Self {
        // An address always makes a URI; were it not to, the instance would be unreachable.
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .unwrap_or_else(|_| Endpoint::from_static("http://unreachable.invalid"))
            .connect_timeout(connect_timeout)
            .tcp_nodelay(true)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(4 * WINDOW);
        let client =
            InferenceClient::new(endpoint.connect_lazy()).max_decoding_message_size(expected.max_bytes);
        Self { name: name.to_owned(), model, client, expected }
    }

    pub(super) async fn infer(&self, input: &Input) -> Outcome<Output> {
        let (model, version) = &self.model;
        let request = InferRequest { inputs: input.tensors.clone(), ..InferRequest::default() };
        let message = write_request(model, Some(version), &request);
        // A client is a handle on the one connection.
        let mut message = tonic::Request::new(message);
        if let Some(deadline) = input.deadline {
            message.set_timeout(deadline.saturating_duration_since(Instant::now()));
        }
        if let Some(parent) = input.traces.traceparent().and_then(|parent| parent.to_str().ok()?.parse().ok())
        {
            message.metadata_mut().insert(TRACEPARENT, parent);
        }
        let response = self.client.clone().model_infer(message).await;
        let message = response.map_err(|status| self.failed(&status))?.into_inner();
        let invalid = |reason: String| self.failure(FailureKind::InvalidOutput, &reason);
        let response = read_response(message).map_err(|error| invalid(error.to_string()))?;
        self.expected.check(response, input.rows).map_err(invalid)
    }

    pub(super) async fn ready(&self) -> bool {
        let (name, version) = self.model.clone();
        let answer = self.client.clone().model_ready(ModelReadyRequest { name, version }).await;
        answer.is_ok_and(|answer| answer.into_inner().ready)
    }

    fn failure(&self, kind: FailureKind, reason: &str) -> Failure {
        Failure::new(kind, format!("{}: {reason}", self.name))
    }

    /// What a status says about the instance and the query.
    fn failed(&self, status: &Status) -> Failure {
        let said: String = status.message().chars().take(200).collect();
        let kind = match status.code() {
            // A status with a source was made here, by a connection that failed; others came from the instance.
            _ if is_unsent(status) => FailureKind::Unreachable,
            _ if status.source().is_some() => FailureKind::ConnectionLost,
            Code::Unavailable | Code::ResourceExhausted => FailureKind::InstanceBusy,
            Code::InvalidArgument => FailureKind::Refused,
            _ => FailureKind::InstanceError,
        };
        self.failure(kind, &format!("{:?} {said}", status.code()))
    }
}

/// Whether there was no connection, so that the server has seen nothing of the request.
fn is_unsent(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}
