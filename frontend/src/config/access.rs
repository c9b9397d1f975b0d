//! The admin listener, tenants, and the certificates of listeners.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use parapet_net::tls::{ServerFiles, ServerTls};

use super::settings::{Admin, Tenant};
use super::{At, ConfigError};
use crate::tenants::{KeyHash, MixingDomain, TenantConfig};

#[derive(Debug, Clone)]
pub struct AdminSettings {
    pub listen: SocketAddr,
    /// Hashes of the keys, any of which will do; without one the address is a loopback one.
    pub keys: Vec<KeyHash>,
    pub tls: Option<Arc<ServerTls>>,
}

pub(super) fn resolve_admin(
    at: &At<'_>,
    admin: &Admin,
    data: SocketAddr,
) -> Result<AdminSettings, ConfigError> {
    let listen = admin.listen;
    let keys = keys(at, &admin.key_sha256)?;
    let is_guarded = !keys.is_empty() || listen.ip().is_loopback();
    let problem =
        format!("{listen} can be reached from other machines, and there is no admin.key_sha256");
    let fix = "add a key (`parapet-frontend hash-key`) or listen on 127.0.0.1";
    at.check(is_guarded, "listen", problem, fix)?;
    let is_own = listen != data || data.port() == 0;
    let problem = format!("{data} is server.listen, too");
    at.check(is_own, "listen", problem, "give it a port of its own")?;
    Ok(AdminSettings { listen, keys, tls: resolve_listener(at, admin.tls.as_ref())? })
}

pub(super) fn resolve_listener(
    at: &At<'_>,
    tls: Option<&ServerFiles>,
) -> Result<Option<Arc<ServerTls>>, ConfigError> {
    let Some(files) = tls else { return Ok(None) };
    let loaded = files.load(at.folder()).map_err(|error| at.tls(&error))?;
    Ok(Some(Arc::new(loaded)))
}

pub(super) fn resolve_tenants(
    path: &std::path::Path,
    tenants: Vec<Tenant>,
) -> Result<Vec<TenantConfig>, ConfigError> {
    let mut resolved: Vec<TenantConfig> = Vec::with_capacity(tenants.len());
    let mut domains = BTreeMap::new();
    for (index, tenant) in tenants.into_iter().enumerate() {
        let at = At::new(path, format!("tenants[{index}]"));
        let name = tenant.name;
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        let is_name = !name.is_empty() && name.len() <= 64 && name.chars().all(plain);
        let fix = "use 1 to 64 letters, digits, '-', '_' and '.'";
        at.check(is_name, "name", format!("{name:?}"), fix)?;
        let is_new = resolved.iter().all(|other| other.name != name);
        let problem = format!("{name:?} is there twice");
        at.check(is_new, "name", problem, "name each tenant once")?;
        if let Some(other) = domains.insert(MixingDomain::of_tenant(&name).number(), name.clone()) {
            let problem = format!("{name:?} is too like {other:?}");
            return Err(at.field("name", problem, "give another name"));
        }
        let keys = keys(&at, &tenant.key_sha256)?;
        let fix = "add a hash that `parapet-frontend hash-key` prints";
        at.check(!keys.is_empty(), "key_sha256", "no key", fix)?;
        let mut taken = resolved.iter().flat_map(|other| &other.keys);
        let is_own = !taken.any(|taken| keys.contains(taken));
        let fix = "give each tenant a key of its own";
        at.check(is_own, "key_sha256", "another tenant has this key", fix)?;
        let quota = quota(&at, tenant.requests_per_second, tenant.burst)?;
        resolved.push(TenantConfig { name, keys, quota, may_mix: tenant.may_mix });
    }
    Ok(resolved)
}

fn keys(at: &At<'_>, hashes: &[String]) -> Result<Vec<KeyHash>, ConfigError> {
    let parse = |(index, hash): (usize, &String)| {
        // The text is not repeated: it may be a key itself.
        hash.parse().map_err(|error| at.because(&format!("key_sha256[{index}]"), error))
    };
    hashes.iter().enumerate().map(parse).collect()
}

fn quota(
    at: &At<'_>,
    rate: Option<f64>,
    burst: Option<f64>,
) -> Result<Option<(f64, f64)>, ConfigError> {
    let Some(rate) = rate else {
        let problem = "there is no requests_per_second";
        at.check(burst.is_none(), "burst", problem, "add it, or leave this out")?;
        return Ok(None);
    };
    let (is_rate, fix) = (rate > 0.0 && rate.is_finite(), "give a number above 0");
    at.check(is_rate, "requests_per_second", rate, fix)?;
    let burst = burst.unwrap_or(rate.max(1.0));
    let is_burst = burst >= 1.0 && burst.is_finite();
    at.check(is_burst, "burst", burst, "give a number of requests from 1")?;
    Ok(Some((rate, burst)))
}
