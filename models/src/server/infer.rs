//! `POST .../infer`.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use bytes::Bytes;
use parapet_config::repository::{check_outputs, take_inputs};
use parapet_net::server::{BodyError, read_body};
use parapet_open_inference::compression::Coding;
use parapet_open_inference::rest::{self, ModelPath};
use parapet_open_inference::{
    InferRequest, InferResponse, Parameters, Unbounded, compression, decode_request,
    encode_response,
};

use super::app::{App, ServedModel};
use super::error::{ApiError, outcome};

/// Microseconds for which the client waits for its answer.
const TIMEOUT: &str = "parapet-timeout-us";

pub(super) async fn infer(
    State(app): State<Arc<App>>,
    Path(path): Path<ModelPath>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let model = app.model(&path)?;
    let result = answer(&app, &model, &headers, body).await;
    model.metrics.request(outcome(&result));
    result
}

async fn answer(
    app: &App,
    model: &ServedModel,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    app.check_open()?;
    let coding = Coding::of_request(headers)?;
    let header_length = rest::header_length(headers)?;
    let body = read_body(body, app.config.max_body_bytes, app.config.body_timeout).await?;
    let mut request = decode(body, coding, header_length, app).await?;
    let most = app.config.request_timeout;
    let limit = timeout(headers).map_or(most, |asked| asked.min(most));
    let response = predict(app, model, &mut request, limit).await?;
    let encoded = encode_response(&response, |output| request.wants_binary(output));
    Ok(rest::respond_encoded(encoded.map_err(ApiError::Answer)?, headers).await.map(Body::from))
}

/// The answer to a request, whatever protocol it came by, within `limit`.
pub(super) async fn predict(
    app: &App,
    model: &ServedModel,
    request: &mut InferRequest,
    limit: Duration,
) -> Result<InferResponse, ApiError> {
    let (entry, given) = (&model.entry, std::mem::take(&mut request.inputs));
    let taken = take_inputs(&entry.inputs, given, app.config.batch.max_rows);
    let (inputs, rows) = taken.map_err(ApiError::Input)?;
    check_outputs(&entry.outputs, &request.outputs).map_err(ApiError::Input)?;
    let _in_flight = model.metrics.in_flight();
    let prediction = tokio::time::timeout(limit, model.batcher.infer(inputs, rows)).await;
    let outputs = prediction.map_err(|_| ApiError::Late { limit })??;
    let outputs = request.select(outputs)?;
    Ok(InferResponse {
        model_name: model.entry.name.clone(),
        model_version: Some(model.version.to_string()),
        id: request.id.take(),
        parameters: Parameters::new(),
        outputs,
    })
}

fn timeout(headers: &HeaderMap) -> Option<Duration> {
    Some(Duration::from_micros(headers.get(TIMEOUT)?.to_str().ok()?.parse().ok()?))
}

async fn decode(
    body: Bytes,
    coding: Option<Coding>,
    header_length: Option<usize>,
    app: &App,
) -> Result<InferRequest, ApiError> {
    let (max_bytes, limit) = (app.config.max_body_bytes, app.config.body_timeout);
    let json = header_length.unwrap_or(body.len());
    let decode = move |body, _, _| Ok(decode_request(body, header_length)?);
    let decoding = compression::read(coding, body, json, max_bytes, Unbounded, decode);
    // Bodies are decoded in turn, so that this takes time as receiving does.
    tokio::time::timeout(limit, decoding).await.map_err(|_| BodyError::Timeout { limit })?
}
