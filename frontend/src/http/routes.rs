//! Paths of the protocol, and what the server says about itself.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use axum::Router;
use axum::extract::{Path, State};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{get, post};
use http::header::ACCEPT;
use http::{HeaderMap, Method, StatusCode, Uri};
use parapet_net::server::{BodyMemory, Connections};
use parapet_net::tls::ServerTls;
use parapet_open_inference::{BINARY_EXTENSION, OPENAPI_PATH, ServerMetadata, openapi};
use serde_json::json;

use super::guard::guard;
use super::infer;
use super::response::{error, json, text, with_type};
use crate::busy_poll::BusyPoll;
use crate::config::{FrontendConfig, ServerSettings};
use crate::error::ServeError;
use crate::metrics::{Metrics, ServerMeters, ShownCertificate};
use crate::model::ServedModel;
use crate::serving::Serving;
use crate::traces::Traces;

/// TLS of the listeners, those that speak it; a reload reads their files again.
#[derive(Debug, Clone, Default)]
pub(crate) struct ListenersTls {
    /// Of those for data, over HTTP and over gRPC.
    pub(crate) data: Option<Arc<ServerTls>>,
    pub(crate) admin: Option<Arc<ServerTls>>,
}

impl ListenersTls {
    pub(crate) fn of(config: &FrontendConfig) -> Self {
        let admin = config.admin.as_ref().and_then(|admin| admin.tls.clone());
        Self {
            data: config.server_tls.clone(),
            admin,
        }
    }

    pub(crate) fn each(&self) -> [Option<&Arc<ServerTls>>; 2] {
        [self.data.as_ref(), self.admin.as_ref()]
    }
}

/// Everything that requests need.
#[derive(Debug)]
pub struct App {
    serving: ArcSwap<Serving>,
    config_path: PathBuf,
    tls: ListenersTls,
    reloading: tokio::sync::Mutex<()>,
    metrics: Metrics,
    draining: AtomicBool,
    busy_poll: BusyPoll,
    connections: Arc<Connections>,
    body_memory: Arc<BodyMemory>,
    meters: ServerMeters,
    traces: Option<Traces>,
}

impl App {
    /// An application that serves these models to everybody; a reload finds no configuration.
    pub fn new(models: Vec<ServedModel>, metrics: Metrics, settings: ServerSettings) -> Self {
        let serving = Serving::of_models(models, settings, &metrics);
        Self::of(serving, metrics, PathBuf::new(), ListenersTls::default())
    }

    /// Traces requests from now on.
    #[must_use]
    pub fn with_traces(self, traces: Option<Traces>) -> Self {
        Self { traces, ..self }
    }

    /// Returns the exporter of traces, if there is one.
    pub(crate) fn traces(&self) -> Option<&Traces> {
        self.traces.as_ref()
    }

    /// An application that serves as configured.
    pub fn start(config: FrontendConfig, metrics: Metrics) -> Self {
        let path = config.path.clone();
        let tls = ListenersTls::of(&config);
        let serving = Serving::start(config, None, &metrics);
        Self::of(serving, metrics, path, tls)
    }

    fn of(serving: Serving, metrics: Metrics, config_path: PathBuf, tls: ListenersTls) -> Self {
        let busy_poll = BusyPoll::new(serving.server().busy_poll);
        let body_memory = Arc::new(BodyMemory::new(serving.server().max_bodies_bytes));
        let meters = metrics.server();
        Self {
            serving: ArcSwap::from_pointee(serving),
            config_path,
            tls,
            reloading: tokio::sync::Mutex::new(()),
            metrics,
            draining: AtomicBool::new(false),
            busy_poll,
            connections: Arc::default(),
            body_memory,
            meters,
            traces: None,
        }
    }

    /// From now on: not ready, and every answer asks its client to go elsewhere.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Returns the models that are served now. A request keeps to what it was given, whatever a
    /// reload does meanwhile.
    pub fn serving(&self) -> Arc<Serving> {
        self.serving.load_full()
    }

    /// Serves this from now on.
    pub(crate) fn serve(&self, serving: Serving) {
        self.serving.store(Arc::new(serving));
    }

    pub(crate) fn config_path(&self) -> &std::path::Path {
        &self.config_path
    }

    /// TLS of the listeners.
    pub(crate) fn tls(&self) -> &ListenersTls {
        &self.tls
    }

    pub(crate) fn reloading(&self) -> &tokio::sync::Mutex<()> {
        &self.reloading
    }

    pub(crate) fn count_reload(&self, done: bool) {
        self.meters.reloaded(done);
    }

    /// Returns true if every model has an instance that answers.
    pub(crate) fn is_ready(&self) -> bool {
        !self.is_draining()
            && self
                .serving
                .load()
                .models()
                .all(|model| model.driver().is_ready())
    }

    /// Returns the metadata of the server.
    pub(crate) fn metadata() -> ServerMetadata {
        ServerMetadata {
            name: "parapet".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            extensions: vec![BINARY_EXTENSION.to_owned()],
        }
    }

    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Returns the task that keeps the serving thread awake while there is load.
    pub(crate) fn busy_poll(&self) -> &BusyPoll {
        &self.busy_poll
    }

    /// The connections of its listeners.
    pub(crate) fn connections(&self) -> &Arc<Connections> {
        &self.connections
    }

    /// Returns the memory that the bodies of all requests share.
    pub(crate) fn body_memory(&self) -> &Arc<BodyMemory> {
        &self.body_memory
    }

    pub(crate) fn model(
        &self,
        name: &str,
        version: Option<&str>,
    ) -> Result<Arc<ServedModel>, ServeError> {
        let serving = self.serving.load();
        let model = serving
            .model(name)
            .ok_or_else(|| ServeError::UnknownModel { model: name.into() })?;
        match version {
            Some(version) if version != model.version().to_string() => {
                Err(ServeError::UnknownVersion {
                    model: name.into(),
                    version: version.into(),
                    served: model.version(),
                })
            }
            _ => Ok(Arc::clone(model)),
        }
    }

    /// Brings all meters up to date.
    fn publish(&self) {
        for model in self.serving.load().models() {
            model.driver().publish();
        }
        self.meters.publish(&self.connections, &self.body_memory);
        self.metrics.certificates(self.certificates());
    }

    /// Returns every certificate that this frontend presents, as it was read last.
    fn certificates(&self) -> Vec<ShownCertificate> {
        let serving = self.serving.load();
        let listener = |role, tls: Option<&Arc<ServerTls>>| {
            tls.map(|tls| ShownCertificate {
                role,
                pool: None,
                expiry: tls.expiry(),
            })
        };
        let grpc = serving.server().grpc_listen.and(self.tls.data.as_ref());
        let listeners = [
            listener("data", self.tls.data.as_ref()),
            listener("grpc", grpc),
            listener("admin", self.tls.admin.as_ref()),
        ];
        let clients = serving.models().flat_map(|model| model.certificates());
        listeners.into_iter().flatten().chain(clients).collect()
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

/// Prometheus' text format; with traces, which exemplars name, OpenMetrics for who asks for it.
pub(crate) async fn metrics(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    app.publish();
    let accept = headers
        .get(ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .filter(|_| app.traces.is_some());
    match accept.and_then(|accept| app.metrics.render_openmetrics(accept)) {
        Some((content_type, rendered)) => with_type(StatusCode::OK, content_type, rendered),
        None => text(app.metrics.render()),
    }
}

/// Tenants must not see each other: where there are any, metrics are the admin listener's.
async fn data_metrics(State(app): State<Arc<App>>, uri: Uri, headers: HeaderMap) -> Response {
    let serving = app.serving();
    if serving
        .server()
        .metrics
        .unwrap_or_else(|| serving.tenants().is_open())
    {
        metrics(State(app), headers).await
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
