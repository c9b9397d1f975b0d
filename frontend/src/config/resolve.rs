//! From what the file says to what the frontend needs: metadata looked up, codes compared, sizes
//! checked.

use std::path::Path;
use std::time::Duration;

use parapet_config::repository::{ModelEntry, ModelRepository};

use super::access::{resolve_admin, resolve_tenants};
use super::at::At;
use super::pool::{PoolSettings, resolve_pool, resolve_version};
use super::settings::{File, HealthSettings, Model, ServerSettings};
use super::strategy::{self, ClassConfig, Deployed, RedundantPool};
use super::tls::{resolve_listener, resolve_shared};
use super::{ConfigError, FrontendConfig, beside};
use crate::traces::TraceSettings;

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
