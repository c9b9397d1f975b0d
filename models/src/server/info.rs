//! Health, metadata and metrics.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use parapet_open_inference::{CONTENT_TYPE_JSON, ModelMetadata, ServerMetadata};
use serde::Serialize;

use super::app::{App, ModelPath};
use super::error::ApiError;

pub(super) async fn server() -> Response {
    json(&ServerMetadata {
        name: "parapet-instance".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        extensions: vec!["binary_tensor_data".to_owned()],
    })
}

pub(super) async fn live() -> StatusCode {
    StatusCode::OK
}

pub(super) async fn ready(State(app): State<Arc<App>>) -> Result<StatusCode, ApiError> {
    app.check_ready().map(|_| StatusCode::OK)
}

pub(super) async fn model_ready(
    State(app): State<Arc<App>>,
    Path(path): Path<ModelPath>,
) -> Result<StatusCode, ApiError> {
    let model = app.model(&path)?;
    app.check_open()?;
    if model.batcher.is_alive() {
        Ok(StatusCode::OK)
    } else {
        Err(ApiError::WorkerGone { model: path.model })
    }
}

/// The versions that this instance serves, which may be fewer than the repository has.
pub(super) async fn model(
    State(app): State<Arc<App>>,
    Path(path): Path<ModelPath>,
) -> Result<Response, ApiError> {
    let model = app.model(&path)?;
    let versions = app.versions(&path.model)?.keys().map(u64::to_string).collect();
    Ok(json(&ModelMetadata { versions, ..model.entry.metadata() }))
}

pub(super) async fn metrics(State(app): State<Arc<App>>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], app.metrics.render()).into_response()
}

fn json(value: &impl Serialize) -> Response {
    let mut response = Response::new(Body::from(serde_json::to_vec(value).unwrap_or_default()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE_JSON));
    response
}
