//! Paths of the protocol, and what the server says about itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::{get, post};
use http::{Method, StatusCode, Uri};
use parapet_open_inference::{BINARY_EXTENSION, OPENAPI_PATH, ServerMetadata, openapi};
use serde_json::json;

use super::infer;
use super::response::{error, json, text};
use crate::busy_poll::BusyPoll;
use crate::config::ServerSettings;
use crate::error::ServeError;
use crate::metrics::Metrics;
use crate::model::ServedModel;

/// Everything that requests need.
#[derive(Debug)]
pub struct App {
    models: BTreeMap<String, ServedModel>,
    metrics: Metrics,
    settings: ServerSettings,
    draining: AtomicBool,
    busy_poll: BusyPoll,
}

impl App {
    /// An application that serves these models.
    pub fn new(models: Vec<ServedModel>, metrics: Metrics, settings: ServerSettings) -> Self {
        let models = models.into_iter().map(|model| (model.name().to_owned(), model)).collect();
        let busy_poll = BusyPoll::new(settings.busy_poll);
        Self { models, metrics, settings, draining: AtomicBool::new(false), busy_poll }
    }

    /// From now on: not ready, and no new inference.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Whether every model has an instance that answers.
    pub(crate) fn is_ready(&self) -> bool {
        !self.is_draining() && self.models().all(|model| model.driver().is_ready())
    }

    /// What the protocol says of the server.
    pub(crate) fn metadata() -> ServerMetadata {
        ServerMetadata {
            name: "parapet".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            extensions: vec![BINARY_EXTENSION.to_owned()],
        }
    }

    /// The models, by name.
    pub fn models(&self) -> impl Iterator<Item = &ServedModel> {
        self.models.values()
    }

    /// The registry.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// What keeps the serving thread awake while there is load.
    pub(crate) fn busy_poll(&self) -> &BusyPoll {
        &self.busy_poll
    }

    pub(crate) fn settings(&self) -> &ServerSettings {
        &self.settings
    }

    pub(crate) fn model(&self, name: &str, version: Option<&str>) -> Result<&ServedModel, ServeError> {
        let model = self
            .models
            .get(name)
            .ok_or_else(|| ServeError::UnknownModel { model: name.chars().take(100).collect() })?;
        match version {
            Some(version) if version != model.version().to_string() => Err(ServeError::UnknownVersion {
                model: name.to_owned(),
                version: version.chars().take(40).collect(),
                served: model.version(),
            }),
            _ => Ok(model),
        }
    }
}

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
        .route("/v2/models/{model}/versions/{version}", get(version_metadata))
        .route("/v2/models/{model}/versions/{version}/ready", get(version_ready))
        .route("/v2/models/{model}/versions/{version}/infer", post(infer::infer_version))
        .route("/metrics", get(metrics))
        .fallback(unknown_path)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(app)
}

async fn server_metadata() -> Response {
    json(&App::metadata())
}

async fn document(State(app): State<Arc<App>>) -> Response {
    let ServerMetadata { name, version, .. } = App::metadata();
    json(&openapi(&name, &version, app.models().map(ServedModel::name)))
}

async fn server_live() -> Response {
    json(&json!({ "live": true }))
}

async fn server_ready(State(app): State<Arc<App>>) -> Response {
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

async fn metrics(State(app): State<Arc<App>>) -> Response {
    for model in app.models() {
        model.driver().publish();
    }
    text(app.metrics.render())
}

async fn unknown_path(uri: Uri) -> Response {
    error(&ServeError::UnknownPath { path: uri.path().chars().take(100).collect() })
}

async fn method_not_allowed(method: Method, uri: Uri) -> Response {
    let (method, path) = (method.to_string(), uri.path().chars().take(100).collect());
    error(&ServeError::Method { method, path })
}
