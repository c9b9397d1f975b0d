//! From what the file says to what the frontend needs: metadata looked up, codes compared, sizes checked.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use parapet_encoder::{Code, CodeSpec, build_encoder};
use parapet_frontend_core::HoldBackPolicy;
use parapet_open_inference::Datatype;
use parapet_repository::{ModelEntry, ModelRepository, RepositoryError};

use super::settings::{Coded, File, HealthSettings, HoldBack, Model, Parity, Strategy};
use super::{ConfigError, FrontendConfig, beside};

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
    /// Its redundancy.
    pub strategy: StrategySettings,
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

/// What redundant work is done.
#[derive(Debug, Clone)]
pub enum StrategySettings {
    /// None.
    None,
    /// Coded.
    Coded(Box<CodedSettings>),
}

/// Coded redundancy.
#[derive(Debug, Clone)]
pub struct CodedSettings {
    /// The code, equal to that of every parity model.
    pub spec: CodeSpec,
    /// When a query counts as late.
    pub hold_back: HoldBackPolicy,
    /// How long a group may stay open.
    pub flush_after: Duration,
    /// How long late truths are awaited.
    pub late_truth_wait: Duration,
    /// How long a parity query may take.
    pub parity_timeout: Duration,
    /// Parity queries for each query over time.
    pub redundant_share: f64,
    /// Parity queries at once beyond that.
    pub redundant_burst: f64,
    /// Queries waiting for a slot above which no parity queries are issued.
    pub shed_above: usize,
    /// One in so many undisturbed groups is audited.
    pub audit_every: u64,
    /// One pool for each parity row.
    pub parity: Vec<ParityPool>,
}

/// The instances of one parity model.
#[derive(Debug, Clone)]
pub struct ParityPool {
    /// The parity model's metadata.
    pub entry: ModelEntry,
    /// The version used.
    pub version: u64,
    /// Its instances.
    pub pool: PoolSettings,
}

/// Where in the file one is, for messages.
struct At<'a> {
    path: &'a Path,
    prefix: String,
}

impl At<'_> {
    fn field(&self, field: &str, problem: impl Into<String>, fix: impl Into<String>) -> ConfigError {
        ConfigError::Field {
            path: self.path.to_owned(),
            field: format!("{}.{field}", self.prefix),
            problem: problem.into(),
            fix: fix.into(),
        }
    }

    fn repository(&self, field: &str, source: RepositoryError) -> ConfigError {
        ConfigError::Repository {
            path: self.path.to_owned(),
            field: format!("{}.{field}", self.prefix),
            source: Box::new(source),
        }
    }

    fn at_least_one(&self, field: &str, value: usize) -> Result<(), ConfigError> {
        if value == 0 {
            return Err(self.field(field, "0", "give at least 1"));
        }
        Ok(())
    }

    fn share(&self, field: &str, value: f64) -> Result<(), ConfigError> {
        if !(0.0..=16.0).contains(&value) {
            return Err(self.field(field, format!("{value}"), "give a share of the queries, 0 to 16"));
        }
        Ok(())
    }

    fn positive(&self, field: &str, value: Duration) -> Result<(), ConfigError> {
        if value.is_zero() {
            return Err(self.field(field, "0", "give a time in milliseconds above 0"));
        }
        Ok(())
    }
}

pub(super) fn resolve(path: &Path, file: File) -> Result<FrontendConfig, ConfigError> {
    let server = At { path, prefix: "server".to_owned() };
    server.at_least_one("max_connections", file.server.max_connections)?;
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
    let pool = resolve_pool(at, &model.instances, model.slots_per_instance, model.max_queue)?;
    let strategy = match model.strategy {
        Strategy::None => StrategySettings::None,
        Strategy::Coded(coded) => {
            let at = At { path: at.path, prefix: format!("{}.strategy", at.prefix) };
            StrategySettings::Coded(Box::new(resolve_coded(&at, repository, &entry, &pool, *coded)?))
        }
    };
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
        strategy,
    })
}

fn resolve_version(at: &At<'_>, entry: &ModelEntry, version: Option<u64>) -> Result<u64, ConfigError> {
    let version = version.unwrap_or_else(|| entry.latest());
    entry.model_file(version).map_err(|source| at.repository("version", source))?;
    Ok(version)
}

fn resolve_pool(
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
        let host = name.strip_prefix("http://").unwrap_or(name).trim_end_matches('/');
        let address = host
            .to_socket_addrs()
            .map_err(|error| at.field(&field, format!("{name:?}: {error}"), "give host:port"))?
            .next()
            .ok_or_else(|| at.field(&field, format!("{name:?} has no address"), "give host:port"))?;
        if resolved.iter().any(|(_, other)| *other == address) {
            return Err(at.field(&field, format!("{name:?} is there twice"), "list each instance once"));
        }
        resolved.push((host.to_owned(), address));
    }
    Ok(PoolSettings { instances: resolved, slots, queue })
}

fn resolve_coded(
    at: &At<'_>,
    repository: &ModelRepository,
    deployed: &ModelEntry,
    pool: &PoolSettings,
    coded: Coded,
) -> Result<CodedSettings, ConfigError> {
    let [input] = deployed.inputs.as_slice() else {
        return Err(at.field("kind", "coding needs a model with one input", "use kind = \"none\""));
    };
    let [output] = deployed.outputs.as_slice() else {
        return Err(at.field("kind", "coding needs a model with one output", "use kind = \"none\""));
    };
    if input.datatype != Datatype::Fp32 || output.datatype != Datatype::Fp32 {
        return Err(at.field("kind", "coding needs FP32 input and output", "use kind = \"none\""));
    }
    if coded.parity.len() != coded.r {
        return Err(at.field(
            "parity",
            format!("{} parity pools for r = {}", coded.parity.len(), coded.r),
            "give one [[models.strategy.parity]] table for each of the r rows",
        ));
    }
    let asked = CodeSpec { encoder: coded.encoder, k: coded.k, r: coded.r, generator: None };
    let mut parity = Vec::with_capacity(coded.r);
    let mut spec = asked.clone();
    for (row, pool) in coded.parity.iter().enumerate() {
        let at = At { path: at.path, prefix: format!("{}.parity[{row}]", at.prefix) };
        let (resolved, trained) = resolve_parity(&at, repository, deployed, &asked, row, pool)?;
        if row > 0 && codes_differ(&spec, &trained) {
            return Err(at.field("model", "another generator than row 0's", "train all rows with one code"));
        }
        spec = trained;
        parity.push(resolved);
    }
    build_encoder(&spec, &input.shape).map_err(|source| ConfigError::Code {
        path: at.path.to_owned(),
        field: at.prefix.clone(),
        source: Box::new(source),
    })?;
    at.share("redundant_share", coded.redundant_share)?;
    at.positive("flush_after_ms", coded.flush_after)?;
    at.positive("parity_timeout_ms", coded.parity_timeout)?;
    let all_slots = pool.instances.len() * pool.slots as usize;
    Ok(CodedSettings {
        spec,
        hold_back: resolve_hold_back(at, &coded.hold_back)?,
        flush_after: coded.flush_after,
        late_truth_wait: coded.late_truth_wait,
        parity_timeout: coded.parity_timeout,
        redundant_share: coded.redundant_share,
        redundant_burst: coded.redundant_burst,
        shed_above: coded.shed_above.unwrap_or(all_slots),
        audit_every: coded.audit_every,
        parity,
    })
}

fn codes_differ(a: &CodeSpec, b: &CodeSpec) -> bool {
    match (Code::try_from(a), Code::try_from(b)) {
        (Ok(a), Ok(b)) => a != b,
        _ => true,
    }
}

/// The parity pool of `row`, and the code its model was trained for: the one asked for, with its generator.
fn resolve_parity(
    at: &At<'_>,
    repository: &ModelRepository,
    deployed: &ModelEntry,
    asked: &CodeSpec,
    row: usize,
    pool: &Parity,
) -> Result<(ParityPool, CodeSpec), ConfigError> {
    let entry = repository.load(&pool.model).map_err(|source| at.repository("model", source))?;
    let version = resolve_version(at, &entry, pool.version)?;
    let toml = entry.toml_file();
    let Some(code) = entry.code.clone() else {
        return Err(at.field(
            "model",
            format!("{:?} is no parity model ({} has no [code])", entry.name, toml.display()),
            "name a parity model",
        ));
    };
    let differs = |what: &str, asked: String, trained: String| {
        at.field(
            "model",
            format!("{what} = {asked} here, and code.{what} = {trained} in {}", toml.display()),
            format!("set {what} = {trained}, or name a parity model trained for {asked}"),
        )
    };
    if code.deployed != deployed.name {
        return Err(differs("deployed", deployed.name.clone(), code.deployed));
    }
    if code.row != row {
        return Err(differs("row", row.to_string(), code.row.to_string()));
    }
    if code.spec.encoder != asked.encoder {
        return Err(differs(
            "encoder",
            format!("\"{}\"", asked.encoder),
            format!("\"{}\"", code.spec.encoder),
        ));
    }
    if code.spec.k != asked.k {
        return Err(differs("k", asked.k.to_string(), code.spec.k.to_string()));
    }
    if code.spec.r != asked.r {
        return Err(differs("r", asked.r.to_string(), code.spec.r.to_string()));
    }
    let same_shape = |a: &[parapet_repository::TensorSpec], b: &[parapet_repository::TensorSpec]| {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.shape == b.shape && a.datatype == b.datatype)
    };
    if !same_shape(&entry.inputs, &deployed.inputs) || !same_shape(&entry.outputs, &deployed.outputs) {
        return Err(at.field(
            "model",
            format!("inputs or outputs of {} have other shapes than the deployed model's", toml.display()),
            "name a parity model of this deployed model",
        ));
    }
    let pool = resolve_pool(at, &pool.instances, pool.slots_per_instance, pool.max_queue)?;
    Ok((ParityPool { entry, version, pool }, code.spec))
}

fn resolve_hold_back(at: &At<'_>, hold_back: &HoldBack) -> Result<HoldBackPolicy, ConfigError> {
    let millis = |field: &str, value: f64| {
        Duration::try_from_secs_f64(value / 1e3)
            .map_err(|_| at.field(field, format!("{value}"), "give milliseconds, at least 0"))
    };
    match hold_back {
        HoldBack { fixed_ms: Some(fixed), percentile: None, min_ms: None, max_ms: None } => {
            Ok(HoldBackPolicy::Fixed(millis("hold_back.fixed_ms", *fixed)?))
        }
        HoldBack { fixed_ms: Some(_), .. } => {
            Err(at.field("hold_back", "fixed_ms beside a learned percentile", "give one or the other"))
        }
        HoldBack { percentile, min_ms, max_ms, .. } => {
            let percentile = percentile.unwrap_or(0.97);
            if !(0.5..1.0).contains(&percentile) {
                return Err(at.field(
                    "hold_back.percentile",
                    format!("{percentile}"),
                    "give a quantile from 0.5 to below 1, as 0.97",
                ));
            }
            let min = millis("hold_back.min_ms", min_ms.unwrap_or(1.0))?;
            let max = millis("hold_back.max_ms", max_ms.unwrap_or(200.0))?;
            if max < min {
                return Err(at.field("hold_back.max_ms", "less than min_ms", "raise it"));
            }
            Ok(HoldBackPolicy::Learned { percentile, min, max })
        }
    }
}
