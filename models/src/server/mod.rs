//! The Open Inference Protocol over HTTP and gRPC.

mod app;
mod error;
pub(crate) mod grpc;
mod infer;

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::header;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use parapet_open_inference::grpc::message::ModelConfig;
use parapet_open_inference::rest::{self, ModelPath};
use parapet_open_inference::{
    BINARY_EXTENSION, ModelMetadata, OPENAPI_PATH, ServerMetadata, openapi,
};
use serde_json::json;
use tracing::Instrument as _;

pub(crate) use self::app::{App, Models, ServedModel};
use self::error::{ApiError, json as answer};

/// Routes for probes and scrapers, which have no certificate.
pub(crate) fn health(app: Arc<App>) -> Router {
    with_fallbacks(health_routes()).with_state(app)
}

pub(crate) fn router(app: Arc<App>) -> Router {
    let mut router = health_routes()
        .route("/v2", get(async || answer(&server_metadata())))
        .route(OPENAPI_PATH, get(document));
    for path in ["/v2/models/{model}", "/v2/models/{model}/versions/{version}"] {
        router = router
            .route(path, get(model))
            .route(&format!("{path}/ready"), get(model_ready))
            .route(&format!("{path}/config"), get(configuration))
            .route(&format!("{path}/infer"), post(infer::infer));
    }
    with_fallbacks(router).with_state(app).layer(from_fn(with_request_id))
}

fn health_routes() -> Router<Arc<App>> {
    let live = async || answer(&json!({ "live": true }));
    Router::new()
        .route("/v2/health/live", get(live))
        .route("/v2/health/ready", get(ready))
        .route("/metrics", get(metrics))
}

fn with_fallbacks(router: Router<Arc<App>>) -> Router<Arc<App>> {
    router.fallback(error::no_route).method_not_allowed_fallback(error::no_method)
}

/// Gives each request an id, the client's if it sent one, which stands in the log and the answer.
async fn with_request_id(request: Request, next: Next) -> Response {
    let start = Instant::now();
    let id = rest::request_id(request.headers());
    let span = tracing::info_span!(
        "request",
        request_id = id.to_str().unwrap_or_default(),
        method = %request.method(),
        path = request.uri().path(),
    );
    let answer = async {
        let response = next.run(request).await;
        let status = response.status().as_u16();
        tracing::debug!(status, elapsed = ?start.elapsed(), "answered");
        response
    };
    let mut response = answer.instrument(span).await;
    response.headers_mut().insert(&rest::REQUEST_ID, id);
    response
}

fn server_metadata() -> ServerMetadata {
    ServerMetadata {
        name: "parapet-instance".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        extensions: vec![BINARY_EXTENSION.to_owned()],
    }
}

async fn document(State(app): State<Arc<App>>) -> Response {
    let ServerMetadata { name, version, .. } = server_metadata();
    answer(&openapi(&name, &version, app.model_names()))
}

async fn ready(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    app.check_ready()?;
    // The specification calls the field "live" here, too; servers call it "ready".
    Ok(answer(&json!({ "live": true, "ready": true })))
}

async fn model_ready(
    State(app): State<Arc<App>>,
    Path(path): Path<ModelPath>,
) -> Result<Response, ApiError> {
    app.check_model_ready(&path)?;
    Ok(answer(&json!({ "name": path.model, "ready": true })))
}

async fn model(
    State(app): State<Arc<App>>,
    Path(path): Path<ModelPath>,
) -> Result<Response, ApiError> {
    Ok(answer(&model_metadata(&app, &path)?))
}

async fn configuration(
    State(app): State<Arc<App>>,
    Path(path): Path<ModelPath>,
) -> Result<Response, ApiError> {
    Ok(answer(&model_config(&app, &path)?))
}

fn model_config(app: &App, path: &ModelPath) -> Result<ModelConfig, ApiError> {
    Ok(ModelConfig::new(&model_metadata(app, path)?, app.config.batch.max_rows))
}

/// A model's metadata, with the versions this instance serves, maybe fewer than the repository has.
fn model_metadata(app: &App, path: &ModelPath) -> Result<ModelMetadata, ApiError> {
    let model = app.model(path)?;
    let versions = app.versions(&path.model)?.keys();
    Ok(ModelMetadata { versions: versions.map(u64::to_string).collect(), ..model.entry.metadata() })
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    if let Some(tls) = &app.tls {
        app.metrics.certificate(tls.expiry());
    }
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], app.metrics.render()).into_response()
}
