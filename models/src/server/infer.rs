//! `POST .../infer`.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use parapet_http_serve::read_body;
use parapet_open_inference::{
    Encoded, HEADER_CONTENT_LENGTH, InferRequest, InferResponse, Parameters, decode_request, encode_response,
};

use super::admission::{Admitted, admit};
use super::app::{App, ModelPath, ServedModel};
use super::error::ApiError;
use crate::metrics::Outcome;

/// Microseconds for which the client waits for its answer.
const TIMEOUT: &str = "parapet-timeout-us";
/// JSON from this length on (some milliseconds of work) is read away from the threads that serve connections.
const LONG_JSON: usize = 256 * 1024;

pub(super) async fn infer(
    State(app): State<Arc<App>>,
    Path(path): Path<ModelPath>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let model = match app.model(&path) {
        Ok(model) => model,
        Err(error) => return error.into_response(),
    };
    match predict(&app, &model, &headers, body).await {
        Ok(encoded) => {
            model.metrics.request(Outcome::Ok);
            response(encoded)
        }
        Err(error) => {
            model.metrics.request(error.outcome());
            error.into_response()
        }
    }
}

async fn predict(
    app: &App,
    model: &ServedModel,
    headers: &HeaderMap,
    body: Body,
) -> Result<Encoded, ApiError> {
    app.check_open()?;
    let header_length = header_length(headers)?;
    let body = read_body(body, app.config.max_body_bytes, app.config.body_timeout).await?;
    let mut request = decode(body, header_length).await?;
    let Admitted { inputs, rows } = admit(&model.entry, &mut request, app.config.batch.max_rows)?;
    let _in_flight = model.metrics.in_flight();
    let limit =
        timeout(headers).map_or(app.config.request_timeout, |asked| asked.min(app.config.request_timeout));
    let prediction = tokio::time::timeout(limit, model.batcher.infer(inputs, rows))
        .await
        .map_err(|_| ApiError::Late { limit })??;
    let mut outputs = prediction.outputs;
    outputs.retain(|output| request.wants_output(&output.name));
    let response = InferResponse {
        model_name: model.entry.name.clone(),
        model_version: Some(model.version.to_string()),
        id: request.id.take(),
        parameters: Parameters::new(),
        outputs,
    };
    encode_response(&response, |output| request.wants_binary(output)).map_err(ApiError::Answer)
}

/// How long the client will wait, if it says so; what cannot be read says nothing.
fn timeout(headers: &HeaderMap) -> Option<Duration> {
    headers.get(TIMEOUT)?.to_str().ok()?.parse().ok().map(Duration::from_micros)
}

fn header_length(headers: &HeaderMap) -> Result<Option<usize>, ApiError> {
    if let Some(encoding) = headers.get(header::CONTENT_ENCODING).filter(|encoding| *encoding != "identity") {
        return Err(ApiError::ContentEncoding { encoding: lossy(encoding) });
    }
    let Some(value) = headers.get(HEADER_CONTENT_LENGTH) else { return Ok(None) };
    let length = value.to_str().ok().and_then(|text| text.parse().ok());
    length.map(Some).ok_or_else(|| ApiError::HeaderLength { value: lossy(value) })
}

fn lossy(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

async fn decode(body: Bytes, header_length: Option<usize>) -> Result<InferRequest, ApiError> {
    if header_length.unwrap_or(body.len()) < LONG_JSON {
        return Ok(decode_request(body, header_length)?);
    }
    let decoded = tokio::task::spawn_blocking(move || decode_request(body, header_length)).await;
    Ok(decoded.map_err(|_| ApiError::Internal("the request could not be read"))??)
}

fn response(encoded: Encoded) -> Response {
    let content_type = HeaderValue::from_static(encoded.content_type());
    let header_length = encoded.header_length;
    let mut response = Response::new(Body::from(encoded.body));
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    if let Some(length) = header_length {
        let name = HeaderName::from_static(HEADER_CONTENT_LENGTH);
        response.headers_mut().insert(name, HeaderValue::from(length));
    }
    response
}
