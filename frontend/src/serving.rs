//! Models and tenants: all that a reload of the configuration replaces, as one.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::{AdminSettings, FrontendConfig, ModelConfig, ServerSettings};
use crate::metrics::Metrics;
use crate::model::ServedModel;
use crate::tenants::Tenants;
use crate::traces::TraceSettings;

/// The models, the tenants, and the settings that requests are held to.
#[derive(Debug)]
pub struct Serving {
    models: BTreeMap<String, Arc<ServedModel>>,
    tenants: Tenants,
    server: ServerSettings,
    admin: Option<AdminSettings>,
    traces: Option<TraceSettings>,
}

impl Serving {
    /// Starts what `config` says. Models that are configured as they are in `before` go on as
    /// they are there.
    pub(crate) fn start(config: FrontendConfig, before: Option<&Self>, metrics: &Metrics) -> Self {
        let model = |model: ModelConfig| {
            let same = before
                .and_then(|before| before.models.get(&model.entry.name))
                .filter(|served| served.serves(&model));
            let served = same
                .cloned()
                .unwrap_or_else(|| Arc::new(ServedModel::start(model, metrics)));
            (served.name().to_owned(), served)
        };
        Self {
            models: config.models.into_iter().map(model).collect(),
            tenants: Tenants::new(&config.tenants, metrics),
            server: config.server,
            admin: config.admin,
            traces: config.traces,
        }
    }

    /// With models that run already; for everybody.
    pub(crate) fn of_models(
        models: Vec<ServedModel>,
        server: ServerSettings,
        metrics: &Metrics,
    ) -> Self {
        Self {
            models: models
                .into_iter()
                .map(|model| (model.name().to_owned(), Arc::new(model)))
                .collect(),
            tenants: Tenants::new(&[], metrics),
            server,
            admin: None,
            traces: None,
        }
    }

    /// The models, by name.
    pub fn models(&self) -> impl Iterator<Item = &Arc<ServedModel>> {
        self.models.values()
    }

    /// The model of this name.
    pub fn model(&self, name: &str) -> Option<&Arc<ServedModel>> {
        self.models.get(name)
    }

    pub fn tenants(&self) -> &Tenants {
        &self.tenants
    }

    /// The data listener's settings.
    pub fn server(&self) -> &ServerSettings {
        &self.server
    }

    /// Where traces go, if anywhere.
    pub fn traces(&self) -> Option<&TraceSettings> {
        self.traces.as_ref()
    }

    /// The admin listener's settings, if there is one.
    pub fn admin(&self) -> Option<&AdminSettings> {
        self.admin.as_ref()
    }
}
