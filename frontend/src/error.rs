//! Everything that can go wrong with a request, mapped to an HTTP status in this one place. Text of
//! a request is repeated as an [`Excerpt`] only.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use parapet_frontend_core::{Failure, FailureKind, Rejected};
use parapet_net::server::BodyError;
use parapet_open_inference::compression::CodingError;
use parapet_open_inference::grpc::ReceiveError;
use parapet_open_inference::{Excerpt, ProtocolError, rest};
use strum::{IntoStaticStr, VariantArray};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum ServeError {
    #[error("no model {model:?} here, only {served}")]
    UnknownModel { model: Excerpt, served: Excerpt },
    #[error("model {model:?} has no version {version:?} here, only {served}")]
    UnknownVersion { model: Excerpt, version: Excerpt, served: u64 },
    #[error("no {path:?} here: not in the Open Inference Protocol, or in an extension not served")]
    UnknownPath { path: Excerpt },
    #[error("{path:?} does not take {method}")]
    Method { method: Excerpt, path: Excerpt },
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error(transparent)]
    Coding(#[from] CodingError),
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    #[error("{0}")]
    Input(String),
    #[error("no known key; send the header `Authorization: Bearer KEY`")]
    Unauthenticated,
    #[error("a page of another site may not ask this")]
    OtherSite,
    #[error("tenant {tenant:?} is over its quota of requests per second")]
    OverQuota {
        tenant: String,
        /// Seconds until it may ask again.
        retry_after: u32,
    },
    #[error("{0}")]
    Rejected(#[from] Rejected),
    #[error("{}", told(.0))]
    Failed(#[from] Failure),
    #[error("the response could not be written: {0}")]
    Response(ProtocolError),
}

/// A failure as a client sees it: reasons of sockets and certificates have addresses and names in
/// them, which are for the log.
fn told(failure: &Failure) -> String {
    match failure.kind {
        kind @ (FailureKind::Unreachable | FailureKind::ConnectionLost) => kind.to_string(),
        _ => failure.to_string(),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ErrorKind {
    InvalidRequest,
    Overloaded,
    DeadlineExceeded,
    Unavailable,
    Upstream,
    Internal,
}

impl ErrorKind {
    pub const ALL: &[Self] = Self::VARIANTS;

    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl ServeError {
    pub fn classify(&self) -> (StatusCode, ErrorKind) {
        use ErrorKind::*;
        match self {
            Self::UnknownModel { .. } | Self::UnknownVersion { .. } | Self::UnknownPath { .. } => {
                (StatusCode::NOT_FOUND, InvalidRequest)
            }
            Self::Method { .. } => (StatusCode::METHOD_NOT_ALLOWED, InvalidRequest),
            Self::Protocol(ProtocolError::NoMemory) | Self::Rejected(Rejected::Overloaded) => {
                (StatusCode::SERVICE_UNAVAILABLE, Overloaded)
            }
            // Only the client can ask for another form of the answer.
            Self::Protocol(_)
            | Self::Input(_)
            | Self::Response(ProtocolError::NoJsonForm { .. }) => {
                (StatusCode::BAD_REQUEST, InvalidRequest)
            }
            Self::Body(error @ BodyError::NoMemory { .. }) => (error.status(), Overloaded),
            Self::Body(error) => (error.status(), InvalidRequest),
            Self::Receive(error) => (error.status(), InvalidRequest),
            Self::Coding(error) => (error.status(), InvalidRequest),
            Self::Unauthenticated => (StatusCode::UNAUTHORIZED, InvalidRequest),
            Self::OtherSite => (StatusCode::FORBIDDEN, InvalidRequest),
            Self::OverQuota { .. } => (StatusCode::TOO_MANY_REQUESTS, Overloaded),
            Self::Rejected(Rejected::DeadlinePassed) => {
                (StatusCode::GATEWAY_TIMEOUT, DeadlineExceeded)
            }
            Self::Failed(failure) => classify_failure(failure.kind),
            Self::Response(_) => (StatusCode::INTERNAL_SERVER_ERROR, Internal),
        }
    }

    /// Seconds after which the same request may do better, for `Retry-After`.
    pub fn retry_after(&self) -> Option<u32> {
        if let Self::OverQuota { retry_after, .. } = self {
            return Some((*retry_after).max(1));
        }
        (self.classify().0 == StatusCode::SERVICE_UNAVAILABLE).then_some(1)
    }
}

impl IntoResponse for ServeError {
    fn into_response(self) -> Response {
        let (status, _) = self.classify();
        rest::respond_error(status, &self, self.retry_after()).map(Body::from)
    }
}

fn classify_failure(kind: FailureKind) -> (StatusCode, ErrorKind) {
    match kind {
        FailureKind::DeadlineExceeded => (StatusCode::GATEWAY_TIMEOUT, ErrorKind::DeadlineExceeded),
        FailureKind::Shed => (StatusCode::SERVICE_UNAVAILABLE, ErrorKind::Overloaded),
        FailureKind::Unreachable | FailureKind::ConnectionLost | FailureKind::InstanceBusy => {
            (StatusCode::SERVICE_UNAVAILABLE, ErrorKind::Unavailable)
        }
        FailureKind::InstanceError | FailureKind::InvalidOutput => {
            (StatusCode::BAD_GATEWAY, ErrorKind::Upstream)
        }
        FailureKind::Refused => (StatusCode::BAD_REQUEST, ErrorKind::InvalidRequest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_sees_no_reason_that_could_name_an_instance() {
        for (kind, seen) in [
            (FailureKind::Unreachable, "instance unreachable"),
            (FailureKind::ConnectionLost, "instance connection lost"),
            (FailureKind::Refused, "query refused by the instance: at 10.0.0.7"),
        ] {
            let error = ServeError::from(Failure::new(kind, "at 10.0.0.7"));
            assert_eq!(error.to_string(), seen);
        }
    }
}
