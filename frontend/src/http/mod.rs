//! The Open Inference Protocol's server side: paths, and what the server says about itself.

mod infer;
mod triton;

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use http::header::CONNECTION;
use http::{HeaderValue, Method, StatusCode, Uri, Version};
use hyper::body::Incoming;
use parapet_open_inference::rest::{self, ModelPath};
use parapet_open_inference::{OPENAPI_PATH, ServerMetadata, openapi};
use serde::Serialize;
use serde_json::json;
use tower::{Service, ServiceExt as _, service_fn};

use self::infer::{HEALTH, admit, asked_model, infer, infer_routed};
use crate::app::App;
use crate::error::ServeError;

/// Service of the data listener: predictions, and all else by a router, whose layers would take a
/// tenth of the time that a prediction spends in this program.
pub(crate) fn service(
    app: Arc<App>,
) -> impl Service<Request<Incoming>, Response = Response, Error = Infallible, Future: Send>
+ Clone
+ Send
+ Sync
+ 'static {
    let router = router(Arc::clone(&app));
    service_fn(move |request: Request<Incoming>| {
        let (app, router) = (Arc::clone(&app), router.clone());
        Box::pin(async move { Ok(respond(&app, router, request.map(Body::new)).await) })
    })
}

/// On a request's way in checks the key and the quota; on its way out, while the server drains,
/// asks its client to go elsewhere.
async fn respond(app: &App, router: Router, mut request: Request) -> Response {
    let version = request.version();
    let mut response = match (admit(app, &request), asked_model(&request)) {
        (Err(refused), _) => refused.into_response(),
        (Ok(domain), Some(path)) => infer(app, domain, &path, request).await,
        (Ok(domain), None) => {
            request.extensions_mut().insert(domain);
            router.oneshot(request).await.into_response()
        }
    };
    // Kept connections would be closed soon, perhaps just when their clients send; told so,
    // clients open one elsewhere.
    if app.is_draining() && version <= Version::HTTP_11 {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

fn router(app: Arc<App>) -> Router {
    let [live, ready] = HEALTH;
    let mut router = Router::new()
        .route("/v2", get(server_metadata))
        .route("/v2/", get(server_metadata))
        .route(OPENAPI_PATH, get(document))
        .route(live, get(async || answer(&json!({ "live": true }))))
        .route(ready, get(server_ready))
        .route("/metrics", get(data_metrics));
    for model in ["/v2/models/{model}", "/v2/models/{model}/versions/{version}"] {
        router = router
            .route(model, get(model_metadata))
            .route(&format!("{model}/ready"), get(model_ready))
            .route(&format!("{model}/infer"), post(infer_routed));
    }
    router
        .merge(triton::routes())
        .fallback(unknown_path)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(app)
}

pub(crate) fn answer(value: &impl Serialize) -> Response {
    answer_with(StatusCode::OK, value)
}

pub(crate) fn answer_with(status: StatusCode, value: &impl Serialize) -> Response {
    rest::respond_json(status, value).map(Body::from)
}

async fn server_metadata() -> Response {
    answer(&App::metadata())
}

async fn document(State(app): State<Arc<App>>) -> Response {
    let ServerMetadata { name, version, .. } = App::metadata();
    let serving = app.serving();
    answer(&openapi(&name, &version, serving.models.keys().map(String::as_str)))
}

fn status_of(ready: bool) -> StatusCode {
    if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

pub(crate) async fn server_ready(State(app): State<Arc<App>>) -> Response {
    // The specification calls the field "live" here, too; servers call it "ready".
    let ready = app.is_ready();
    answer_with(status_of(ready), &json!({ "live": true, "ready": ready }))
}

async fn model_metadata(
    State(app): State<Arc<App>>,
    Path(path): Path<ModelPath>,
) -> Result<Response, ServeError> {
    Ok(answer(&app.model(&path.model, path.version.as_deref())?.metadata()))
}

async fn model_ready(
    State(app): State<Arc<App>>,
    Path(path): Path<ModelPath>,
) -> Result<Response, ServeError> {
    let model = app.model(&path.model, path.version.as_deref())?;
    let ready = !app.is_draining() && model.driver.is_ready();
    Ok(answer_with(status_of(ready), &json!({ "name": path.model, "ready": ready })))
}

pub(crate) async fn metrics(State(app): State<Arc<App>>) -> Response {
    // It takes milliseconds. A client that sends many requests ahead has up to 16 of them answered
    // in one turn of its connection, while all others wait.
    tokio::task::yield_now().await;
    app.publish();
    let content_type = "text/plain; version=0.0.4; charset=utf-8";
    rest::respond(StatusCode::OK, content_type, app.metrics.render().into()).map(Body::from)
}

/// Refuses to tell how much is asked, on the data listener. Tenants must not see each other: where
/// there are any, that is for the admin listener.
async fn check_may_count(app: &App, uri: Uri) -> Result<(), ServeError> {
    let serving = app.serving();
    match serving.server.metrics.unwrap_or_else(|| serving.tenants.is_open()) {
        true => Ok(()),
        false => Err(unknown_path(uri).await),
    }
}

async fn data_metrics(State(app): State<Arc<App>>, uri: Uri) -> Result<Response, ServeError> {
    check_may_count(&app, uri).await?;
    Ok(metrics(State(app)).await)
}

pub(crate) async fn unknown_path(uri: Uri) -> ServeError {
    ServeError::UnknownPath { path: uri.path().into() }
}

async fn method_not_allowed(method: Method, uri: Uri) -> ServeError {
    ServeError::Method { method: method.as_str().into(), path: uri.path().into() }
}
