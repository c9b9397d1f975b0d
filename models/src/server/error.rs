//! Errors of requests and their HTTP statuses; no other module knows of statuses.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use parapet_net::LogLimit;
use parapet_net::server::BodyError;
use parapet_open_inference::compression::CodingError;
use parapet_open_inference::grpc::ReceiveError;
use parapet_open_inference::{Excerpt, ProtocolError, rest};
use serde::Serialize;

use crate::batching::BatchError;
use crate::metrics::InferenceOutcome;

static FAILED: LogLimit = LogLimit::new();

#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("{method} {path}: no such route; see the Open Inference Protocol, /v2/...")]
    NoRoute { method: Excerpt, path: Excerpt },
    #[error("{path} does not take {method}")]
    NoMethod { method: Excerpt, path: Excerpt },
    #[error("unknown model {model:?}; this instance serves {}", available.join(", "))]
    UnknownModel { model: Excerpt, available: Vec<String> },
    #[error("model {model:?} has no version {version:?} here; this instance serves {available:?}")]
    UnknownVersion { model: Excerpt, version: Excerpt, available: Vec<u64> },
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error(transparent)]
    Coding(#[from] CodingError),
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    #[error("{0}")]
    Input(String),
    #[error("the instance is starting; try again later or on another")]
    Starting,
    #[error("the instance is shutting down; try another")]
    Draining,
    #[error("model {model:?}: its worker stopped; restart the instance")]
    WorkerGone { model: String },
    #[error("no prediction within {limit:?}")]
    Late { limit: Duration },
    #[error(transparent)]
    Batch(#[from] BatchError),
    #[error("the prediction cannot be sent: {0}")]
    Answer(#[source] ProtocolError),
    #[error("internal error: {0}")]
    Internal(&'static str),
}

impl ApiError {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::NoRoute { .. } | Self::UnknownModel { .. } | Self::UnknownVersion { .. } => {
                StatusCode::NOT_FOUND
            }
            Self::NoMethod { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Self::Body(error) => error.status(),
            Self::Coding(error) => error.status(),
            Self::Receive(error) => error.status(),
            // Only the client can ask for another form of the answer.
            Self::Protocol(_) | Self::Input(_) | Self::Answer(ProtocolError::NoJsonForm { .. }) => {
                StatusCode::BAD_REQUEST
            }
            Self::Starting
            | Self::Draining
            | Self::WorkerGone { .. }
            | Self::Batch(BatchError::Full | BatchError::Closed | BatchError::WorkerGone) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Late { .. } => StatusCode::GATEWAY_TIMEOUT,
            Self::Batch(BatchError::Engine(_)) | Self::Answer(_) | Self::Internal(_) => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        }
    }

    pub(super) fn log(&self) {
        let status = self.status();
        if let Some(held_back) = status.is_server_error().then(|| FAILED.pass()).flatten() {
            tracing::warn!(%status, error = %self, held_back, "request failed");
        } else {
            tracing::debug!(%status, error = %self, "request refused");
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        self.log();
        let status = self.status();
        // The queue turns over in far less than a second, the header's smallest unit.
        let retry_after = (status == StatusCode::SERVICE_UNAVAILABLE).then_some(1);
        rest::respond_error(status, &self, retry_after).map(Body::from)
    }
}

pub(super) fn outcome<T>(result: &Result<T, ApiError>) -> InferenceOutcome {
    let Err(error) = result else { return InferenceOutcome::Ok };
    match error.status() {
        StatusCode::SERVICE_UNAVAILABLE => InferenceOutcome::Overloaded,
        StatusCode::GATEWAY_TIMEOUT | StatusCode::REQUEST_TIMEOUT => InferenceOutcome::TimedOut,
        status if status.is_client_error() => InferenceOutcome::Rejected,
        _ => InferenceOutcome::Failed,
    }
}

pub(super) fn json(value: &impl Serialize) -> Response {
    rest::respond_json(StatusCode::OK, value).map(Body::from)
}

pub(super) async fn no_route(method: Method, uri: Uri) -> ApiError {
    ApiError::NoRoute { method: method.as_str().into(), path: uri.path().into() }
}

pub(super) async fn no_method(method: Method, uri: Uri) -> ApiError {
    ApiError::NoMethod { method: method.as_str().into(), path: uri.path().into() }
}
