//! The frontend's configuration: one TOML file, parsed and validated before anything is started.
//!
//! Every mistake is one line that names the file, the field and the fix ([`ConfigError`]). Times
//! are in milliseconds.

mod access;
mod at;
mod error;
mod instances;
mod pool;
mod resolve;
mod settings;
mod strategy;
mod tls;

use crate::traces::TraceSettings;
pub use access::AdminSettings;
pub use error::ConfigError;
pub use pool::PoolSettings;
pub use resolve::ModelConfig;
pub use settings::{HealthSettings, LogFormat, ServerSettings, TlsSettings};
pub use strategy::{BuiltCode, ClassConfig, CodedTensors, DEFAULT_CLASS, RedundantPool};

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parapet_net::tls::ServerTls;

use crate::tenants::TenantConfig;

#[derive(Debug, Clone)]
pub struct FrontendConfig {
    /// The file that it was read from.
    pub path: PathBuf,
    pub server: ServerSettings,
    /// TLS of the data listener; plain HTTP without it.
    pub server_tls: Option<Arc<ServerTls>>,
    /// The admin listener, if there is one.
    pub admin: Option<AdminSettings>,
    /// Tenants; without any, every client may ask.
    pub tenants: Vec<TenantConfig>,
    /// The models that are served, each with its metadata out of the model repository.
    pub models: Vec<ModelConfig>,
    /// Where traces go, if anywhere.
    pub traces: Option<TraceSettings>,
}

impl FrontendConfig {
    /// Reads the configuration at `path` and the model repository that it names.
    ///
    /// # Errors
    /// [`ConfigError`]: the first mistake found.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(path, &text)
    }

    /// Returns true if the text is a configuration, as far as can be said without looking at
    /// files and names.
    ///
    /// # Errors
    /// [`ConfigError`]: the first mistake found.
    pub fn check_text(path: &Path, text: &str) -> Result<(), ConfigError> {
        let file: settings::File =
            parapet_config::toml_file::parse(text).map_err(|source| ConfigError::Toml {
                path: path.to_owned(),
                source,
            })?;
        resolve::check(path, file)
    }

    /// As [`load`](Self::load), from text; `path` is for messages and relative paths.
    ///
    /// # Errors
    /// [`ConfigError`]: the first mistake found.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let file: settings::File =
            parapet_config::toml_file::parse(text).map_err(|source| ConfigError::Toml {
                path: path.to_owned(),
                source,
            })?;
        resolve::resolve(path, file)
    }
}

/// `relative` as seen from the folder of the configuration file.
fn beside(config: &Path, relative: &Path) -> PathBuf {
    folder(config).join(relative)
}

/// The folder of the configuration file.
fn folder(config: &Path) -> &Path {
    config.parent().unwrap_or(Path::new(""))
}
