//! Access to the admin listener and of tenants.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use parapet_net::tls::ServerTls;

use super::ConfigError;
use super::at::At;
use super::settings::{Admin, Tenant};
use super::tls::resolve_listener;
use crate::tenants::{KeyHash, MixingDomain, TenantConfig};

/// `[admin]`: the listener of operators.
#[derive(Debug, Clone)]
pub struct AdminSettings {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Hashes of the keys, any of which will do; without one the address is a loopback one.
    pub keys: Vec<KeyHash>,
    /// TLS; plain HTTP without it.
    pub tls: Option<Arc<ServerTls>>,
}

pub(super) fn resolve_admin(
    path: &Path,
    admin: &Admin,
    data: SocketAddr,
) -> Result<AdminSettings, ConfigError> {
    let at = At {
        path,
        prefix: "admin".to_owned(),
    };
    let keys = keys(&at, &admin.key_sha256)?;
    if keys.is_empty() && !admin.listen.ip().is_loopback() {
        let problem = format!(
            "{} can be reached from other machines, and there is no admin.key_sha256",
            admin.listen
        );
        return Err(at.field(
            "listen",
            problem,
            "add a key (`parapet-frontend hash-key`) or listen on 127.0.0.1",
        ));
    }
    if admin.listen == data && data.port() != 0 {
        return Err(at.field(
            "listen",
            format!("{data} is server.listen, too"),
            "give it a port of its own",
        ));
    }
    let tls = resolve_listener(&at, admin.tls.as_ref())?;
    Ok(AdminSettings {
        listen: admin.listen,
        keys,
        tls,
    })
}

pub(super) fn resolve_tenants(
    path: &Path,
    tenants: Vec<Tenant>,
) -> Result<Vec<TenantConfig>, ConfigError> {
    let mut resolved: Vec<TenantConfig> = Vec::with_capacity(tenants.len());
    let mut domains = BTreeMap::new();
    for (index, tenant) in tenants.into_iter().enumerate() {
        let at = At {
            path,
            prefix: format!("tenants[{index}]"),
        };
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        if tenant.name.is_empty() || tenant.name.len() > 64 || !tenant.name.chars().all(plain) {
            let fix = "use 1 to 64 letters, digits, '-', '_' and '.'";
            return Err(at.field("name", format!("{:?}", tenant.name), fix));
        }
        if resolved.iter().any(|other| other.name == tenant.name) {
            return Err(at.field(
                "name",
                format!("{:?} is there twice", tenant.name),
                "name each tenant once",
            ));
        }
        if let Some(other) = domains.insert(
            MixingDomain::of_tenant(&tenant.name).number(),
            tenant.name.clone(),
        ) {
            return Err(at.field(
                "name",
                format!("{:?} is too like {other:?}", tenant.name),
                "give another name",
            ));
        }
        let keys = keys(&at, &tenant.key_sha256)?;
        if keys.is_empty() {
            let fix = "add a hash that `parapet-frontend hash-key` prints";
            return Err(at.field("key_sha256", "no key", fix));
        }
        for key in &keys {
            if resolved
                .iter()
                .flat_map(|other| &other.keys)
                .any(|other| other == key)
            {
                return Err(at.field(
                    "key_sha256",
                    "another tenant has this key",
                    "give each tenant a key of its own",
                ));
            }
        }
        let quota = quota(&at, tenant.requests_per_second, tenant.burst)?;
        resolved.push(TenantConfig {
            name: tenant.name,
            keys,
            quota,
            may_mix: tenant.may_mix,
        });
    }
    Ok(resolved)
}

fn keys(at: &At<'_>, hashes: &[String]) -> Result<Vec<KeyHash>, ConfigError> {
    let parse = |(index, hash): (usize, &String)| {
        // What was written here may be a key itself: it is not repeated.
        let wrong = |_| {
            let problem = "not a SHA-256 in 64 hexadecimal digits";
            at.field(
                &format!("key_sha256[{index}]"),
                problem,
                "`parapet-frontend hash-key` prints one",
            )
        };
        hash.parse::<KeyHash>().map_err(wrong)
    };
    hashes.iter().enumerate().map(parse).collect()
}

fn quota(
    at: &At<'_>,
    rate: Option<f64>,
    burst: Option<f64>,
) -> Result<Option<(f64, f64)>, ConfigError> {
    let Some(rate) = rate else {
        let unused = burst.map(|_| {
            at.field(
                "burst",
                "there is no requests_per_second",
                "add it, or leave this out",
            )
        });
        return unused.map_or(Ok(None), Err);
    };
    if !(rate > 0.0 && rate.is_finite()) {
        return Err(at.field(
            "requests_per_second",
            rate.to_string(),
            "give a number above 0",
        ));
    }
    let burst = burst.unwrap_or(rate.max(1.0));
    if !(burst >= 1.0 && burst.is_finite()) {
        return Err(at.field(
            "burst",
            burst.to_string(),
            "give a number of requests from 1",
        ));
    }
    Ok(Some((rate, burst)))
}
