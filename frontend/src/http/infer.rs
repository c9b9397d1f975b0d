//! `POST /v2/models/{model}/infer`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::response::Response;
use bytes::Bytes;
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, HeaderValue, StatusCode};
use parapet_frontend_core::Rejected;
use parapet_http_serve::read_body_within;
use parapet_open_inference::{HEADER_CONTENT_LENGTH, InferRequest, decode_request, encode_response};
use tokio::time::Instant;

use super::response::{error, with_type};
use super::routes::App;
use crate::error::ServeError;
use crate::model::{CLASS, MAX_REQUEST_ID, Provenance, ServedModel};
use crate::tenants::MixingDomain;
use crate::traces::TracedRequest;

/// Names a request in logs; taken from the client, or made here, and echoed.
const REQUEST_ID: &str = "x-request-id";
/// The trace of a request that is traced.
const TRACE_ID: &str = "parapet-trace-id";
/// How the answer came about, for clients and proxies that don't read the body.
const PROVENANCE: &str = "parapet-provenance";
const CONFIDENCE: &str = "parapet-confidence";
const CODE: &str = "parapet-code";
/// The request's class, for clients and proxies that don't write the body.
const CLASS_HEADER: &str = "parapet-class";

pub(super) async fn infer(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    domain: Option<Extension<MixingDomain>>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    answer(&app, &name, None, domain_of(domain), &headers, body).await
}

pub(super) async fn infer_version(
    State(app): State<Arc<App>>,
    Path((name, version)): Path<(String, String)>,
    domain: Option<Extension<MixingDomain>>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    answer(&app, &name, Some(&version), domain_of(domain), &headers, body).await
}

/// Whom the request may share a coding group with, as its key says.
fn domain_of(given: Option<Extension<MixingDomain>>) -> MixingDomain {
    given.map_or(MixingDomain::SHARED, |Extension(domain)| domain)
}

async fn answer(
    app: &App,
    name: &str,
    version: Option<&str>,
    domain: MixingDomain,
    headers: &HeaderMap,
    body: Body,
) -> Response {
    let started = Instant::now();
    app.busy_poll().touch();
    let request_id = request_id(headers);
    let model = app.model(name, version);
    let traced = app.traces().and_then(|traces| traces.begin(headers, name));
    let trace_id = traced.as_ref().map(TracedRequest::id);
    let result = match (&model, &traced) {
        (Ok(model), Some(traced)) => traced.scope(infer_on(app, model, domain, headers, body)).await,
        (Ok(model), None) => infer_on(app, model, domain, headers, body).await,
        (Err(_), _) => Err(ServeError::UnknownModel { model: name.chars().take(100).collect() }),
    };
    let took = started.elapsed();
    match (traced, &result) {
        (Some(traced), Ok((_, provenance))) => traced.answered(provenance.kind, provenance.confidence),
        (Some(traced), Err(refused)) => traced.failed(refused),
        (None, _) => {}
    }
    let shown_trace = trace_id.as_ref().map(tracing::field::display);
    let shown_id = request_id.to_str().unwrap_or_default();
    let mut response = match (result, model) {
        (Ok((response, provenance)), Ok(model)) => {
            model.driver().meters().answered(&provenance, took);
            tracing::debug!(
                request_id = shown_id,
                model = name,
                trace_id = shown_trace,
                provenance = provenance.kind,
                ?took,
                "answered"
            );
            response
        }
        (Err(refused), Ok(model)) => {
            let (status, kind) = refused.classify();
            model.driver().meters().failed(kind);
            if status.is_server_error() {
                tracing::warn!(request_id = shown_id, model = name, trace_id = shown_trace, %status, error = %refused, ?took, "failed");
            } else {
                tracing::debug!(request_id = shown_id, model = name, %status, error = %refused, ?took, "refused");
            }
            error(&refused)
        }
        (_, Err(unknown)) => {
            tracing::debug!(request_id = shown_id, model = name, error = %unknown, "refused");
            error(&unknown)
        }
    };
    response.headers_mut().insert(REQUEST_ID, request_id);
    if let Some(id) = trace_id.and_then(|id| HeaderValue::from_str(&id).ok()) {
        response.headers_mut().insert(TRACE_ID, id);
    }
    app.busy_poll().touch();
    response
}

async fn infer_on(
    app: &App,
    model: &ServedModel,
    domain: MixingDomain,
    headers: &HeaderMap,
    body: Body,
) -> Result<(Response, Provenance), ServeError> {
    if let Some(encoding) = headers.get(CONTENT_ENCODING).filter(|encoding| *encoding != "identity") {
        let encoding = String::from_utf8_lossy(encoding.as_bytes()).chars().take(40).collect();
        return Err(ServeError::ContentEncoding { encoding });
    }
    let header_length = header_length(headers)?;
    // Whom we cannot take we turn away before we take his body.
    if !model.driver().has_room() {
        return Err(Rejected::Overloaded.into());
    }
    let serving = app.serving();
    let settings = serving.server();
    let (body, _reserved) =
        read_body_within(body, settings.max_body_bytes, settings.body_read_timeout, app.body_memory())
            .await?;
    let mut request = decode(body, header_length).await?;
    if let Some(class) = headers.get(CLASS_HEADER) {
        // The body's own word counts.
        let class = String::from_utf8_lossy(class.as_bytes()).into_owned();
        request.parameters.entry(CLASS.to_owned()).or_insert_with(|| class.into());
    }
    let binary = BinaryOutputs::of(&request);
    let (response, provenance) = model.infer_within(domain, request).await?;
    let encoded = encode_response(&response, |output| binary.wants(output)).map_err(ServeError::Response)?;
    let mut response = with_type(StatusCode::OK, encoded.content_type(), encoded.body);
    let headers = response.headers_mut();
    if let Some(length) = encoded.header_length {
        headers.insert(HEADER_CONTENT_LENGTH, length.into());
    }
    headers.insert(PROVENANCE, HeaderValue::from_static(provenance.kind));
    if let Ok(confidence) = HeaderValue::from_str(&format!("{:.4}", provenance.confidence)) {
        headers.insert(CONFIDENCE, confidence);
    }
    if let Some(code) = provenance.code.as_deref().and_then(|code| HeaderValue::from_str(code).ok()) {
        headers.insert(CODE, code);
    }
    Ok((response, provenance))
}

/// JSON from this length on (some milliseconds of work) is read away from the thread that serves.
const LONG_JSON: usize = 256 * 1024;

async fn decode(body: Bytes, header_length: Option<usize>) -> Result<InferRequest, ServeError> {
    if header_length.unwrap_or(body.len()) < LONG_JSON {
        return Ok(decode_request(body, header_length)?);
    }
    let decoded = tokio::task::spawn_blocking(move || decode_request(body, header_length)).await;
    Ok(decoded.map_err(|_| ServeError::Input("the body could not be read".to_owned()))??)
}

/// Which outputs go in binary form; kept while the request itself moves on.
struct BinaryOutputs(InferRequest);

impl BinaryOutputs {
    fn of(request: &InferRequest) -> Self {
        Self(InferRequest {
            parameters: request.parameters.clone(),
            outputs: request.outputs.clone(),
            ..InferRequest::default()
        })
    }

    fn wants(&self, output: &str) -> bool {
        self.0.wants_binary(output)
    }
}

fn header_length(headers: &HeaderMap) -> Result<Option<usize>, ServeError> {
    let Some(value) = headers.get(HEADER_CONTENT_LENGTH) else { return Ok(None) };
    value
        .to_str()
        .ok()
        .and_then(|value| value.trim().parse().ok())
        .map(Some)
        .ok_or_else(|| ServeError::Input(format!("header {HEADER_CONTENT_LENGTH} must be a number of bytes")))
}

fn request_id(headers: &HeaderMap) -> HeaderValue {
    let given = headers.get(REQUEST_ID).filter(|id| {
        !id.is_empty() && id.len() <= MAX_REQUEST_ID && id.as_bytes().iter().all(u8::is_ascii_graphic)
    });
    given.cloned().unwrap_or_else(|| {
        HeaderValue::from_str(&format!("{:016x}", rand::random::<u64>()))
            .unwrap_or_else(|_| HeaderValue::from_static("unknown"))
    })
}
