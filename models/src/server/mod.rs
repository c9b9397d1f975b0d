//! The Open Inference Protocol over HTTP and gRPC.

mod admission;
mod app;
mod error;
pub(crate) mod grpc;
mod infer;
mod info;
mod observe;

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn;
use axum::routing::{get, post};
use parapet_open_inference::OPENAPI_PATH;

pub(crate) use app::{App, Models, ServedModel};

/// Routes for probes and scrapers, which have no certificate.
pub(crate) fn health(app: Arc<App>) -> Router {
    with_fallbacks(health_routes()).with_state(app)
}

pub(crate) fn router(app: Arc<App>) -> Router {
    let mut router = health_routes()
        .route("/v2", get(info::server))
        .route(OPENAPI_PATH, get(info::document));
    for model in [
        "/v2/models/{model}",
        "/v2/models/{model}/versions/{version}",
    ] {
        router = router
            .route(model, get(info::model))
            .route(&format!("{model}/ready"), get(info::model_ready))
            .route(&format!("{model}/infer"), post(infer::infer));
    }
    with_fallbacks(router)
        .with_state(app)
        .layer(from_fn(observe::request_id))
}

fn health_routes() -> Router<Arc<App>> {
    Router::new()
        .route("/v2/health/live", get(info::live))
        .route("/v2/health/ready", get(info::ready))
        .route("/metrics", get(info::metrics))
}

fn with_fallbacks(router: Router<Arc<App>>) -> Router<Arc<App>> {
    router
        .fallback(error::no_route)
        .method_not_allowed_fallback(error::no_method)
}
