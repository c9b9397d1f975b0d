//! State of the application, which every request shares.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use parapet_net::server::{BodyMemory, Connections};
use parapet_net::tls::ServerTls;
use parapet_open_inference::{BINARY_EXTENSION, ServerMetadata};

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
    pub(crate) fn publish(&self) {
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
