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

use super::infer::{HEALTH, ModelPath, guard, infer};
use super::{error, json, with_type};
use crate::app::App;
use crate::error::ServeError;

pub(crate) fn router(app: Arc<App>) -> Router {
    let [live, ready] = HEALTH;
    let mut router = Router::new()
        .route("/v2", get(server_metadata))
        .route("/v2/", get(server_metadata))
        .route(OPENAPI_PATH, get(document))
        .route(
            live,
            get(async || json(StatusCode::OK, &json!({ "live": true }))),
        )
        .route(ready, get(server_ready))
        .route("/metrics", get(data_metrics));
    for model in [
        "/v2/models/{model}",
        "/v2/models/{model}/versions/{version}",
    ] {
        router = router
            .route(model, get(model_metadata))
            .route(&format!("{model}/ready"), get(model_ready))
            .route(&format!("{model}/infer"), post(infer));
    }
    router
        .fallback(unknown_path)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(Arc::clone(&app), guard))
        .with_state(app)
}

async fn server_metadata() -> Response {
    json(StatusCode::OK, &App::metadata())
}

async fn document(State(app): State<Arc<App>>) -> Response {
    let ServerMetadata { name, version, .. } = App::metadata();
    let serving = app.serving();
    let models = serving.models.keys().map(String::as_str);
    json(StatusCode::OK, &openapi(&name, &version, models))
}

fn status_of(ready: bool) -> StatusCode {
    if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    }
}

pub(crate) async fn server_ready(State(app): State<Arc<App>>) -> Response {
    // The specification calls the field "live" here, too; servers call it "ready".
    let ready = app.is_ready();
    json(status_of(ready), &json!({ "live": true, "ready": ready }))
}

async fn model_metadata(State(app): State<Arc<App>>, Path(path): Path<ModelPath>) -> Response {
    match app.model(&path.model, path.version.as_deref()) {
        Ok(model) => json(StatusCode::OK, &model.metadata()),
        Err(refused) => error(&refused),
    }
}

async fn model_ready(State(app): State<Arc<App>>, Path(path): Path<ModelPath>) -> Response {
    match app.model(&path.model, path.version.as_deref()) {
        Ok(model) => {
            let ready = !app.is_draining() && model.driver.is_ready();
            json(
                status_of(ready),
                &json!({ "name": path.model, "ready": ready }),
            )
        }
        Err(refused) => error(&refused),
    }
}

/// Prometheus' text format.
pub(crate) async fn metrics(State(app): State<Arc<App>>) -> Response {
    app.publish();
    let content_type = "text/plain; version=0.0.4; charset=utf-8";
    with_type(StatusCode::OK, content_type, app.metrics.render())
}

/// Tenants must not see each other: where there are any, metrics are the admin listener's.
async fn data_metrics(State(app): State<Arc<App>>, uri: Uri) -> Response {
    let serving = app.serving();
    let here = serving
        .server
        .metrics
        .unwrap_or_else(|| serving.tenants.is_open());
    if here {
        metrics(State(app)).await
    } else {
        unknown_path(uri).await
    }
}

pub(crate) async fn unknown_path(uri: Uri) -> Response {
    let path = uri.path().into();
    error(&ServeError::UnknownPath { path })
}

async fn method_not_allowed(method: Method, uri: Uri) -> Response {
    let (method, path) = (method.as_str().into(), uri.path().into());
    error(&ServeError::Method { method, path })
}
