//! Pools of instances: their addresses, or the place to discover them, and their certificates.

use std::fmt;
use std::net::SocketAddr;

use parapet_config::address;
use parapet_config::repository::{ModelEntry, ModelRepository, check_name};
use parapet_frontend_core::DeployedInstances;
use parapet_net::tls::{ClientSettings, ClientTls};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::{At, ConfigError};
use crate::discovery::{Scheme, Settings};

#[derive(Debug, Clone, PartialEq)]
pub struct PoolSettings {
    /// Their addresses, as written and resolved; none where they are discovered.
    pub instances: Vec<(String, SocketAddr)>,
    pub discovery: Option<Settings>,
    pub slots: u32,
    pub queue: usize,
    pub tls: Option<ClientTls>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(in crate::config) enum Instances {
    Listed(Vec<String>),
    Discovered(Box<Settings>),
}

impl<'de> Deserialize<'de> for Instances {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ListOrTable)
    }
}

/// Tells the two apart by their form; an untagged enum would hide the mistakes within.
struct ListOrTable;

impl<'de> Visitor<'de> for ListOrTable {
    type Value = Instances;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of addresses, or a table with one of dns, srv, etcd and kubernetes")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Instances, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(list)).map(Instances::Listed)
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<Instances, A::Error> {
        Box::deserialize(MapAccessDeserializer::new(table)).map(Instances::Discovered)
    }
}

impl PoolSettings {
    pub(super) fn resolve(
        at: &At<'_>,
        instances: &Instances,
        (slots, queue): (u32, usize),
        tls: Option<&ClientSettings>,
    ) -> Result<Self, ConfigError> {
        at.at_least_one("slots_per_instance", slots)?;
        let mut pool = Self { instances: Vec::new(), discovery: None, slots, queue, tls: None };
        match instances {
            Instances::Listed(instances) => pool.instances = resolve_addresses(at, instances)?,
            Instances::Discovered(settings) => {
                let mut settings = settings.clone();
                let loaded = settings.check().and_then(|()| settings.load(at.folder()));
                loaded.map_err(|mistake| at.inside("instances").setting(mistake))?;
                pool.discovery = Some(*settings);
            }
        }
        if let Some(tls) = tls {
            at.check(pool.is_secure(), "tls", UNUSED.0, UNUSED.1)?;
            pool.tls = Some(load(at, tls)?);
        }
        Ok(pool)
    }

    /// Instances that are listed; discovery may find any number.
    pub(super) fn deployed(&self) -> DeployedInstances {
        DeployedInstances { count: self.discovery.is_none().then_some(self.instances.len()) }
    }

    /// Returns true if it takes certificates, and has none of its own.
    pub(super) fn lacks_tls(&self) -> bool {
        self.is_secure() && self.tls.is_none()
    }

    /// Returns true if any instance is spoken to within TLS, or may be once it is found.
    fn is_secure(&self) -> bool {
        let listed = self.instances.iter().map(|(name, _)| Scheme::split(name).0);
        listed.chain(self.discovery.iter().map(|discovery| discovery.scheme)).any(Scheme::is_secure)
    }
}

const UNUSED: (&str, &str) = (
    "no instance is an https:// or grpcs:// one that it would be for",
    "write instances as \"https://host:port\" or \"grpcs://host:port\", or scheme = \"https\"",
);

fn load(at: &At<'_>, tls: &ClientSettings) -> Result<ClientTls, ConfigError> {
    tls.load(at.folder()).map_err(|error| at.tls(&error))
}

/// Gives the model's certificates to those of its pools that need some and have none of their own.
pub(super) fn share_tls<'a>(
    at: &At<'_>,
    tls: Option<&ClientSettings>,
    pools: impl Iterator<Item = &'a mut PoolSettings>,
) -> Result<(), ConfigError> {
    let wanting: Vec<_> = pools.filter(|pool| pool.lacks_tls()).collect();
    let Some(tls) = tls else {
        let fix = "name the authority of their certificates: tls = { ca = \"ca.pem\" }";
        let problem = "there are https:// or grpcs:// instances";
        return at.check(wanting.is_empty(), "tls", problem, fix);
    };
    at.check(!wanting.is_empty(), "tls", UNUSED.0, UNUSED.1)?;
    let loaded = load(at, tls)?;
    for pool in wanting {
        pool.tls = Some(loaded.clone());
    }
    Ok(())
}

pub(super) fn find_entry(
    at: &At<'_>,
    field: &str,
    repository: Option<&ModelRepository>,
    model: &str,
) -> Result<Option<ModelEntry>, ConfigError> {
    check_name(model).map_err(|error| at.because(field, error))?;
    let found = repository.map(|repository| repository.find(model)).transpose();
    Ok(found.map_err(|error| at.because(field, error))?.flatten())
}

pub(super) fn resolve_version(
    at: &At<'_>,
    entry: &ModelEntry,
    version: Option<u64>,
) -> Result<u64, ConfigError> {
    let version = version.unwrap_or_else(|| entry.latest());
    entry.model_file(version).map_err(|error| at.because("version", error))?;
    Ok(version)
}

fn resolve_addresses(
    at: &At<'_>,
    instances: &[String],
) -> Result<Vec<(String, SocketAddr)>, ConfigError> {
    let fix = "list addresses like \"127.0.0.1:9001\"";
    at.check(!instances.is_empty(), "instances", "none", fix)?;
    let mut resolved: Vec<(String, SocketAddr)> = Vec::with_capacity(instances.len());
    for (index, name) in instances.iter().enumerate() {
        let field = format!("instances[{index}]");
        let (scheme, host) = Scheme::split(name);
        let address = address::parse(host).map_err(|error| at.because(&field, error))?;
        let is_new = resolved.iter().all(|(_, other)| *other != address);
        at.check(is_new, &field, format!("{name:?} is there twice"), "list each instance once")?;
        resolved.push((scheme.name(host), address));
    }
    Ok(resolved)
}
