//! Reading the configuration again while serving: what is sound replaces what is there, at once and
//! as a whole; what is not changes nothing.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use thiserror::Error;
use tokio::time::{Instant, sleep};

use crate::app::{App, ListenersTls, Serving};
use crate::config::{ConfigError, FrontendConfig, ServerSettings};
use crate::model::ServedModel;

#[derive(Debug, Error)]
pub enum ReloadError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("{0} has changed, which takes a restart; nothing was reloaded")]
    NeedsRestart(String),
    #[error("{0}")]
    NotNow(&'static str),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reloaded {
    pub kept: Vec<String>,
    /// Models that are new, or configured otherwise than before.
    pub started: Vec<String>,
    /// Models that are gone, or served anew. Their requests in flight ended.
    pub stopped: Vec<String>,
}

/// The longest that new models are waited for, while the old ones serve.
const WARM_UP: Duration = Duration::from_secs(3);
/// The longest that instances are asked for a model that is in no repository.
const DESCRIBED_WITHIN: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

impl App {
    /// Reads the configuration file again. After an error all is as it was.
    pub async fn reload(&self) -> Result<Reloaded, ReloadError> {
        let Ok(_one_at_a_time) = self.reloading.try_lock() else {
            return Err(ReloadError::NotNow("another reload is under way; try again"));
        };
        ensure!(!self.is_draining(), ReloadError::NotNow("the server is shutting down"));
        let result = self.reload_alone().await;
        match &result {
            Ok(done) => tracing::info!(?done, "reloaded"),
            Err(error) => {
                tracing::error!(%error, "not reloaded; the configuration of before stays")
            }
        }
        self.metrics.reloaded(result.is_ok());
        result
    }

    async fn reload_alone(&self) -> Result<Reloaded, ReloadError> {
        let path = self.config_path.clone();
        // It reads files and looks names up.
        let config = tokio::task::spawn_blocking(move || FrontendConfig::load(&path)).await;
        let unread = |_| ReloadError::NotNow("the configuration could not be read");
        let config = config.map_err(unread)??.describe(DESCRIBED_WITHIN).await?;
        let before = self.serving();
        check_fixed(&before, &config)?;
        // The listeners keep the files that they were started with; what is in them may change.
        let files = |tls: &ListenersTls| tls.each().map(|tls| tls.map(|tls| tls.files().clone()));
        let is_same = files(&ListenersTls::of(&config)) == files(&self.tls);
        ensure!(is_same, ReloadError::NeedsRestart("the file of a certificate or key".to_owned()));
        self.reload_certificates();
        let after = Arc::new(Serving::start(config, Some(&*before), &self.metrics));
        wait_until_ready(&after).await;
        self.serving.store(Arc::clone(&after));
        for model in after.models.values().filter(|model| model.driver.reset_switches()) {
            tracing::warn!(model = model.name(), "its switches stand as configured again");
        }
        let mut done = Reloaded::default();
        let is_in = |models: &Serving, model: &Arc<ServedModel>| {
            models.models.get(model.name()).is_some_and(|other| Arc::ptr_eq(model, other))
        };
        for (name, model) in &after.models {
            let list = if is_in(&before, model) { &mut done.kept } else { &mut done.started };
            list.push(name.clone());
        }
        for (name, model) in before.models.iter().filter(|(_, model)| !is_in(&after, model)) {
            model.retire(after.models.get(name).map(|model| &**model));
            done.stopped.push(name.clone());
        }
        Ok(done)
    }

    /// Reads the listeners' certificates again, and those for instances. Those of before stay where
    /// the new ones are not sound.
    pub(crate) fn reload_certificates(&self) {
        for tls in self.tls.each().into_iter().flatten() {
            tls.reload_and_log();
        }
        for tls in self.serving().models.values().flat_map(|model| model.tls()) {
            tls.reload_and_log();
        }
    }
}

/// Settings of `[server]` that a reload brings into force; sockets and threads are what they are.
const RELOADED: [&str; 4] = ["body_read_timeout_ms", "max_body_bytes", "metrics", "tls"];

fn check_fixed(before: &Serving, after: &FrontendConfig) -> Result<(), ReloadError> {
    let settings = |server: &ServerSettings| {
        let unknown = |error| ReloadError::NeedsRestart(format!("[server], by its text: {error}"));
        serde_json::to_value(server).map_err(unknown)
    };
    let (old, new) = (settings(&before.server)?, settings(&after.server)?);
    let mut fixed = old.as_object().into_iter().flatten();
    let has_changed = |(name, value): &(&String, &Value)| {
        !RELOADED.contains(&name.as_str()) && new.get(*name) != Some(*value)
    };
    if let Some((name, _)) = fixed.find(has_changed) {
        return Err(ReloadError::NeedsRestart(format!("server.{name}")));
    }
    let changed = |what: &str| ReloadError::NeedsRestart(what.to_owned());
    ensure!(before.traces == after.traces, changed("[traces]"));
    let listen = before.admin.as_ref().map(|admin| admin.listen);
    ensure!(listen == after.admin.as_ref().map(|admin| admin.listen), changed("admin.listen"));
    Ok(())
}

/// Requests must not find a model that has just been started, and thinks all its instances down.
async fn wait_until_ready(serving: &Serving) {
    let end = Instant::now() + WARM_UP;
    let is_ready = || serving.models.values().all(|model| model.driver.is_ready());
    while Instant::now() < end && !is_ready() {
        sleep(LOOK_AGAIN).await;
    }
}
