//! `POST /v2/models/{model}/infer`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use http::header::{CONTENT_ENCODING, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};
use parapet_content_coding::{Coding, decode, encode};
use parapet_http_serve::read_body;
use parapet_open_inference::{Encoded, HEADER_CONTENT_LENGTH, InferRequest, decode_request, encode_response};

use super::response::{error, with_type};
use super::routes::App;
use crate::account::{Account, CLASS_HEADER, CODE, CONFIDENCE, PROVENANCE, REQUEST_ID, fresh_request_id};
use crate::error::ServeError;
use crate::model::{CLASS, MAX_REQUEST_ID, Provenance, ServedModel};

pub(super) async fn infer(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    answer(&app, &name, None, &headers, body).await
}

pub(super) async fn infer_version(
    State(app): State<Arc<App>>,
    Path((name, version)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    answer(&app, &name, Some(&version), &headers, body).await
}

async fn answer(app: &App, name: &str, version: Option<&str>, headers: &HeaderMap, body: Body) -> Response {
    let request_id = request_id(headers);
    let account = Account::begin(app, name, request_id.to_str().unwrap_or_default());
    let mut response = match app.model(name, version) {
        Ok(model) => {
            let result = infer_on(app, model, headers, body).await;
            account.end(model, &result);
            result.map_or_else(|refused| error(&refused), |(response, _)| response)
        }
        Err(unknown) => {
            account.unknown(&unknown);
            error(&unknown)
        }
    };
    response.headers_mut().insert(REQUEST_ID, request_id);
    response
}

async fn infer_on(
    app: &App,
    model: &ServedModel,
    headers: &HeaderMap,
    body: Body,
) -> Result<(Response, Provenance), ServeError> {
    if app.is_draining() {
        return Err(ServeError::Draining);
    }
    let coding = Coding::of_request(headers)?;
    let header_length = header_length(headers)?;
    let max_bytes = app.settings().max_body_bytes;
    let mut body = read_body(body, max_bytes, app.settings().body_read_timeout).await?;
    if let Some(coding) = coding {
        body = decode(coding, body, max_bytes).await?;
    }
    let mut request = decode_request(body, header_length)?;
    if let Some(class) = headers.get(CLASS_HEADER) {
        // The body's own word counts.
        let class = String::from_utf8_lossy(class.as_bytes()).into_owned();
        request.parameters.entry(CLASS.to_owned()).or_insert_with(|| class.into());
    }
    let binary = BinaryOutputs::of(&request);
    let (response, provenance) = model.infer(request).await?;
    let encoded = encode_response(&response, |output| binary.wants(output)).map_err(ServeError::Response)?;
    let accepted = Coding::for_response(headers);
    let mut response = respond(encoded, accepted).await;
    let headers = response.headers_mut();
    headers.insert(PROVENANCE, HeaderValue::from_static(provenance.kind));
    if let Ok(confidence) = HeaderValue::from_str(&format!("{:.4}", provenance.confidence)) {
        headers.insert(CONFIDENCE, confidence);
    }
    if let Some(code) = provenance.code.as_deref().and_then(|code| HeaderValue::from_str(code).ok()) {
        headers.insert(CODE, code);
    }
    Ok((response, provenance))
}

/// The answer, compressed if the client likes that best and it is worth it.
async fn respond(encoded: Encoded, accepted: Option<Coding>) -> Response {
    let content_type = encoded.content_type();
    let Encoded { mut body, header_length } = encoded;
    let mut coded = None;
    if let Some(coding) = accepted
        && let Some(compressed) = encode(coding, &body).await
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
        HeaderValue::from_str(&fresh_request_id()).unwrap_or_else(|_| HeaderValue::from_static("unknown"))
    })
}
