//! Instances over REST: any server that speaks the Open Inference Protocol, best with the binary
//! tensor extension.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue};
use hyper::{HeaderMap, Method, Request, StatusCode, Uri};
use parapet_frontend_core::{AttemptResult, Failure, FailureKind};
use parapet_net::client::{Connections, Limits, Response, SendError, Tls};
use parapet_open_inference::{
    BINARY_EXTENSION, Encoding, ErrorObject, HEADER_CONTENT_LENGTH, InferResponse, ProtocolError,
    ServerMetadata, decode_response,
};

use tokio::time::Instant;

use super::failure::failure;
use super::outputs::Expected;
use super::{Scheme, Unready, given_up};
use crate::payload::{Input, Output};
use crate::traces::TRACEPARENT;

/// Microseconds that the client waits for the answer. A header, since the body is written once
/// for all attempts.
const TIMEOUT: &str = "parapet-timeout-us";

/// One instance of a model.
#[derive(Debug)]
pub(super) struct Instance {
    /// Name for people: the address as configured.
    name: String,
    /// Number that are open at once is the dispatcher's business, which gives an instance no more
    /// requests than it has slots.
    connections: Connections,
    /// Common part of its requests; `None` if its address or model name makes no valid request.
    target: Option<Target>,
    expected: Arc<Expected>,
    /// Encoding that the instance reads, by its metadata.
    form: AtomicU8,
    /// True if it is to be asked that, for the first time or again.
    ask_form: AtomicBool,
}

#[derive(Debug)]
struct Target {
    host: HeaderValue,
    infer: Uri,
    ready: Uri,
}

impl Target {
    fn new(host: &str, path: &str) -> Option<Self> {
        Some(Self {
            host: HeaderValue::from_str(host).ok()?,
            infer: format!("{path}/infer").parse().ok()?,
            ready: format!("{path}/ready").parse().ok()?,
        })
    }

    fn request(&self, method: Method, uri: &Uri, body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri.clone();
        let mut headers = HeaderMap::with_capacity(HEADERS);
        headers.insert(HOST, self.host.clone());
        *request.headers_mut() = headers;
        request
    }
}

/// Of a request at most.
const HEADERS: usize = 6;

/// Values of [`Instance::form`].
const BINARY: u8 = 0;
const JSON: u8 = 1;

impl Instance {
    /// `path` is that of the model's version; `max_idle` connections are kept.
    pub(super) fn new(
        name: &str,
        address: SocketAddr,
        path: &str,
        max_idle: usize,
        connect_timeout: Duration,
        expected: Arc<Expected>,
        tls: Option<Tls>,
    ) -> Self {
        let connect_timeout = Some(connect_timeout);
        let limits = Limits {
            connect_timeout,
            max_response_bytes: expected.max_bytes,
            max_idle,
        };
        Self {
            name: name.to_owned(),
            connections: Connections::new(address, limits).with_tls(tls),
            target: Target::new(Scheme::split(name).1, path),
            expected,
            form: AtomicU8::new(BINARY),
            ask_form: AtomicBool::new(true),
        }
    }

    pub(super) async fn infer(&self, input: &Input) -> AttemptResult<Output> {
        let encoding = match self.form.load(Ordering::Relaxed) {
            JSON => Encoding::Json,
            _ => Encoding::Binary,
        };
        let refused = |error: ProtocolError| self.failure(FailureKind::Refused, &error.to_string());
        let wire = input.body(encoding).map_err(refused)?;
        let target = self.target.as_ref().ok_or_else(|| self.unsendable())?;
        let request = || {
            let mut request = target.request(Method::POST, &target.infer, wire.body.clone());
            let headers = request.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(wire.content_type()));
            if let Some(length) = wire.header_length {
                headers.insert(HEADER_CONTENT_LENGTH, length.into());
            }
            if let Some(deadline) = input.deadline {
                let left = deadline.saturating_duration_since(Instant::now());
                headers.insert(
                    TIMEOUT,
                    u64::try_from(left.as_micros()).unwrap_or(u64::MAX).into(),
                );
            }
            if let Some(parent) = input.traces.traceparent() {
                headers.insert(TRACEPARENT, parent);
            }
            request
        };
        let response = self
            .connections
            .send(request)
            .await
            .map_err(|error| self.unanswered(&error))?;
        self.prediction(response, input)
    }

    pub(super) async fn ready(&self) -> Result<(), Unready> {
        let target = self.target.as_ref().ok_or(Unready::Unaddressable)?;
        let ready = self.get(target, &target.ready).await;
        if ready.is_err() {
            // What comes back at this address may be another server. Until then it is written to as
            // before: queries go on while a check or two fail.
            self.ask_form.store(true, Ordering::Relaxed);
        }
        ready?;
        if self.ask_form.load(Ordering::Relaxed) {
            self.learn_form(target).await?;
            self.ask_form.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Asks whether the server has the binary tensor extension; without it queries go as JSON. One
    /// that says nothing of itself is taken to have it.
    async fn learn_form(&self, target: &Target) -> Result<(), Unready> {
        let form = match self.get(target, &Uri::from_static("/v2")).await {
            Ok(response) => {
                let metadata = serde_json::from_slice::<ServerMetadata>(&response.body);
                let has_it = |metadata: ServerMetadata| {
                    metadata
                        .extensions
                        .iter()
                        .any(|extension| extension == BINARY_EXTENSION)
                };
                if metadata.map_or(true, has_it) {
                    BINARY
                } else {
                    JSON
                }
            }
            Err(Unready::Says(_)) => BINARY,
            Err(unreachable) => return Err(unreachable),
        };
        self.form.store(form, Ordering::Relaxed);
        Ok(())
    }

    /// The answer, if it is 200.
    async fn get(&self, target: &Target, uri: &Uri) -> Result<Response, Unready> {
        let request = || target.request(Method::GET, uri, Bytes::new());
        let response = self.connections.send(request).await?;
        match response.status {
            StatusCode::OK => Ok(response),
            status => Err(Unready::Says(status.to_string())),
        }
    }

    fn failure(&self, kind: FailureKind, reason: &str) -> Failure {
        failure(&self.name, kind, reason)
    }

    fn unanswered(&self, error: &SendError) -> Failure {
        let kind = match error {
            SendError::TooLong { .. } => FailureKind::InvalidOutput,
            _ if error.is_unsent() => FailureKind::Unreachable,
            _ => FailureKind::ConnectionLost,
        };
        self.failure(kind, &error.to_string())
    }

    fn unsendable(&self) -> Failure {
        self.failure(
            FailureKind::Refused,
            "its address or model name makes no valid request",
        )
    }

    fn prediction(&self, response: Response, input: &Input) -> AttemptResult<Output> {
        if response.status != StatusCode::OK {
            return Err(self.refusal(&response, input));
        }
        let invalid = |reason: String| self.failure(FailureKind::InvalidOutput, &reason);
        let header_length = header_length(&response.headers).map_err(invalid)?;
        let response: InferResponse = decode_response(response.body, header_length)
            .map_err(|error| invalid(error.to_string()))?;
        self.expected.check(response, input.rows).map_err(invalid)
    }

    /// Returns the failure that a status other than 200 means.
    fn refusal(&self, response: &Response, input: &Input) -> Failure {
        let kind = match response.status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                FailureKind::InstanceBusy
            }
            StatusCode::BAD_REQUEST
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNPROCESSABLE_ENTITY => FailureKind::Refused,
            StatusCode::GATEWAY_TIMEOUT => given_up(input),
            _ => FailureKind::InstanceError,
        };
        let said = serde_json::from_slice::<ErrorObject>(&response.body)
            .map(|object| object.error)
            .ok();
        let said = said.unwrap_or_default();
        self.failure(kind, &format!("{} {said}", response.status))
    }
}

fn header_length(headers: &HeaderMap) -> Result<Option<usize>, String> {
    headers
        .get(HEADER_CONTENT_LENGTH)
        .map(|value| {
            value
                .to_str()
                .ok()
                .and_then(|value| value.parse().ok())
                .ok_or_else(|| format!("{HEADER_CONTENT_LENGTH} is not a number of bytes"))
        })
        .transpose()
}
