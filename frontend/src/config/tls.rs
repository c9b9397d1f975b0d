//! Certificate files, read when the configuration is: a mistake in them stops the start.

use std::path::Path;
use std::sync::Arc;

use parapet_tls::{ClientFiles, ClientTls, Identity, ServerFiles, ServerTls, TlsError};

use super::resolve::At;
use super::settings::{InstanceTls, TlsSettings};
use super::{ConfigError, PoolSettings, beside};

/// A listener's; `at` is its table.
pub(super) fn resolve_listener(
    at: &At<'_>,
    tls: Option<&TlsSettings>,
) -> Result<Option<Arc<ServerTls>>, ConfigError> {
    let Some(tls) = tls else { return Ok(None) };
    let files = ServerFiles {
        identity: Identity { certificate: beside(at.path, &tls.certificate), key: beside(at.path, &tls.key) },
        client_ca: tls.client_ca.as_deref().map(|ca| beside(at.path, ca)),
    };
    let loaded = ServerTls::load(files).map_err(|source| unsound(at, source))?;
    Ok(Some(Arc::new(loaded)))
}

/// A model's instances'; `at` is the model's table.
pub(super) fn resolve_instances<'a>(
    at: &At<'_>,
    tls: Option<&InstanceTls>,
    mut pools: impl Iterator<Item = &'a PoolSettings>,
) -> Result<Option<ClientTls>, ConfigError> {
    let Some(tls) = tls else {
        return match pools.any(|pool| pool.secure) {
            true => Err(at.field(
                "tls",
                "there are https:// instances",
                "name the authority of their certificates: tls = { ca = \"ca.pem\" }",
            )),
            false => Ok(None),
        };
    };
    if !pools.any(|pool| pool.secure) {
        return Err(at.field(
            "tls",
            "no instance is an https:// one",
            "write instances as \"https://host:port\"",
        ));
    }
    let path = |file: &Path| beside(at.path, file);
    let identity = match (&tls.certificate, &tls.key) {
        (Some(certificate), Some(key)) => Some(Identity { certificate: path(certificate), key: path(key) }),
        (None, None) => None,
        _ => {
            return Err(at.field(
                "tls",
                "a certificate without a key, or the reverse",
                "give both or neither",
            ));
        }
    };
    let files = ClientFiles { ca: path(&tls.ca), identity };
    ClientTls::load(files).map(Some).map_err(|source| unsound(at, source))
}

fn unsound(at: &At<'_>, source: TlsError) -> ConfigError {
    at.field("tls", source.to_string(), "give PEM files that belong together")
}
