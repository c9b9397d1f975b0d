//! State that the handlers share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parapet_config::repository::ModelEntry;
use parapet_net::tls::ServerTls;
use parapet_open_inference::Excerpt;
use parapet_open_inference::rest::ModelPath;

use super::error::ApiError;
use crate::batching::Batcher;
use crate::config::Config;
use crate::metrics::{Metrics, ModelMetrics};

pub(crate) struct ServedModel {
    pub(crate) entry: ModelEntry,
    pub(crate) version: u64,
    pub(crate) batcher: Batcher,
    pub(crate) metrics: ModelMetrics,
}

pub(crate) type Models = BTreeMap<String, BTreeMap<u64, Arc<ServedModel>>>;

pub(crate) struct App {
    pub(crate) config: Config,
    pub(crate) metrics: Metrics,
    pub(crate) tls: Option<Arc<ServerTls>>,
    /// Set once all models are loaded and warm.
    pub(crate) models: OnceLock<Models>,
    draining: AtomicBool,
}

impl App {
    pub(crate) fn new(config: Config, metrics: Metrics, tls: Option<Arc<ServerTls>>) -> Self {
        Self { config, metrics, tls, models: OnceLock::new(), draining: AtomicBool::new(false) }
    }

    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Fails while starting, while draining, and when a model's worker died.
    pub(super) fn check_ready(&self) -> Result<(), ApiError> {
        self.check_open()?;
        let models = self.models.get().ok_or(ApiError::Starting)?;
        models.values().flat_map(BTreeMap::values).try_for_each(|model| check_alive(model))
    }

    /// Names of the models that are served; none while starting.
    pub(super) fn model_names(&self) -> impl Iterator<Item = &str> {
        self.models.get().into_iter().flat_map(|models| models.keys().map(String::as_str))
    }

    pub(super) fn versions(
        &self,
        model: &str,
    ) -> Result<&BTreeMap<u64, Arc<ServedModel>>, ApiError> {
        let models = self.models.get().ok_or(ApiError::Starting)?;
        models.get(model).ok_or_else(|| ApiError::UnknownModel {
            model: model.into(),
            available: models.keys().cloned().collect(),
        })
    }

    /// The model that a path names; the highest version it serves, if the path names none.
    pub(super) fn model(&self, path: &ModelPath) -> Result<Arc<ServedModel>, ApiError> {
        let versions = self.versions(&path.model)?;
        let found = match path.version.as_deref().map(str::parse::<u64>) {
            None => versions.values().next_back(),
            Some(version) => version.ok().and_then(|version| versions.get(&version)),
        };
        found.cloned().ok_or_else(|| ApiError::UnknownVersion {
            model: Excerpt::from(&path.model),
            version: path.version.as_deref().unwrap_or_default().into(),
            available: versions.keys().copied().collect(),
        })
    }

    /// Fails as [`check_ready`](Self::check_ready), for one model, and if that is not here.
    pub(super) fn check_model_ready(&self, path: &ModelPath) -> Result<(), ApiError> {
        let model = self.model(path)?;
        self.check_open()?;
        check_alive(&model)
    }

    pub(super) fn check_open(&self) -> Result<(), ApiError> {
        if self.draining.load(Ordering::Relaxed) { Err(ApiError::Draining) } else { Ok(()) }
    }
}

fn check_alive(model: &ServedModel) -> Result<(), ApiError> {
    if model.batcher.is_alive() {
        return Ok(());
    }
    Err(ApiError::WorkerGone { model: model.entry.name.clone() })
}
