//! Certificate files, read when the configuration is: a mistake in them stops the start.

use std::sync::Arc;

use parapet_net::tls::{ClientSettings, ClientTls, Identity, ServerFiles, ServerTls, TlsError};

use super::at::At;
use super::settings::TlsSettings;
use super::{ConfigError, PoolSettings, beside, folder};

/// A listener's; `at` is its table.
pub(super) fn resolve_listener(
    at: &At<'_>,
    tls: Option<&TlsSettings>,
) -> Result<Option<Arc<ServerTls>>, ConfigError> {
    let Some(tls) = tls else { return Ok(None) };
    let files = ServerFiles {
        identity: Identity {
            certificate: beside(at.path, &tls.certificate),
            key: beside(at.path, &tls.key),
        },
        client_ca: tls.client_ca.as_deref().map(|ca| beside(at.path, ca)),
        client_crl: tls.client_crl.as_deref().map(|crl| beside(at.path, crl)),
    };
    let loaded = ServerTls::load(files).map_err(|source| unsound(at, source))?;
    Ok(Some(Arc::new(loaded)))
}

/// A pool's own; `at` is the table that it stands in.
pub(super) fn resolve_own(
    at: &At<'_>,
    tls: Option<&ClientSettings>,
    pool: &PoolSettings,
) -> Result<Option<ClientTls>, ConfigError> {
    match tls {
        Some(_) if !pool.is_secure() => Err(unused(at)),
        Some(tls) => load(at, tls).map(Some),
        None => Ok(None),
    }
}

/// The model's, for those of its pools that need some and have none of their own; `at` is
/// the model's table.
pub(super) fn resolve_shared<'a>(
    at: &At<'_>,
    tls: Option<&ClientSettings>,
    pools: impl Iterator<Item = &'a mut PoolSettings>,
) -> Result<(), ConfigError> {
    let wanting: Vec<_> = pools
        .filter(|pool| pool.is_secure() && pool.tls.is_none())
        .collect();
    match tls {
        Some(_) if wanting.is_empty() => Err(unused(at)),
        Some(tls) => {
            let loaded = load(at, tls)?;
            for pool in wanting {
                pool.tls = Some(loaded.clone());
            }
            Ok(())
        }
        None if wanting.is_empty() => Ok(()),
        None => Err(at.field(
            "tls",
            "there are https:// or grpcs:// instances",
            "name the authority of their certificates: tls = { ca = \"ca.pem\" }",
        )),
    }
}

fn load(at: &At<'_>, tls: &ClientSettings) -> Result<ClientTls, ConfigError> {
    tls.load(folder(at.path))
        .map_err(|source| unsound(at, source))
}

fn unused(at: &At<'_>) -> ConfigError {
    let fix =
        "write instances as \"https://host:port\" or \"grpcs://host:port\", or scheme = \"https\"";
    at.field(
        "tls",
        "no instance is an https:// or grpcs:// one that it would be for",
        fix,
    )
}

fn unsound(at: &At<'_>, source: TlsError) -> ConfigError {
    at.field("tls", source.to_string(), source.fix())
}

impl PoolSettings {
    /// With certificates of its own, if there are any.
    pub(super) fn with_tls(
        mut self,
        at: &At<'_>,
        tls: Option<&ClientSettings>,
    ) -> Result<Self, ConfigError> {
        self.tls = resolve_own(at, tls, &self)?;
        Ok(self)
    }
}
