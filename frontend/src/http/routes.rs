//! Paths of the protocol, and what the server says about itself.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{get, post};
use http::{Method, StatusCode, Uri};
use parapet_open_inference::{OPENAPI_PATH, ServerMetadata, openapi};
use serde_json::json;

use super::guard::guard;
use super::infer;
use super::response::{error, json, text};
use crate::app::App;
use crate::error::ServeError;

/// The router of the data listener.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/v2", get(server_metadata))
        .route("/v2/", get(server_metadata))
        .route(OPENAPI_PATH, get(document))
        .route("/v2/health/live", get(server_live))
        .route("/v2/health/ready", get(server_ready))
        .route("/v2/models/{model}", get(model_metadata))
        .route("/v2/models/{model}/ready", get(model_ready))
        .route("/v2/models/{model}/infer", post(infer::infer))
        .route(
            "/v2/models/{model}/versions/{version}",
            get(version_metadata),
        )
        .route(
            "/v2/models/{model}/versions/{version}/ready",
            get(version_ready),
        )
        .route(
            "/v2/models/{model}/versions/{version}/infer",
            post(infer::infer_version),
        )
        .route("/metrics", get(data_metrics))
        .fallback(unknown_path)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(Arc::clone(&app), guard))
        .with_state(app)
}

async fn server_metadata() -> Response {
    json(&App::metadata())
}

async fn document(State(app): State<Arc<App>>) -> Response {
    let ServerMetadata { name, version, .. } = App::metadata();
    let serving = app.serving();
    json(&openapi(
        &name,
        &version,
        serving.models().map(|model| model.name()),
    ))
}

async fn server_live() -> Response {
    json(&json!({ "live": true }))
}

pub(crate) async fn server_ready(State(app): State<Arc<App>>) -> Response {
    // The specification calls the field "live" here, too; servers call it "ready".
    let ready = app.is_ready();
    let mut response = json(&json!({ "live": true, "ready": ready }));
    if !ready {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    response
}

async fn model_metadata(State(app): State<Arc<App>>, Path(name): Path<String>) -> Response {
    match app.model(&name, None) {
        Ok(model) => json(&model.metadata()),
        Err(refused) => error(&refused),
    }
}

async fn version_metadata(
    State(app): State<Arc<App>>,
    Path((name, version)): Path<(String, String)>,
) -> Response {
    match app.model(&name, Some(&version)) {
        Ok(model) => json(&model.metadata()),
        Err(refused) => error(&refused),
    }
}

async fn model_ready(State(app): State<Arc<App>>, Path(name): Path<String>) -> Response {
    ready(&app, &name, None)
}

async fn version_ready(
    State(app): State<Arc<App>>,
    Path((name, version)): Path<(String, String)>,
) -> Response {
    ready(&app, &name, Some(&version))
}

fn ready(app: &App, name: &str, version: Option<&str>) -> Response {
    match app.model(name, version) {
        Ok(model) => {
            let ready = !app.is_draining() && model.driver().is_ready();
            let mut response = json(&json!({ "name": name, "ready": ready }));
            if !ready {
                *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            }
            response
        }
        Err(refused) => error(&refused),
    }
}

/// Prometheus' text format.
pub(crate) async fn metrics(State(app): State<Arc<App>>) -> Response {
    app.publish();
    text(app.metrics().render())
}

/// Tenants must not see each other: where there are any, metrics are the admin listener's.
async fn data_metrics(State(app): State<Arc<App>>, uri: Uri) -> Response {
    let serving = app.serving();
    if serving
        .server()
        .metrics
        .unwrap_or_else(|| serving.tenants().is_open())
    {
        metrics(State(app)).await
    } else {
        unknown_path(uri).await
    }
}

async fn unknown_path(uri: Uri) -> Response {
    error(&ServeError::UnknownPath {
        path: uri.path().into(),
    })
}

async fn method_not_allowed(method: Method, uri: Uri) -> Response {
    let (method, path) = (method.as_str().into(), uri.path().into());
    error(&ServeError::Method { method, path })
}
