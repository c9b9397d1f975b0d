//! Health, metadata and metrics.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use parapet_open_inference::{
    BINARY_EXTENSION, CONTENT_TYPE_JSON, ModelMetadata, ServerMetadata, openapi,
};
use serde::Serialize;
use serde_json::json;

use super::app::{App, ModelPath};
use super::error::ApiError;

/// Returns the protocol's metadata of the server.
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
    // The specification calls the field "live" here, too; servers call it "ready".
    app.check_ready()
        .map(|_| answer(&json!({ "live": true, "ready": true })))
}

pub(super) async fn model_ready(
    State(app): State<Arc<App>>,
    Path(path): Path<ModelPath>,
) -> Result<Response, ApiError> {
    app.check_model_ready(&path)?;
    Ok(answer(&json!({ "name": path.model, "ready": true })))
}

/// The versions that this instance serves, which may be fewer than the repository has.
pub(super) async fn model(
    State(app): State<Arc<App>>,
    Path(path): Path<ModelPath>,
) -> Result<Response, ApiError> {
    Ok(answer(&model_metadata(&app, &path)?))
}

/// Returns the protocol's metadata of a model.
pub(super) fn model_metadata(app: &App, path: &ModelPath) -> Result<ModelMetadata, ApiError> {
    let model = app.model(path)?;
    let versions = app
        .versions(&path.model)?
        .keys()
        .map(u64::to_string)
        .collect();
    Ok(ModelMetadata {
        versions,
        ..model.entry.metadata()
    })
}

pub(super) async fn metrics(State(app): State<Arc<App>>) -> Response {
    if let Some(tls) = &app.tls {
        app.metrics.certificate(tls.expiry());
    }
    (
        [(header::CONTENT_TYPE, "text/plain; version=0.0.4")],
        app.metrics.render(),
    )
        .into_response()
}

fn answer(value: &impl Serialize) -> Response {
    let mut response = Response::new(Body::from(serde_json::to_vec(value).unwrap_or_default()));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static(CONTENT_TYPE_JSON),
    );
    response
}
