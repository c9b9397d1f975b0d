//! `POST /v2/models/{model}/infer`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, VARY};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use parapet_content_coding::{Coding, decode as decompress, encode as compress};
use parapet_frontend_core::Rejected;
use parapet_http_serve::{BodyError, read_body_within};
use parapet_open_inference::{
    BINARY_DATA_OUTPUT, Encoded, HEADER_CONTENT_LENGTH, InferRequest, decode_request, encode_response,
};

use super::response::{error, with_type};
use super::routes::App;
use crate::account::{
    Account, CLASS_HEADER, CODE, CONFIDENCE, PROVENANCE, REQUEST_ID, TRACE_ID, fresh_request_id,
};
use crate::error::ServeError;
use crate::model::{CLASS, MAX_REQUEST_ID, Provenance, ServedModel};
use crate::tenants::MixingDomain;

pub(super) async fn infer(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    request: Request,
) -> Response {
    answer(&app, &name, None, request).await
}

pub(super) async fn infer_version(
    State(app): State<Arc<App>>,
    Path((name, version)): Path<(String, String)>,
    request: Request,
) -> Response {
    answer(&app, &name, Some(&version), request).await
}

async fn answer(app: &App, name: &str, version: Option<&str>, request: Request) -> Response {
    let (Parts { headers, extensions, .. }, body) = request.into_parts();
    let headers = &headers;
    // Whom the request may share a coding group with, as its key says.
    let domain = extensions.get().copied().unwrap_or(MixingDomain::SHARED);
    let request_id = request_id(headers);
    let account = Account::begin(app, name, request_id.to_str().unwrap_or_default(), headers);
    let trace_id = account.trace_id();
    let mut response = match app.model(name, version) {
        Ok(model) => {
            // On the heap, since each layer of the server around it would copy it once or twice.
            let inferring = Box::pin(infer_on(app, &model, domain, headers, body));
            let result = account.scope(inferring).await;
            account.end(&model, &result);
            result.map_or_else(|refused| error(&refused), |(response, _)| response)
        }
        Err(unknown) => {
            account.unknown(&unknown);
            error(&unknown)
        }
    };
    response.headers_mut().insert(REQUEST_ID, request_id);
    if let Some(id) = trace_id.and_then(|id| HeaderValue::from_str(&id).ok()) {
        response.headers_mut().insert(TRACE_ID, id);
    }
    response
}

async fn infer_on(
    app: &App,
    model: &ServedModel,
    domain: MixingDomain,
    headers: &HeaderMap,
    body: Body,
) -> Result<(Response, Provenance), ServeError> {
    let coding = Coding::of_request(headers)?;
    let header_length = header_length(headers)?;
    // Whom we cannot take we turn away before we take his body.
    if !model.driver().has_room() {
        return Err(Rejected::Overloaded.into());
    }
    let serving = app.serving();
    let settings = serving.server();
    let max_bytes = settings.max_body_bytes;
    let (mut body, mut reserved) =
        read_body_within(body, max_bytes, settings.body_read_timeout, app.body_memory()).await?;
    if let Some(coding) = coding {
        // Bodies are unpacked in turn, so that this takes time as receiving does.
        let limit = settings.body_read_timeout;
        body = tokio::time::timeout(limit, decompress(coding, body, max_bytes))
            .await
            .map_err(|_| BodyError::Timeout { limit })??;
        reserved.hold(body.len())?;
    }
    let mut request = decode(body, header_length).await?;
    if let Some(class) = headers.get(CLASS_HEADER) {
        // The body's own word counts.
        let class = String::from_utf8_lossy(class.as_bytes()).into_owned();
        request.parameters.entry(CLASS.to_owned()).or_insert_with(|| class.into());
    }
    let binary = BinaryOutputs::of(&request);
    let (response, provenance) = model.infer_within(domain, request).await?;
    let encoded = encode_response(&response, |output| binary.wants(output)).map_err(ServeError::Response)?;
    let accepted = Coding::for_response(headers);
    let mut response = respond(encoded, accepted).await;
    let headers = response.headers_mut();
    headers.insert(PROVENANCE, HeaderValue::from_static(provenance.kind));
    if let Some(confidence) = confidence(&provenance) {
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

/// The answer, compressed if the client likes that best and it is worth it.
async fn respond(encoded: Encoded, accepted: Option<Coding>) -> Response {
    let content_type = encoded.content_type();
    let Encoded { mut body, header_length } = encoded;
    let mut coded = None;
    if let Some(coding) = accepted
        && let Some(compressed) = compress(coding, &body).await
    {
        body = compressed;
        coded = Some(HeaderValue::from_static(coding.name()));
    }
    let mut response = with_type(StatusCode::OK, content_type, body);
    let headers = response.headers_mut();
    if let Some(length) = header_length {
        // Of the body as it was, like the sizes in it.
        headers.insert(HEADER_CONTENT_LENGTH, length.into());
    }
    if let Some(coding) = coded {
        headers.insert(CONTENT_ENCODING, coding);
    }
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    response
}

/// Which outputs go in binary form; kept while the request itself moves on.
struct BinaryOutputs(InferRequest);

impl BinaryOutputs {
    fn of(request: &InferRequest) -> Self {
        let all = request.parameters.get_key_value(BINARY_DATA_OUTPUT);
        Self(InferRequest {
            parameters: all.into_iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
            outputs: request.outputs.clone(),
            ..InferRequest::default()
        })
    }

    fn wants(&self, output: &str) -> bool {
        self.0.wants_binary(output)
    }
}

/// With four decimals. That of an exact prediction, nearly every one, need not be worked out.
fn confidence(provenance: &Provenance) -> Option<HeaderValue> {
    if provenance.confidence == 1.0 {
        return Some(HeaderValue::from_static("1.0000"));
    }
    HeaderValue::from_str(&format!("{:.4}", provenance.confidence)).ok()
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
        HeaderValue::from_str(&fresh_request_id()).unwrap_or_else(|_| HeaderValue::from_static("unknown"))
    })
}
