//! Models that are not in the repository: their instances say what these take and give.

use std::path::PathBuf;
use std::time::Duration;

use parapet_config::repository::{ModelEntry, ModelRepository};

use super::pool::{PoolSettings, share_tls};
use super::resolve::{ModelConfig, check_model, deployed_size, resolve_model};
use super::settings::ModelSettings;
use super::strategy::check_strategies;
use super::{At, ConfigError};
use crate::online;

#[derive(Debug, Clone)]
pub(crate) struct Undescribed {
    table: String,
    repository: Option<ModelRepository>,
    /// Without tensors, and what needs them.
    model: ModelConfig,
}

impl Undescribed {
    pub(super) fn resolve(
        at: &At<'_>,
        repository: Option<ModelRepository>,
        settings: ModelSettings,
    ) -> Result<Self, ConfigError> {
        check_model(at, &settings)?;
        let size = deployed_size(&settings);
        let mut pool = PoolSettings::resolve(at, &settings.instances, size, None)?;
        if pool.lacks_tls() {
            share_tls(at, settings.tls.as_ref(), std::iter::once(&mut pool))?;
        }
        check_strategies(at, pool.deployed(), &settings.strategy, &settings.classes)?;
        let requested_version = settings.version;
        let model = ModelConfig {
            entry: ModelEntry::unknown(&settings.name, requested_version),
            settings,
            version: 0,
            requested_version,
            pool,
            redundant: Vec::new(),
            classes: Vec::new(),
        };
        Ok(Self { table: at.table.clone(), repository, model })
    }

    pub(super) fn name(&self) -> &str {
        &self.model.entry.name
    }

    /// Asks for up to `wait`, and resolves the rest of the model's configuration.
    pub(super) async fn describe(
        self,
        path: PathBuf,
        wait: Duration,
    ) -> Result<ModelConfig, ConfigError> {
        let Self { table, repository, model } = self;
        let entry = online::describe(&model, wait).await;
        // It reads files and looks names up.
        let resolved = tokio::task::spawn_blocking(move || {
            let at = At::new(&path, table);
            let entry = entry.map_err(|reason| at.because("instances", reason))?;
            resolve_model(&at, repository.as_ref(), model.settings, entry)
        });
        let ended = |error| ConfigError(format!("the configuration was not read: {error}"));
        resolved.await.map_err(ended)?
    }
}
