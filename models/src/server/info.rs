//! Health, metadata and metrics.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use parapet_open_inference::{BINARY_EXTENSION, ModelMetadata, ServerMetadata, openapi};
use serde_json::json;

use super::app::{App, ModelPath};
use super::error::{ApiError, json as answer};

pub(super) fn server_metadata() -> ServerMetadata {
    ServerMetadata {
        name: "parapet-instance".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        extensions: vec![BINARY_EXTENSION.to_owned()],
    }
}

pub(super) async fn server() -> Response {
    answer(&server_metadata())
}

pub(super) async fn document(State(app): State<Arc<App>>) -> Response {
    let ServerMetadata { name, version, .. } = server_metadata();
    answer(&openapi(&name, &version, app.model_names()))
}

pub(super) async fn live() -> Response {
    answer(&json!({ "live": true }))
}

pub(super) async fn ready(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    app.check_ready()?;
    // The specification calls the field "live" here, too; servers call it "ready".
    Ok(answer(&json!({ "live": true, "ready": true })))
}

pub(super) async fn model_ready(
    State(app): State<Arc<App>>,
    Path(path): Path<ModelPath>,
) -> Result<Response, ApiError> {
    app.check_model_ready(&path)?;
    Ok(answer(&json!({ "name": path.model, "ready": true })))
}

pub(super) async fn model(
    State(app): State<Arc<App>>,
    Path(path): Path<ModelPath>,
) -> Result<Response, ApiError> {
    Ok(answer(&model_metadata(&app, &path)?))
}

/// Metadata of a model, with the versions that this instance serves, which may be fewer than the
/// repository has.
pub(super) fn model_metadata(app: &App, path: &ModelPath) -> Result<ModelMetadata, ApiError> {
    let model = app.model(path)?;
    let versions = app.versions(&path.model)?.keys();
    Ok(ModelMetadata {
        versions: versions.map(u64::to_string).collect(),
        ..model.entry.metadata()
    })
}

pub(super) async fn metrics(State(app): State<Arc<App>>) -> Response {
    if let Some(tls) = &app.tls {
        app.metrics.certificate(tls.expiry());
    }
    let content_type = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];
    (content_type, app.metrics.render()).into_response()
}
