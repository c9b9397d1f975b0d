//! From the file to what the frontend needs: metadata looked up, codes built, sizes checked.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use parapet_config::repository::{ModelEntry, ModelRepository};

use super::access::{resolve_admin, resolve_listener, resolve_tenants};
use super::pool::{PoolSettings, find_entry, resolve_version, share_tls};
use super::settings::{File, ModelSettings, ServerSettings};
use super::strategy::{ClassConfig, Deployed, RedundantPool, resolve_classes};
use super::undescribed::Undescribed;
use super::{At, ConfigError, FrontendConfig};
use crate::traces::TraceSettings;

/// Slots of an instance that are looked for where none are configured.
const LEAST_SLOTS: u32 = 2;
const MOST_SLOTS: u32 = 64;

#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    pub settings: ModelSettings,
    pub entry: ModelEntry,
    pub version: u64,
    /// The version that instances are asked for; they choose if `None`.
    pub requested_version: Option<u64>,
    pub pool: PoolSettings,
    /// Pools beside the deployed model's, of parity and backup models: pool 1 and following.
    pub redundant: Vec<RedundantPool>,
    /// Classes of requests with their strategies; the first one is for requests that name none.
    pub classes: Vec<ClassConfig>,
}

impl ModelConfig {
    pub fn pools(&self) -> impl Iterator<Item = &PoolSettings> {
        std::iter::once(&self.pool).chain(self.redundant.iter().map(|other| &other.pool))
    }

    /// Slots that an instance may be given: as many as are configured, or found.
    pub fn max_slots(&self) -> u32 {
        self.settings.slots_per_instance.unwrap_or(MOST_SLOTS)
    }

    /// Labels of these pools: `deployed`, `parity0`, `batch-backup`.
    pub fn pool_labels(&self) -> impl Iterator<Item = &str> {
        std::iter::once("deployed").chain(self.redundant.iter().map(|other| other.label.as_str()))
    }
}

pub(super) fn resolve(path: &Path, file: File) -> Result<FrontendConfig, ConfigError> {
    let at_server = At::new(path, "server");
    check_server(&at_server, &file.server)?;
    let server_tls = resolve_listener(&at_server, file.server.tls.as_ref())?;
    let (at, data) = (At::new(path, "admin"), file.server.listen);
    let admin = file.admin.as_ref().map(|admin| resolve_admin(&at, admin, data)).transpose()?;
    let tenants = resolve_tenants(path, file.tenants)?;
    let at = At::new(path, "repository");
    let repository =
        file.repository.map(|given| ModelRepository::open(at.folder().join(given.path)));
    let repository = repository.transpose().map_err(|error| at.because("path", error))?;
    let at = At::new(path, "models");
    at.check(!file.models.is_empty(), "[]", "no model", "add a [[models]] table")?;
    let (mut models, mut undescribed, mut names) = (Vec::new(), Vec::new(), BTreeSet::new());
    for (index, model) in file.models.into_iter().enumerate() {
        let at = At::new(path, format!("models[{index}]"));
        let problem = format!("{:?} is there twice", model.name);
        at.check(names.insert(model.name.clone()), "name", problem, "name each model once")?;
        match find_entry(&at, "name", repository.as_ref(), &model.name)? {
            Some(entry) => models.push(resolve_model(&at, repository.as_ref(), model, entry)?),
            None => undescribed.push(Undescribed::resolve(&at, repository.clone(), model)?),
        }
    }
    check_traces(path, file.traces.as_ref())?;
    let (path, server, traces) = (path.to_owned(), file.server, file.traces);
    Ok(FrontendConfig { path, server, server_tls, admin, tenants, models, undescribed, traces })
}

pub(super) fn check(path: &Path, file: File) -> Result<(), ConfigError> {
    check_server(&At::new(path, "server"), &file.server)?;
    resolve_tenants(path, file.tenants)?;
    check_traces(path, file.traces.as_ref())?;
    for (index, model) in file.models.iter().enumerate() {
        check_model(&At::new(path, format!("models[{index}]")), model)?;
    }
    Ok(())
}

fn check_positive(at: &At<'_>, times: &[(&str, Duration)]) -> Result<(), ConfigError> {
    let zero = times.iter().find(|(_, time)| time.is_zero());
    zero.map_or(Ok(()), |(field, _)| Err(at.field(field, 0, "give a time in milliseconds above 0")))
}

fn check_server(at: &At<'_>, server: &ServerSettings) -> Result<(), ConfigError> {
    at.at_least_one("max_connections", server.max_connections)?;
    at.at_least_one("max_connections_per_peer", server.max_connections_per_peer.unwrap_or(1))?;
    at.at_least_one("grpc_max_streams", server.grpc_max_streams)?;
    at.at_least_one("max_body_bytes", server.max_body_bytes)?;
    at.at_least_one("max_header_bytes", server.max_header_bytes)?;
    at.at_least_one("max_headers", server.max_headers)?;
    at.at_least_one("min_write_bytes_per_s", server.min_write_rate)?;
    let times = [
        ("max_connection_age_ms", server.max_connection_age),
        ("header_read_timeout_ms", server.header_read_timeout),
        ("body_read_timeout_ms", server.body_read_timeout),
        ("write_timeout_ms", server.write_timeout),
    ];
    check_positive(at, &times)?;
    let fits = server.max_bodies_bytes >= server.max_body_bytes;
    let fix = "raise it to at least max_body_bytes";
    at.check(fits, "max_bodies_bytes", "less than max_body_bytes", fix)
}

fn check_traces(path: &Path, traces: Option<&TraceSettings>) -> Result<(), ConfigError> {
    let Some(traces) = traces else { return Ok(()) };
    let (endpoint, share) = (&traces.endpoint, traces.share);
    let at = At::new(path, "traces");
    let uri: http::Uri = endpoint.parse().unwrap_or_default();
    let is_plain = uri.scheme_str() == Some("http") && uri.port().is_some();
    let problem = format!("{endpoint:?} is no collector's address");
    let fix = "give http://HOST:PORT of its OTLP/gRPC port, usually 4317";
    at.check(is_plain, "endpoint", problem, fix)?;
    at.check((0.0..=1.0).contains(&share), "share", share, "give a share of the requests, 0 to 1")
}

pub(super) fn resolve_model(
    at: &At<'_>,
    repository: Option<&ModelRepository>,
    settings: ModelSettings,
    entry: ModelEntry,
) -> Result<ModelConfig, ConfigError> {
    let version = resolve_version(at, &entry, settings.version)?;
    check_model(at, &settings)?;
    let mut pool = PoolSettings::resolve(at, &settings.instances, deployed_size(&settings), None)?;
    let requested_version = settings.version.or(entry.is_in_repository().then_some(version));
    let deployed = Deployed { repository, entry: &entry, version: requested_version, pool: &pool };
    let (classes, mut redundant) =
        resolve_classes(at, &deployed, &settings.strategy, &settings.classes)?;
    let pools = std::iter::once(&mut pool).chain(redundant.iter_mut().map(|other| &mut other.pool));
    share_tls(at, settings.tls.as_ref(), pools)?;
    Ok(ModelConfig { settings, entry, version, requested_version, pool, redundant, classes })
}

/// Slots of an instance, and places in the queue.
pub(super) fn deployed_size(settings: &ModelSettings) -> (u32, usize) {
    (settings.slots_per_instance.unwrap_or(LEAST_SLOTS), settings.max_queue)
}

pub(super) fn check_model(at: &At<'_>, model: &ModelSettings) -> Result<(), ConfigError> {
    let health = &model.health;
    at.at_least_one("max_in_flight", model.max_in_flight)?;
    at.at_least_one("max_queue", model.max_queue)?;
    at.at_least_one("max_rows", model.max_rows)?;
    at.at_least_one("max_attempts", model.max_attempts)?;
    at.at_least_one("health.failures", health.failures)?;
    let times = [
        ("timeout_ms", model.timeout),
        ("health.interval_ms", health.interval),
        ("health.recovery_interval_ms", health.recovery_interval),
        ("health.timeout_ms", health.timeout),
        ("health.eject_ms", health.eject),
    ];
    check_positive(at, &times)?;
    let shares = [("retry_share", model.retry_share), ("queue_wait_share", model.queue_wait_share)];
    let fix = "give a share of the queries, 0 to 16";
    for (field, share) in shares {
        at.check((0.0..=16.0).contains(&share), field, share, fix)?;
    }
    let (field, share) = ("health.max_ejected_share", health.max_ejected_share);
    let fix = "give a share of the instances, 0 to 1";
    at.check((0.0..=1.0).contains(&share), field, share, fix)?;
    let is_longest = model.max_timeout >= model.timeout;
    let fix = "raise it to at least timeout_ms";
    at.check(is_longest, "max_timeout_ms", "less than timeout_ms", fix)
}
