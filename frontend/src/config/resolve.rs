//! From what the file says to what the frontend needs: metadata looked up, codes compared, sizes checked.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use parapet_repository::{ModelEntry, ModelRepository, RepositoryError};

use super::settings::{File, HealthSettings, Model};
use super::strategy::settings::Strategy;
use super::strategy::{self, ClassConfig, Deployed, RedundantPool};
use super::{ConfigError, FrontendConfig, beside};
use crate::upstream::Scheme;

/// A served model.
#[derive(Debug, Clone)]
pub struct ModelConfig {
    /// Its metadata out of the repository.
    pub entry: ModelEntry,
    /// The version served.
    pub version: u64,
    /// Its instances.
    pub pool: PoolSettings,
    /// Queries in flight, awaited late truths included.
    pub max_in_flight: usize,
    /// Deadline of a request that names none, after its arrival.
    pub timeout: Duration,
    /// The longest deadline a request may ask for.
    pub max_timeout: Duration,
    /// Most attempts of a query.
    pub max_attempts: u32,
    /// Retries allowed for each query over time.
    pub retry_share: f64,
    /// Samples that one request may carry.
    pub max_rows: usize,
    /// How instances are checked.
    pub health: HealthSettings,
    /// Pools beside the deployed model's, those of parity and backup models: pool 1 and following.
    pub redundant: Vec<RedundantPool>,
    /// Classes of requests with their strategies; the first one is for requests that name none.
    pub classes: Vec<ClassConfig>,
}

/// Instances that serve one model.
#[derive(Debug, Clone)]
pub struct PoolSettings {
    /// Their addresses, as written and resolved.
    pub instances: Vec<(String, SocketAddr)>,
    /// Concurrent requests that each is given.
    pub slots: u32,
    /// Jobs that may wait for one of them.
    pub queue: usize,
}

/// Where in the file one is, for messages.
pub(super) struct At<'a> {
    pub(super) path: &'a Path,
    pub(super) prefix: String,
}

impl<'a> At<'a> {
    /// A table in this one.
    pub(super) fn inside(&self, field: &str) -> At<'a> {
        At { path: self.path, prefix: format!("{}.{field}", self.prefix) }
    }

    pub(super) fn field(
        &self,
        field: &str,
        problem: impl Into<String>,
        fix: impl Into<String>,
    ) -> ConfigError {
        ConfigError::Field {
            path: self.path.to_owned(),
            field: format!("{}.{field}", self.prefix),
            problem: problem.into(),
            fix: fix.into(),
        }
    }

    pub(super) fn repository(&self, field: &str, source: RepositoryError) -> ConfigError {
        ConfigError::Repository {
            path: self.path.to_owned(),
            field: format!("{}.{field}", self.prefix),
            source: Box::new(source),
        }
    }

    pub(super) fn at_least_one(&self, field: &str, value: usize) -> Result<(), ConfigError> {
        if value == 0 {
            return Err(self.field(field, "0", "give at least 1"));
        }
        Ok(())
    }

    pub(super) fn share(&self, field: &str, value: f64) -> Result<(), ConfigError> {
        if !(0.0..=16.0).contains(&value) {
            return Err(self.field(field, format!("{value}"), "give a share of the queries, 0 to 16"));
        }
        Ok(())
    }

    pub(super) fn positive(&self, field: &str, value: Duration) -> Result<(), ConfigError> {
        if value.is_zero() {
            return Err(self.field(field, "0", "give a time in milliseconds above 0"));
        }
        Ok(())
    }
}

pub(super) fn resolve(path: &Path, file: File) -> Result<FrontendConfig, ConfigError> {
    let server = At { path, prefix: "server".to_owned() };
    server.at_least_one("max_connections", file.server.max_connections)?;
    server.at_least_one("grpc_max_streams", file.server.grpc_max_streams as usize)?;
    server.at_least_one("max_body_bytes", file.server.max_body_bytes)?;
    server.at_least_one("max_header_bytes", file.server.max_header_bytes)?;
    server.positive("header_read_timeout_ms", file.server.header_read_timeout)?;
    server.positive("body_read_timeout_ms", file.server.body_read_timeout)?;
    server.positive("write_timeout_ms", file.server.write_timeout)?;
    let at = At { path, prefix: "repository".to_owned() };
    let repository = ModelRepository::open(beside(path, &file.repository.path))
        .map_err(|source| at.repository("path", source))?;
    if file.models.is_empty() {
        let at = At { path, prefix: "models".to_owned() };
        return Err(at.field("[]", "no model", "add a [[models]] table"));
    }
    let mut models: Vec<ModelConfig> = Vec::with_capacity(file.models.len());
    for (index, model) in file.models.into_iter().enumerate() {
        let at = At { path, prefix: format!("models[{index}]") };
        if models.iter().any(|other| other.entry.name == model.name) {
            return Err(at.field("name", format!("{:?} is there twice", model.name), "name each model once"));
        }
        models.push(resolve_model(&at, &repository, model)?);
    }
    Ok(FrontendConfig { server: file.server, models })
}

fn resolve_model(
    at: &At<'_>,
    repository: &ModelRepository,
    model: Model,
) -> Result<ModelConfig, ConfigError> {
    let entry = repository.load(&model.name).map_err(|source| at.repository("name", source))?;
    let version = resolve_version(at, &entry, model.version)?;
    at.at_least_one("max_in_flight", model.max_in_flight)?;
    at.at_least_one("max_queue", model.max_queue)?;
    at.at_least_one("max_rows", model.max_rows)?;
    at.at_least_one("max_attempts", model.max_attempts as usize)?;
    at.positive("timeout_ms", model.timeout)?;
    at.positive("health.interval_ms", model.health.interval)?;
    at.positive("health.recovery_interval_ms", model.health.recovery_interval)?;
    at.positive("health.timeout_ms", model.health.timeout)?;
    at.at_least_one("health.failures", model.health.failures as usize)?;
    at.share("retry_share", model.retry_share)?;
    if model.max_timeout < model.timeout {
        return Err(at.field("max_timeout_ms", "less than timeout_ms", "raise it to at least timeout_ms"));
    }
    let pool = resolve_deployed_pool(at, &model)?;
    let deployed = Deployed { repository, entry: &entry, version, pool: &pool };
    let (classes, redundant) = strategy::resolve_classes(at, &deployed, model.strategy, model.classes)?;
    Ok(ModelConfig {
        entry,
        version,
        pool,
        max_in_flight: model.max_in_flight,
        timeout: model.timeout,
        max_timeout: model.max_timeout,
        max_attempts: model.max_attempts,
        retry_share: model.retry_share,
        max_rows: model.max_rows,
        health: model.health,
        redundant,
        classes,
    })
}

/// The deployed model's instances, with those that `equal_resources` adds.
fn resolve_deployed_pool(at: &At<'_>, model: &Model) -> Result<PoolSettings, ConfigError> {
    let pool = |instances: &[String], at: &At<'_>| {
        resolve_pool(at, instances, model.slots_per_instance, model.max_queue)
    };
    let mut deployed = pool(&model.instances, at)?;
    if let Strategy::EqualResources { instances } = &model.strategy {
        let at = at.inside("strategy");
        for (index, (name, address)) in pool(instances, &at)?.instances.into_iter().enumerate() {
            if deployed.instances.iter().any(|(_, other)| *other == address) {
                let field = format!("instances[{index}]");
                let problem = format!("{name:?} is an instance of the model already");
                return Err(at.field(&field, problem, "list only further instances here"));
            }
            deployed.instances.push((name, address));
        }
    }
    Ok(deployed)
}

pub(super) fn resolve_version(
    at: &At<'_>,
    entry: &ModelEntry,
    version: Option<u64>,
) -> Result<u64, ConfigError> {
    let version = version.unwrap_or_else(|| entry.latest());
    entry.model_file(version).map_err(|source| at.repository("version", source))?;
    Ok(version)
}

pub(super) fn resolve_pool(
    at: &At<'_>,
    instances: &[String],
    slots: u32,
    queue: usize,
) -> Result<PoolSettings, ConfigError> {
    at.at_least_one("slots_per_instance", slots as usize)?;
    if instances.is_empty() {
        return Err(at.field("instances", "none", "list addresses like \"127.0.0.1:9001\""));
    }
    let mut resolved: Vec<(String, SocketAddr)> = Vec::with_capacity(instances.len());
    for (index, name) in instances.iter().enumerate() {
        let field = format!("instances[{index}]");
        let (scheme, host) = Scheme::split(name);
        let address = host
            .to_socket_addrs()
            .map_err(|error| at.field(&field, format!("{name:?}: {error}"), "give host:port"))?
            .next()
            .ok_or_else(|| at.field(&field, format!("{name:?} has no address"), "give host:port"))?;
        if resolved.iter().any(|(_, other)| *other == address) {
            return Err(at.field(&field, format!("{name:?} is there twice"), "list each instance once"));
        }
        resolved.push((scheme.name(host), address));
    }
    Ok(PoolSettings { instances: resolved, slots, queue })
}
