//! Pools of instances: their addresses, or the place to discover them.

use std::net::{SocketAddr, ToSocketAddrs};

use parapet_config::repository::ModelEntry;
use parapet_net::tls::ClientTls;

use super::at::At;
use super::instances::Instances;
use super::{ConfigError, folder};
use crate::discovery::Mistake;
use crate::upstream::Scheme;

/// Instances that serve one model.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolSettings {
    /// Their addresses, as written and resolved; none where they are discovered.
    pub instances: Vec<(String, SocketAddr)>,
    /// Where they are looked for, if they are not listed.
    pub discovery: Option<crate::discovery::Settings>,
    /// Concurrent requests that each is given.
    pub slots: u32,
    /// Jobs that may wait for one of them.
    pub queue: usize,
    /// For those that are spoken to within TLS.
    pub tls: Option<ClientTls>,
}

/// Default of `slots_per_instance`.
pub(super) const fn default_slots() -> u32 {
    2
}

impl PoolSettings {
    /// Returns true if any instance is spoken to within TLS, or may be once it is found.
    pub(super) fn is_secure(&self) -> bool {
        let discovered = self
            .discovery
            .as_ref()
            .is_some_and(|discovery| discovery.scheme.is_secure());
        discovered
            || self
                .instances
                .iter()
                .any(|(name, _)| Scheme::split(name).0.is_secure())
    }
}

pub(super) fn resolve_version(
    at: &At<'_>,
    entry: &ModelEntry,
    version: Option<u64>,
) -> Result<u64, ConfigError> {
    let version = version.unwrap_or_else(|| entry.latest());
    entry
        .model_file(version)
        .map_err(|source| at.repository("version", source))?;
    Ok(version)
}

pub(super) fn resolve_pool(
    at: &At<'_>,
    instances: &Instances,
    slots: u32,
    queue: usize,
) -> Result<PoolSettings, ConfigError> {
    at.at_least_one("slots_per_instance", slots as usize)?;
    let instances = match instances {
        Instances::Listed(instances) => instances,
        Instances::Discovered(settings) => {
            let mistaken = |mistake: Mistake| {
                at.field(
                    &format!("instances.{}", mistake.field),
                    mistake.problem,
                    mistake.fix,
                )
            };
            settings.check().map_err(mistaken)?;
            let mut settings = settings.clone();
            settings.load(folder(at.path)).map_err(mistaken)?;
            let discovery = Some(settings);
            return Ok(PoolSettings {
                instances: Vec::new(),
                discovery,
                slots,
                queue,
                tls: None,
            });
        }
    };
    if instances.is_empty() {
        return Err(at.field(
            "instances",
            "none",
            "list addresses like \"127.0.0.1:9001\"",
        ));
    }
    let mut resolved: Vec<(String, SocketAddr)> = Vec::with_capacity(instances.len());
    for (index, name) in instances.iter().enumerate() {
        let field = format!("instances[{index}]");
        let (scheme, host) = Scheme::split(name);
        let address = host
            .to_socket_addrs()
            .map_err(|error| at.field(&field, format!("{name:?}: {error}"), "give host:port"))?
            .next()
            .ok_or_else(|| {
                at.field(&field, format!("{name:?} has no address"), "give host:port")
            })?;
        if resolved.iter().any(|(_, other)| *other == address) {
            return Err(at.field(
                &field,
                format!("{name:?} is there twice"),
                "list each instance once",
            ));
        }
        resolved.push((scheme.name(host), address));
    }
    Ok(PoolSettings {
        instances: resolved,
        discovery: None,
        slots,
        queue,
        tls: None,
    })
}
