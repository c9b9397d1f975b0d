//! State of the application, which every request shares.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use parapet_net::server::{BodyMemory, Connections};
use parapet_net::tls::ServerTls;
use parapet_open_inference::{BINARY_EXTENSION, ServerMetadata};

use crate::config::{AdminSettings, FrontendConfig, ModelConfig, ServerSettings};
use crate::error::ServeError;
use crate::metrics::Metrics;
use crate::model::ServedModel;
use crate::tenants::Tenants;
use crate::traces::{TraceSettings, Traces};

/// TLS of the listeners, those that speak it; a reload reads their files again.
#[derive(Debug, Clone, Default)]
pub(crate) struct ListenersTls {
    /// Of those for data, over HTTP and over gRPC.
    pub(crate) data: Option<Arc<ServerTls>>,
    pub(crate) admin: Option<Arc<ServerTls>>,
}

impl ListenersTls {
    pub(crate) fn of(config: &FrontendConfig) -> Self {
        Self {
            data: config.server_tls.clone(),
            admin: config.admin.as_ref().and_then(|admin| admin.tls.clone()),
        }
    }

    pub(crate) fn each(&self) -> [Option<&Arc<ServerTls>>; 2] {
        [self.data.as_ref(), self.admin.as_ref()]
    }
}

/// All that a reload of the configuration replaces, as one: the models, the tenants, and the
/// settings that requests are held to.
#[derive(Debug)]
pub struct Serving {
    pub models: BTreeMap<String, Arc<ServedModel>>,
    pub(crate) tenants: Tenants,
    pub(crate) server: ServerSettings,
    pub(crate) admin: Option<AdminSettings>,
    pub(crate) traces: Option<TraceSettings>,
}

impl Serving {
    /// Starts what `config` says. Models configured as in `before` go on as they are there.
    pub(crate) fn start(config: FrontendConfig, before: Option<&Self>, metrics: &Metrics) -> Self {
        let model = |model: ModelConfig| {
            let name = model.entry.name.clone();
            let served = before.and_then(|before| before.models.get(&name));
            let same = served.filter(|served| served.config == model).cloned();
            (name, same.unwrap_or_else(|| Arc::new(ServedModel::start(model, metrics))))
        };
        Self {
            models: config.models.into_iter().map(model).collect(),
            tenants: Tenants::new(&config.tenants, metrics),
            server: config.server,
            admin: config.admin,
            traces: config.traces,
        }
    }

    pub(crate) fn unknown(&self, model: &str) -> ServeError {
        let served: Vec<&str> = self.models.keys().map(String::as_str).collect();
        ServeError::UnknownModel { model: model.into(), served: served.join(", ").as_str().into() }
    }
}

#[derive(Debug)]
pub struct App {
    pub(crate) serving: ArcSwap<Serving>,
    pub(crate) config_path: PathBuf,
    pub(crate) tls: ListenersTls,
    pub(crate) reloading: tokio::sync::Mutex<()>,
    pub(crate) metrics: Metrics,
    draining: AtomicBool,
    pub(crate) connections: Arc<Connections>,
    pub(crate) body_memory: Arc<BodyMemory>,
    pub(crate) traces: Option<Traces>,
}

impl App {
    pub(crate) fn start(config: FrontendConfig, metrics: Metrics, traces: Option<Traces>) -> Self {
        let (config_path, tls) = (config.path.clone(), ListenersTls::of(&config));
        let serving = Serving::start(config, None, &metrics);
        Self {
            config_path,
            tls,
            reloading: tokio::sync::Mutex::new(()),
            metrics,
            draining: AtomicBool::new(false),
            connections: Arc::default(),
            body_memory: Arc::new(BodyMemory::new(serving.server.max_bodies_bytes)),
            traces,
            serving: ArcSwap::from_pointee(serving),
        }
    }

    /// From now on: not ready, and every answer asks its client to go elsewhere.
    pub(crate) fn drain(&self) {
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

    pub(crate) fn is_ready(&self) -> bool {
        let serving = self.serving.load();
        !self.is_draining() && serving.models.values().all(|model| model.driver.is_ready())
    }

    pub(crate) fn metadata() -> ServerMetadata {
        ServerMetadata {
            name: "parapet".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            extensions: vec![BINARY_EXTENSION.to_owned()],
        }
    }

    pub(crate) fn model(
        &self,
        name: &str,
        version: Option<&str>,
    ) -> Result<Arc<ServedModel>, ServeError> {
        let serving = self.serving.load();
        let model = serving.models.get(name).ok_or_else(|| serving.unknown(name))?;
        let served = model.config.version;
        match version {
            Some(version) if version != served.to_string() => Err(ServeError::UnknownVersion {
                model: name.into(),
                version: version.into(),
                served,
            }),
            _ => Ok(Arc::clone(model)),
        }
    }

    pub(crate) fn publish(&self) {
        let serving = self.serving.load();
        let data = self.tls.data.as_ref();
        let grpc = serving.server.grpc_listen.and(data);
        let listeners = [("data", data), ("grpc", grpc), ("admin", self.tls.admin.as_ref())];
        let listeners = listeners.into_iter();
        let mut certificates: Vec<_> =
            listeners.filter_map(|(role, tls)| Some((role, None, tls?.expiry()))).collect();
        for model in serving.models.values() {
            model.driver.publish();
            certificates.extend(model.certificates());
        }
        self.metrics.certificates(&certificates);
        self.metrics.publish_server(&self.connections, &self.body_memory);
    }
}

#[cfg(test)]
pub(crate) mod tests;
