//! Instances over gRPC: any server that has `inference.GRPCInferenceService`.
//!
//! Each has one HTTP/2 connection, which carries all of its requests and is opened again when it is
//! lost. Contents go out raw; they come back in either form.

mod within_tls;

use std::error::Error as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parapet_frontend_core::{AttemptResult, Failure, FailureKind};
use parapet_net::client::Tls;
use parapet_net::tls::TlsFailure;
use parapet_open_inference::grpc::message::{
    ModelConfigRequest, ModelMetadataRequest, ModelReadyRequest,
};
use parapet_open_inference::grpc::{InferenceClient, read_response, write_request};
use parapet_open_inference::{InferRequest, ModelMetadata, ProtocolError};
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, ConnectError, Status, TimeoutExpired};

use self::within_tls::{WithinTls, client};
use super::instances::Pool;
use super::{Expected, TIMER, Unready, failure, given_up, unreadable};
use crate::discovery::Scheme;
use crate::payload::{Input, Output};
use crate::traces::TRACEPARENT;

/// Bytes of unread answers on their way; one of this size needs no round trip more.
const WINDOW: u32 = 1 << 20;

#[derive(Debug)]
pub(super) struct Instance {
    name: String,
    /// Its name and version; an empty one where the instance chooses.
    model: (String, String),
    way: Way,
    expected: Arc<Expected>,
    /// Rows of a request that it takes, where it says so.
    pub(super) max_rows: AtomicUsize,
}

#[derive(Debug)]
enum Way {
    Plain(InferenceClient<Channel>),
    WithinTls(Box<WithinTls>),
}

impl Instance {
    pub(super) fn new(pool: &Pool, name: &str, address: SocketAddr, tls: Option<Tls>) -> Self {
        // An address always makes a URI; were it not to, the instance would be unreachable.
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .unwrap_or_else(|_| Endpoint::from_static("http://unreachable.invalid"))
            .connect_timeout(pool.connect_timeout)
            .tcp_nodelay(true)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(4 * WINDOW);
        let max_bytes = pool.expected.max_bytes;
        let way = match tls {
            None => Way::Plain(client(endpoint.connect_lazy(), max_bytes)),
            Some(tls) => {
                // Requests name the server, as their URIs do; only connecting is of the address.
                let origin = format!("https://{}", Scheme::split(name).1).parse();
                let endpoint = origin.map_or(endpoint.clone(), |origin| endpoint.origin(origin));
                Way::WithinTls(Box::new(WithinTls::new(endpoint, address, tls, max_bytes)))
            }
        };
        Self {
            name: name.to_owned(),
            model: (
                pool.entry.name.clone(),
                pool.version.map_or_else(String::new, |v| v.to_string()),
            ),
            way,
            expected: Arc::clone(&pool.expected),
            max_rows: AtomicUsize::new(usize::MAX),
        }
    }

    fn client(&self) -> InferenceClient<Channel> {
        match &self.way {
            Way::Plain(client) => client.clone(),
            Way::WithinTls(way) => way.client(),
        }
    }

    pub(super) async fn infer(&self, input: &Input) -> AttemptResult<Output> {
        let (model, version) = &self.model;
        let request = InferRequest {
            id: input.extra.id.clone(),
            parameters: input.extra.parameters.clone(),
            inputs: input.tensors.clone(),
            ..InferRequest::default()
        };
        let mut message = tonic::Request::new(write_request(model, Some(version), &request));
        if let Some(deadline) = input.deadline {
            message.set_timeout(deadline.saturating_duration_since(Instant::now()));
        }
        let parent = input.traces.traceparent();
        if let Some(parent) = parent.and_then(|parent| parent.to_str().ok()?.parse().ok()) {
            message.metadata_mut().insert(TRACEPARENT, parent);
        }
        let response = self.client().model_infer(message).await;
        if let Err(status) = &response
            && has_cause::<TimeoutExpired>(status)
            && given_up(input) == FailureKind::DeadlineExceeded
        {
            // Our own clock, which need not go before the engine's: it withdraws the request at the
            // deadline, and holds the silence against the instance where that is due.
            tokio::time::sleep(2 * TIMER).await;
        }
        let message = response.map_err(|status| self.failed(&status, input))?.into_inner();
        let invalid = |reason: String| failure(&self.name, FailureKind::InvalidOutput, &reason);
        let response = read_response(message).map_err(|error| invalid(error.to_string()))?;
        self.expected.check(response, input.rows).map_err(invalid)
    }

    pub(super) async fn ready(&self) -> Result<(), Unready> {
        let (name, version) = self.model.clone();
        match self.client().model_ready(ModelReadyRequest { name, version }).await {
            Ok(answer) if answer.get_ref().ready => self.learn_rows().await,
            Ok(_) => Err(Unready::Says("that it is not ready".to_owned())),
            Err(status) => Err(self.unready(&status)),
        }
    }

    /// Asks for the longest batch that it takes, by Triton's extension.
    async fn learn_rows(&self) -> Result<(), Unready> {
        let (name, version) = self.model.clone();
        let config = self.client().model_config(ModelConfigRequest { name, version }).await;
        let config = match config.map_err(|status| self.unready(&status)) {
            Ok(answer) => answer.into_inner().config,
            Err(Unready::Says(_)) => None,
            Err(unreachable) => return Err(unreachable),
        };
        let rows = config.and_then(|config| usize::try_from(config.max_batch_size).ok());
        self.max_rows.store(rows.filter(|&rows| rows > 0).unwrap_or(usize::MAX), Ordering::Relaxed);
        Ok(())
    }

    pub(super) async fn metadata(&self) -> Result<ModelMetadata, Unready> {
        let (name, version) = self.model.clone();
        let answer = self.client().model_metadata(ModelMetadataRequest { name, version }).await;
        let answer = answer.map_err(|status| self.unready(&status))?;
        answer.into_inner().try_into().map_err(unreadable::<ProtocolError>)
    }

    fn unready(&self, status: &Status) -> Unready {
        match self.tls_failure(status) {
            Some(failure) => Unready::Tls(failure),
            None if status.source().is_some() => Unready::Unreachable(cause(status)),
            None => Unready::Says(said(status)),
        }
    }

    fn failed(&self, status: &Status, input: &Input) -> Failure {
        if let Some(tls) = self.tls_failure(status) {
            let reason = format!("no TLS connection: {tls}");
            return failure(&self.name, FailureKind::Unreachable, &reason);
        }
        let kind = match status.code() {
            // Our own client gives up when the time is over that it has told the instance.
            _ if has_cause::<TimeoutExpired>(status) => given_up(input),
            // A status with a source was made here, by a failed connection; others by the instance.
            _ if has_cause::<ConnectError>(status) => FailureKind::Unreachable,
            _ if status.source().is_some() => FailureKind::ConnectionLost,
            Code::Unavailable | Code::ResourceExhausted => FailureKind::InstanceBusy,
            Code::InvalidArgument => FailureKind::Refused,
            Code::DeadlineExceeded | Code::Cancelled => given_up(input),
            _ => FailureKind::InstanceError,
        };
        failure(&self.name, kind, &said(status))
    }

    /// Why there is no TLS connection, if that is what a status made here is about.
    fn tls_failure(&self, status: &Status) -> Option<TlsFailure> {
        TlsFailure::of(status.source()?).or_else(|| match &self.way {
            Way::Plain(_) => None,
            Way::WithinTls(way) => way.refused(),
        })
    }
}

/// A status in words, of which an instance has chosen some.
fn said(status: &Status) -> String {
    let first = status.message().lines().next().unwrap_or_default();
    let said = first.chars().filter(|char| !char.is_control());
    format!("{:?} {}", status.code(), said.take(200).collect::<String>())
}

type Cause = dyn std::error::Error + 'static;

/// The causes of a status that was made here, the outermost first.
fn causes(status: &Status) -> impl Iterator<Item = &Cause> {
    fn source<'a>(cause: &&'a Cause) -> Option<&'a Cause> {
        (**cause).source()
    }
    std::iter::successors(status.source(), source)
}

fn cause(status: &Status) -> String {
    causes(status).last().map_or_else(|| said(status), ToString::to_string)
}

/// Returns true if a status was made here for this reason. With a [`ConnectError`] the server has
/// seen nothing of the request.
fn has_cause<E: std::error::Error + 'static>(status: &Status) -> bool {
    causes(status).any(|cause| cause.is::<E>())
}
