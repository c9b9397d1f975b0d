//! Frontend configuration: one TOML file, resolved to ready-built objects before anything starts.
//!
//! Every mistake is one line that names the file, the field and the fix ([`ConfigError`]).
//! `docs/frontend.md` describes every field.

mod access;
mod in_force;
mod pool;
mod resolve;
mod settings;
mod strategy;
mod undescribed;

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use parapet_frontend_core::SettingError;
use parapet_net::tls::{ServerTls, TlsError};
use thiserror::Error;

pub use access::AdminSettings;
pub use pool::PoolSettings;
pub use resolve::ModelConfig;
pub use settings::{HealthSettings, ServerSettings};
pub use strategy::{ClassConfig, RedundantPool};

use self::undescribed::Undescribed;
use crate::tenants::TenantConfig;
use crate::traces::TraceSettings;

#[derive(Debug, Error)]
#[error("{0}")]
pub struct ConfigError(String);

#[derive(Debug, Clone)]
pub struct FrontendConfig {
    pub path: PathBuf,
    pub server: ServerSettings,
    /// TLS of the data listeners; plain HTTP and gRPC without it.
    pub server_tls: Option<Arc<ServerTls>>,
    pub admin: Option<AdminSettings>,
    /// Tenants; without any, every client may ask.
    pub tenants: Vec<TenantConfig>,
    pub models: Vec<ModelConfig>,
    /// Models that are not in the repository; see [`describe`](Self::describe).
    pub(crate) undescribed: Vec<Undescribed>,
    pub traces: Option<TraceSettings>,
}

impl FrontendConfig {
    /// Reads the configuration at `path` and the model repository that it names.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::parse(path, &read_text(path)?)
    }

    /// As [`load`](Self::load), from text; `path` is for messages and relative paths.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        resolve::resolve(path, read(path, text)?)
    }

    /// Asks instances of models not in the repository what these take and give, for up to `wait`.
    pub async fn describe(mut self, wait: Duration) -> Result<Self, ConfigError> {
        let asked = self.undescribed.drain(..);
        let asked = asked.map(|undescribed| undescribed.describe(self.path.clone(), wait));
        self.models.extend(try_join_all(asked).await?);
        Ok(self)
    }

    pub fn undescribed(&self) -> impl Iterator<Item = &str> {
        self.undescribed.iter().map(Undescribed::name)
    }

    /// Every setting of the configuration at `path`, in force, with the line that it is from.
    pub fn in_force(path: &Path) -> Result<String, ConfigError> {
        in_force::in_force(path, &read_text(path)?)
    }

    /// Makes the checks that look at no other file and at no name.
    pub fn check_text(path: &Path, text: &str) -> Result<(), ConfigError> {
        resolve::check(path, read(path, text)?)
    }
}

fn read_text(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|error| {
        let path = path.display();
        ConfigError(format!(
            "{path}: cannot read the configuration: {error}; give its path with --config"
        ))
    })
}

fn read(path: &Path, text: &str) -> Result<settings::File, ConfigError> {
    parapet_config::toml_file::parse(text)
        .map_err(|mistake| ConfigError(format!("{}: {mistake}", path.display())))
}

/// A table of the configuration file, for messages and relative paths.
struct At<'a> {
    path: &'a Path,
    table: String,
}

impl<'a> At<'a> {
    fn new(path: &'a Path, table: impl Into<String>) -> Self {
        Self { path, table: table.into() }
    }

    fn inside(&self, field: &str) -> At<'a> {
        At::new(self.path, format!("{}.{field}", self.table))
    }

    fn folder(&self) -> &'a Path {
        self.path.parent().unwrap_or(Path::new(""))
    }

    fn field(&self, field: &str, problem: impl Display, fix: impl Display) -> ConfigError {
        self.because(field, format!("{problem}; {fix}"))
    }

    fn setting(&self, mistake: SettingError) -> ConfigError {
        self.field(&mistake.field, mistake.problem, mistake.fix)
    }

    fn tls(&self, error: &TlsError) -> ConfigError {
        self.field("tls", error, error.fix())
    }

    /// An error that names its fix itself.
    fn because(&self, field: &str, error: impl Display) -> ConfigError {
        let (path, table) = (self.path.display(), &self.table);
        ConfigError(format!("{path}: {table}.{field}: {error}"))
    }

    fn check(
        &self,
        holds: bool,
        field: &str,
        problem: impl Display,
        fix: impl Display,
    ) -> Result<(), ConfigError> {
        if holds { Ok(()) } else { Err(self.field(field, problem, fix)) }
    }

    fn at_least_one(&self, field: &str, value: impl TryInto<usize>) -> Result<(), ConfigError> {
        let value = value.try_into().unwrap_or(usize::MAX);
        self.check(value > 0, field, 0, "give at least 1")
    }
}
