//! Instances over REST: any server that speaks the Open Inference Protocol, best with the binary
//! tensor extension.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Request, StatusCode, Uri};
use parapet_frontend_core::{AttemptResult, Failure, FailureKind};
use parapet_net::client::{Connections, Limits, Response, SendError, Tls};
use parapet_open_inference::rest::{HEADER_LENGTH, header_length};
use parapet_open_inference::{
    BINARY_EXTENSION, Encoding, ErrorObject, ModelMetadata, ServerMetadata, decode_response,
};
use serde::Deserialize;
use tokio::time::Instant;

use super::instances::Pool;
use super::{Expected, Unready, failure, given_up, unreadable};
use crate::discovery::Scheme;
use crate::payload::{Input, Output};
use crate::traces::TRACEPARENT;

/// Microseconds that the client waits for the answer. A header, since the body is written once
/// for all attempts.
static TIMEOUT: HeaderName = HeaderName::from_static("parapet-timeout-us");
const HEADERS: usize = 6;

#[derive(Debug)]
pub(super) struct Instance {
    name: String,
    /// The dispatcher bounds their number: it gives an instance no more requests than slots.
    connections: Connections,
    /// Common part of its requests; `None` if its address or model name makes no valid request.
    target: Option<Box<Target>>,
    expected: Arc<Expected>,
    /// True if the instance reads JSON alone, by its metadata.
    reads_json: AtomicBool,
    /// True if it is to be asked that, for the first time or again.
    ask_form: AtomicBool,
    /// Rows of a request that it takes, where it says so.
    pub(super) max_rows: AtomicUsize,
}

#[derive(Debug)]
struct Target {
    host: HeaderValue,
    infer: Uri,
    ready: Uri,
    metadata: Uri,
    config: Uri,
}

/// Part of a model's configuration, by Triton's extension.
#[derive(Deserialize)]
struct Batching {
    /// 0 where it takes no batches.
    max_batch_size: usize,
}

impl Target {
    fn new(host: &str, pool: &Pool) -> Option<Self> {
        let mut path = format!("/v2/models/{}", pool.entry.name);
        if let Some(version) = pool.version {
            path += &format!("/versions/{version}");
        }
        Some(Self {
            host: HeaderValue::from_str(host).ok()?,
            infer: format!("{path}/infer").parse().ok()?,
            ready: format!("{path}/ready").parse().ok()?,
            config: format!("{path}/config").parse().ok()?,
            metadata: path.parse().ok()?,
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

impl Instance {
    pub(super) fn new(pool: &Pool, name: &str, address: SocketAddr, tls: Option<Tls>) -> Self {
        let limits = Limits {
            connect_timeout: Some(pool.connect_timeout),
            max_response_bytes: pool.expected.max_bytes,
            max_idle: pool.max_idle,
        };
        Self {
            name: name.to_owned(),
            connections: Connections::new(address, limits).with_tls(tls),
            target: Target::new(Scheme::split(name).1, pool).map(Box::new),
            expected: Arc::clone(&pool.expected),
            reads_json: AtomicBool::new(false),
            ask_form: AtomicBool::new(true),
            max_rows: AtomicUsize::new(usize::MAX),
        }
    }

    pub(super) async fn infer(&self, input: &Input) -> AttemptResult<Output> {
        let encoding = match self.reads_json.load(Ordering::Relaxed) {
            true => Encoding::Json,
            false => Encoding::Binary,
        };
        let refused = |reason: &str| failure(&self.name, FailureKind::Refused, reason);
        let wire = input.body(encoding).map_err(|error| refused(&error.to_string()))?;
        let unsendable = || refused("its address or model name makes no valid request");
        let target = self.target.as_ref().ok_or_else(unsendable)?;
        let request = || {
            let mut request = target.request(Method::POST, &target.infer, wire.body.clone());
            let headers = request.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(wire.content_type()));
            if let Some(length) = wire.header_length {
                headers.insert(&HEADER_LENGTH, length.into());
            }
            if let Some(deadline) = input.deadline {
                let left = deadline.saturating_duration_since(Instant::now());
                let micros = u64::try_from(left.as_micros()).unwrap_or(u64::MAX);
                headers.insert(&TIMEOUT, micros.into());
            }
            if let Some(parent) = input.traces.traceparent() {
                headers.insert(TRACEPARENT, parent);
            }
            request
        };
        let response = self.connections.send(request).await;
        self.prediction(response.map_err(|error| self.unanswered(&error))?, input)
    }

    pub(super) async fn ready(&self) -> Result<(), Unready> {
        let target = self.target.as_ref().ok_or(Unready::Unaddressable)?;
        let ready = self.get(target, &target.ready).await;
        // What comes back at this address may be another server. Until then it is written to as
        // before: queries go on while a check or two fail.
        ready.inspect_err(|_| self.ask_form.store(true, Ordering::Relaxed))?;
        if self.ask_form.load(Ordering::Relaxed) {
            self.learn_form(target).await?;
            self.ask_form.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(super) async fn metadata(&self) -> Result<ModelMetadata, Unready> {
        let target = self.target.as_ref().ok_or(Unready::Unaddressable)?;
        serde_json::from_slice(&self.get(target, &target.metadata).await?.body).map_err(unreadable)
    }

    /// Asks whether the server has the binary tensor extension; without it queries go as JSON. One
    /// that says nothing of itself is taken to have it. And for the longest batch that it takes.
    async fn learn_form(&self, target: &Target) -> Result<(), Unready> {
        let metadata = match self.get(target, &Uri::from_static("/v2")).await {
            Ok(response) => serde_json::from_slice::<ServerMetadata>(&response.body).ok(),
            Err(Unready::Says(_)) => None,
            Err(unreachable) => return Err(unreachable),
        };
        let lacks_binary = metadata.is_some_and(|metadata| {
            let mut extensions = metadata.extensions.iter();
            extensions.all(|extension| extension != BINARY_EXTENSION)
        });
        self.reads_json.store(lacks_binary, Ordering::Relaxed);
        let rows = match self.get(target, &target.config).await {
            Ok(response) => serde_json::from_slice::<Batching>(&response.body).ok(),
            Err(Unready::Says(_)) => None,
            Err(unreachable) => return Err(unreachable),
        };
        let rows = rows.map(|config| config.max_batch_size).filter(|&rows| rows > 0);
        self.max_rows.store(rows.unwrap_or(usize::MAX), Ordering::Relaxed);
        Ok(())
    }

    async fn get(&self, target: &Target, uri: &Uri) -> Result<Response, Unready> {
        let request = || target.request(Method::GET, uri, Bytes::new());
        let response = self.connections.send(request).await?;
        match response.status {
            StatusCode::OK => Ok(response),
            status => Err(Unready::Says(status.to_string())),
        }
    }

    fn unanswered(&self, error: &SendError) -> Failure {
        let kind = match error {
            SendError::TooLong { .. } => FailureKind::InvalidOutput,
            _ if error.is_unsent() => FailureKind::Unreachable,
            _ => FailureKind::ConnectionLost,
        };
        failure(&self.name, kind, &error.to_string())
    }

    fn prediction(&self, response: Response, input: &Input) -> AttemptResult<Output> {
        ensure!(response.status == StatusCode::OK, self.refusal(&response, input));
        let invalid = |reason: String| failure(&self.name, FailureKind::InvalidOutput, &reason);
        let response = header_length(&response.headers)
            .and_then(|length| decode_response(response.body, length));
        let response = response.map_err(|error| invalid(error.to_string()))?;
        self.expected.check(response, input.rows).map_err(invalid)
    }

    fn refusal(&self, response: &Response, input: &Input) -> Failure {
        let status = response.status;
        let kind = match status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                FailureKind::InstanceBusy
            }
            StatusCode::BAD_REQUEST
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNPROCESSABLE_ENTITY => FailureKind::Refused,
            StatusCode::GATEWAY_TIMEOUT => given_up(input),
            _ => FailureKind::InstanceError,
        };
        let object = serde_json::from_slice::<ErrorObject>(&response.body);
        let said = object.map_or_else(|_| String::new(), |object| object.error);
        failure(&self.name, kind, &format!("{status} {said}"))
    }
}
