//! From what the file says to what the frontend needs: metadata looked up, codes compared, sizes
//! checked.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use crate::discovery::Mistake;
use parapet_config::repository::{ModelEntry, ModelRepository, RepositoryError};
use parapet_net::tls::{ClientSettings, ClientTls};

use super::access::{resolve_admin, resolve_tenants};
use super::instances::Instances;
use super::settings::{File, HealthSettings, Model, ServerSettings, TraceSettings};
use super::strategy::{self, ClassConfig, Deployed, RedundantPool};
use super::tls::{resolve_listener, resolve_own, resolve_shared};
use super::{ConfigError, FrontendConfig, beside, folder};
use crate::upstream::Scheme;

#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// Its metadata out of the repository.
    pub entry: ModelEntry,
    pub version: u64,
    pub pool: PoolSettings,
    /// The wait for a slot that is aimed at under overload, as a share of the time that instances
    /// take; 0 if the queue is to be bounded by its length alone.
    pub queue_wait_share: f64,
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
    pub health: HealthSettings,
    /// Pools beside the deployed model's, those of parity and backup models: pool 1 and following.
    pub redundant: Vec<RedundantPool>,
    /// Classes of requests with their strategies; the first one is for requests that name none.
    pub classes: Vec<ClassConfig>,
}

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

/// Where in the file one is, for messages.
pub(super) struct At<'a> {
    pub(super) path: &'a Path,
    pub(super) prefix: String,
}

impl<'a> At<'a> {
    /// A table in this one.
    pub(super) fn inside(&self, field: &str) -> At<'a> {
        At {
            path: self.path,
            prefix: format!("{}.{field}", self.prefix),
        }
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
            return Err(self.field(
                field,
                format!("{value}"),
                "give a share of the queries, 0 to 16",
            ));
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
    check_server(path, &file.server)?;
    let listen = file.server.listen;
    let at_server = At {
        path,
        prefix: "server".to_owned(),
    };
    let server_tls = resolve_listener(&at_server, file.server.tls.as_ref())?;
    let admin = file
        .admin
        .as_ref()
        .map(|admin| resolve_admin(path, admin, listen))
        .transpose()?;
    let tenants = resolve_tenants(path, file.tenants)?;
    let at = At {
        path,
        prefix: "repository".to_owned(),
    };
    let repository = ModelRepository::open(beside(path, &file.repository.path))
        .map_err(|source| at.repository("path", source))?;
    if file.models.is_empty() {
        let at = At {
            path,
            prefix: "models".to_owned(),
        };
        return Err(at.field("[]", "no model", "add a [[models]] table"));
    }
    let mut models: Vec<ModelConfig> = Vec::with_capacity(file.models.len());
    for (index, model) in file.models.into_iter().enumerate() {
        let at = At {
            path,
            prefix: format!("models[{index}]"),
        };
        if models.iter().any(|other| other.entry.name == model.name) {
            return Err(at.field(
                "name",
                format!("{:?} is there twice", model.name),
                "name each model once",
            ));
        }
        models.push(resolve_model(&at, &repository, model)?);
    }
    if let Some(traces) = &file.traces {
        check_traces(
            &At {
                path,
                prefix: "traces".to_owned(),
            },
            traces,
        )?;
    }
    let (path, server) = (path.to_owned(), file.server);
    Ok(FrontendConfig {
        path,
        server,
        server_tls,
        admin,
        tenants,
        models,
        traces: file.traces,
    })
}

/// Checks that need no other file.
pub(super) fn check(path: &Path, file: File) -> Result<(), ConfigError> {
    check_server(path, &file.server)?;
    resolve_tenants(path, file.tenants)?;
    if let Some(traces) = &file.traces {
        check_traces(
            &At {
                path,
                prefix: "traces".to_owned(),
            },
            traces,
        )?;
    }
    for (index, model) in file.models.iter().enumerate() {
        check_model(
            &At {
                path,
                prefix: format!("models[{index}]"),
            },
            model,
        )?;
    }
    Ok(())
}

fn check_server(path: &Path, server: &ServerSettings) -> Result<(), ConfigError> {
    let at = At {
        path,
        prefix: "server".to_owned(),
    };
    at.at_least_one("max_connections", server.max_connections)?;
    at.at_least_one(
        "max_connections_per_peer",
        server.max_connections_per_peer.unwrap_or(1),
    )?;
    at.at_least_one("grpc_max_streams", server.grpc_max_streams as usize)?;
    at.at_least_one("max_body_bytes", server.max_body_bytes)?;
    at.at_least_one("max_header_bytes", server.max_header_bytes)?;
    at.at_least_one("max_headers", server.max_headers)?;
    at.at_least_one("min_write_bytes_per_s", server.min_write_rate as usize)?;
    at.positive("max_connection_age_ms", server.max_connection_age)?;
    at.positive("header_read_timeout_ms", server.header_read_timeout)?;
    at.positive("body_read_timeout_ms", server.body_read_timeout)?;
    at.positive("write_timeout_ms", server.write_timeout)?;
    if server.max_bodies_bytes < server.max_body_bytes {
        return Err(at.field(
            "max_bodies_bytes",
            "less than max_body_bytes",
            "raise it to at least max_body_bytes",
        ));
    }
    Ok(())
}

fn check_traces(at: &At<'_>, traces: &TraceSettings) -> Result<(), ConfigError> {
    let endpoint: Option<http::Uri> = traces.endpoint.parse().ok();
    if endpoint.and_then(|uri| Some((uri.scheme_str()? == "http") && uri.port().is_some()))
        != Some(true)
    {
        let problem = format!("{:?} is no collector's address", traces.endpoint);
        return Err(at.field(
            "endpoint",
            problem,
            "give http://HOST:PORT of its OTLP/gRPC port, usually 4317",
        ));
    }
    if !(0.0..=1.0).contains(&traces.share) {
        return Err(at.field(
            "share",
            format!("{}", traces.share),
            "give a share of the requests, 0 to 1",
        ));
    }
    Ok(())
}

fn resolve_model(
    at: &At<'_>,
    repository: &ModelRepository,
    model: Model,
) -> Result<ModelConfig, ConfigError> {
    let entry = repository
        .load(&model.name)
        .map_err(|source| at.repository("name", source))?;
    let version = resolve_version(at, &entry, model.version)?;
    check_model(at, &model)?;
    let mut pool = resolve_pool(
        at,
        &model.instances,
        model.slots_per_instance,
        model.max_queue,
    )?;
    let deployed = Deployed {
        repository,
        entry: &entry,
        version,
        pool: &pool,
    };
    let (classes, mut redundant) =
        strategy::resolve_classes(at, &deployed, model.strategy, model.classes)?;
    let pools = std::iter::once(&mut pool).chain(redundant.iter_mut().map(|other| &mut other.pool));
    resolve_shared(at, model.tls.as_ref(), pools)?;
    Ok(ModelConfig {
        entry,
        version,
        pool,
        queue_wait_share: model.queue_wait_share,
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

fn check_model(at: &At<'_>, model: &Model) -> Result<(), ConfigError> {
    at.at_least_one("max_in_flight", model.max_in_flight)?;
    at.at_least_one("max_queue", model.max_queue)?;
    at.at_least_one("max_rows", model.max_rows)?;
    at.at_least_one("max_attempts", model.max_attempts as usize)?;
    at.positive("timeout_ms", model.timeout)?;
    at.positive("health.interval_ms", model.health.interval)?;
    at.positive(
        "health.recovery_interval_ms",
        model.health.recovery_interval,
    )?;
    at.positive("health.timeout_ms", model.health.timeout)?;
    at.at_least_one("health.failures", model.health.failures as usize)?;
    at.share("retry_share", model.retry_share)?;
    at.share("queue_wait_share", model.queue_wait_share)?;
    at.positive("health.eject_ms", model.health.eject)?;
    if !(0.0..=1.0).contains(&model.health.max_ejected_share) {
        let given = model.health.max_ejected_share.to_string();
        return Err(at.field(
            "health.max_ejected_share",
            given,
            "give a share of the instances, 0 to 1",
        ));
    }
    if model.max_timeout < model.timeout {
        return Err(at.field(
            "max_timeout_ms",
            "less than timeout_ms",
            "raise it to at least timeout_ms",
        ));
    }
    Ok(())
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
