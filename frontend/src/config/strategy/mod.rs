//! Redundancy as configured: a strategy for the model, and one for each class of requests; the
//! pools that they need.

mod coded;
mod learned;
pub(super) mod settings;
mod tensors;

use std::time::Duration;

use parapet_config::repository::{ModelEntry, ModelRepository, TensorSpec};
use parapet_encoder::CodeSpec;
use parapet_frontend_core::{
    AS_MANY_AS_SLOTS, ApproximateBackupConfig, CodedHedgedConfig, HedgeConfig, HoldBackPolicy,
    PoolId, ReplicateConfig, StrategyConfig,
};
use parapet_onnx::learned_code::LearnedCode;

pub use self::tensors::CodedTensors;

use self::settings::{Backup, Coded, Delay, Hedge, Replicate, Strategy};
use super::ConfigError;
use super::resolve::{At, PoolSettings, resolve_pool, resolve_version};
use super::settings::Class;

/// The name of the class of requests that name none.
pub const DEFAULT_CLASS: &str = "default";
/// Most classes beside the default one.
const MAX_CLASSES: usize = 16;

/// A class of requests, and its redundancy.
#[derive(Debug, Clone)]
pub struct ClassConfig {
    pub name: String,
    pub strategy: StrategyConfig,
    /// The code of a coded strategy.
    pub code: Option<ClassCode>,
    /// Its networks, if it is a learned one.
    pub learned: Option<LearnedConfig>,
}

/// A code and what it is for, the same for every parity model.
#[derive(Debug, Clone)]
pub struct ClassCode {
    pub spec: CodeSpec,
    /// The inputs and outputs of the model that it covers.
    pub tensors: CodedTensors,
}

/// A learned code as it is served.
#[derive(Debug, Clone)]
pub struct LearnedConfig {
    /// The code with its networks.
    pub code: LearnedCode,
    /// Pieces of encoding and decoding that may wait for each other.
    pub max_queue: usize,
}

/// The instances of one parity or backup model.
#[derive(Debug, Clone)]
pub struct RedundantPool {
    /// Its name in metrics: `parity0`, `backup`; those of a class begin with its name.
    pub label: String,
    pub entry: ModelEntry,
    pub version: u64,
    pub pool: PoolSettings,
}

pub(super) struct Deployed<'a> {
    pub(super) repository: &'a ModelRepository,
    pub(super) entry: &'a ModelEntry,
    pub(super) version: u64,
    pub(super) pool: &'a PoolSettings,
}

impl Deployed<'_> {
    /// Requests that can be served at the same time, for `shed_above`.
    fn slots(&self) -> usize {
        match self.listed() {
            usize::MAX => AS_MANY_AS_SLOTS,
            listed => listed * self.pool.slots as usize,
        }
    }

    /// Number of instances listed. Discovery may find any number.
    fn listed(&self) -> usize {
        if self.pool.discovery.is_some() {
            usize::MAX
        } else {
            self.pool.instances.len()
        }
    }
}

/// All classes, the default one first, and all pools beside the deployed model's.
pub(super) fn resolve_classes(
    at: &At<'_>,
    deployed: &Deployed<'_>,
    strategy: Strategy,
    others: Vec<Class>,
) -> Result<(Vec<ClassConfig>, Vec<RedundantPool>), ConfigError> {
    if others.len() > MAX_CLASSES {
        let problem = format!("{} classes", others.len());
        return Err(at.field("classes", problem, format!("give at most {MAX_CLASSES}")));
    }
    let mut pools = Vec::new();
    let default = resolve_strategy(&at.inside("strategy"), deployed, strategy, &mut pools)?;
    let mut classes = vec![ClassConfig {
        name: DEFAULT_CLASS.to_owned(),
        ..default
    }];
    for (index, class) in others.into_iter().enumerate() {
        let at = at.inside(&format!("classes[{index}]"));
        if class.name.is_empty() || classes.iter().any(|other| other.name == class.name) {
            let problem = format!(
                "{:?} is empty, there twice, or the default class",
                class.name
            );
            return Err(at.field("name", problem, "give each class a name of its own"));
        }
        if matches!(class.strategy, Strategy::EqualResources { .. }) {
            let fix = "list all instances with the model, and use kind = \"none\" here";
            return Err(at.field(
                "strategy.kind",
                "classes share the deployed model's instances",
                fix,
            ));
        }
        let first = pools.len();
        let resolved =
            resolve_strategy(&at.inside("strategy"), deployed, class.strategy, &mut pools)?;
        for pool in pools.iter_mut().skip(first) {
            pool.label = format!("{}-{}", class.name, pool.label);
        }
        classes.push(ClassConfig {
            name: class.name,
            ..resolved
        });
    }
    Ok((classes, pools))
}

fn resolve_strategy(
    at: &At<'_>,
    deployed: &Deployed<'_>,
    strategy: Strategy,
    pools: &mut Vec<RedundantPool>,
) -> Result<ClassConfig, ConfigError> {
    // Pool 0 is the deployed model's.
    let next = u8::try_from(pools.len() + 1).map(PoolId).map_err(|_| {
        at.field(
            "kind",
            "more than 255 pools",
            "use fewer parity rows or classes",
        )
    })?;
    let (mut code, mut learned) = (None, None);
    let mut coded = |coded: &Coded| {
        let resolved = coded::resolve(at, deployed, coded, next)?;
        code = Some(resolved.code);
        learned = resolved.learned;
        pools.extend(resolved.parity);
        Ok(resolved.config)
    };
    let strategy = match strategy {
        Strategy::None => StrategyConfig::None,
        Strategy::EqualResources { .. } => StrategyConfig::EqualResources,
        Strategy::Replicate(replicate) => {
            StrategyConfig::Replicate(resolve_replicate(at, deployed, &replicate)?)
        }
        Strategy::Hedge(hedge) => StrategyConfig::Hedge(resolve_hedge(at, deployed, &hedge)?),
        Strategy::ApproximateBackup(backup) => {
            let (config, pool) = resolve_backup(at, deployed, &backup, next)?;
            pools.push(pool);
            StrategyConfig::ApproximateBackup(config)
        }
        Strategy::Coded(settings) => {
            if settings.hedge.is_some() {
                return Err(at.field(
                    "hedge",
                    "kind = \"coded\" does not hedge",
                    "use kind = \"coded_hedged\"",
                ));
            }
            StrategyConfig::Coded(coded(&settings)?)
        }
        Strategy::CodedHedged(settings) => {
            let hedge = settings.hedge.unwrap_or_default();
            another_instance(at, deployed)?;
            at.share("hedge.share", hedge.share)?;
            let coded = coded(&settings)?;
            StrategyConfig::CodedHedged(CodedHedgedConfig {
                coded,
                share: hedge.share,
                burst: hedge.burst,
            })
        }
    };
    Ok(ClassConfig {
        name: String::new(),
        strategy,
        code,
        learned,
    })
}

/// A copy needs an instance other than its query's.
fn another_instance(at: &At<'_>, deployed: &Deployed<'_>) -> Result<(), ConfigError> {
    if deployed.listed() < 2 {
        let problem = "a second copy needs a second instance, and the model has 1";
        return Err(at.field("kind", problem, "add an instance, or use kind = \"none\""));
    }
    Ok(())
}

fn resolve_replicate(
    at: &At<'_>,
    deployed: &Deployed<'_>,
    replicate: &Replicate,
) -> Result<ReplicateConfig, ConfigError> {
    let (copies, instances) = (replicate.copies, deployed.listed());
    if copies < 2 {
        return Err(at.field(
            "copies",
            format!("{copies}"),
            "give at least 2: the query's own request counts",
        ));
    }
    if copies as usize > instances {
        let problem = format!("{copies} copies, and the model has {instances} instances");
        return Err(at.field("copies", problem, "give at most one copy for each instance"));
    }
    let extra = f64::from(copies - 1);
    let share = replicate.share.unwrap_or(extra);
    at.share("share", share)?;
    let burst = replicate.burst.unwrap_or(16.0);
    if burst < extra {
        return Err(at.field(
            "burst",
            format!("{burst}"),
            format!("give at least copies - 1 = {extra}"),
        ));
    }
    let shed_above = replicate.shed_above.unwrap_or(deployed.slots());
    Ok(ReplicateConfig {
        copies,
        share,
        burst,
        shed_above,
    })
}

fn resolve_hedge(
    at: &At<'_>,
    deployed: &Deployed<'_>,
    hedge: &Hedge,
) -> Result<HedgeConfig, ConfigError> {
    another_instance(at, deployed)?;
    let (max_copies, instances) = (hedge.max_copies, deployed.listed());
    at.at_least_one("max_copies", max_copies as usize)?;
    if max_copies as usize >= instances {
        let problem = format!(
            "{max_copies} beside the query's own request, and the model has {instances} instances"
        );
        return Err(at.field(
            "max_copies",
            problem,
            format!("give at most {}", instances - 1),
        ));
    }
    at.share("share", hedge.share)?;
    Ok(HedgeConfig {
        delay: resolve_delay(at, "delay", &hedge.delay, 0.95)?,
        max_copies,
        share: hedge.share,
        burst: hedge.burst,
        shed_above: hedge.shed_above.unwrap_or(deployed.slots()),
    })
}

fn resolve_backup(
    at: &At<'_>,
    deployed: &Deployed<'_>,
    backup: &Backup,
    pool: PoolId,
) -> Result<(ApproximateBackupConfig, RedundantPool), ConfigError> {
    let entry = deployed
        .repository
        .load(&backup.model)
        .map_err(|source| at.repository("model", source))?;
    let version = resolve_version(at, &entry, backup.version)?;
    if entry.code.is_some() {
        return Err(at.field(
            "model",
            format!("{:?} is a parity model", entry.name),
            "name a model for queries",
        ));
    }
    if entry.name == deployed.entry.name && version == deployed.version {
        let problem = format!("{:?} is the deployed model itself", entry.name);
        return Err(at.field(
            "model",
            problem,
            "name a cheaper model, or use kind = \"hedge\"",
        ));
    }
    let same_names =
        |a: &[TensorSpec], b: &[TensorSpec]| a.iter().zip(b).all(|(a, b)| a.name == b.name);
    let named_alike = same_names(&entry.inputs, &deployed.entry.inputs)
        && same_names(&entry.outputs, &deployed.entry.outputs);
    if !has_same_signature(&entry, deployed.entry) || !named_alike {
        let toml = entry.toml_file();
        let problem = format!(
            "inputs or outputs of {} have other names or shapes than the deployed model's",
            toml.display()
        );
        return Err(at.field(
            "model",
            problem,
            "name a model that takes and gives the same tensors",
        ));
    }
    let share = backup.share.unwrap_or(if backup.eager { 1.0 } else { 0.1 });
    at.share("share", share)?;
    let instances = resolve_pool(
        at,
        &backup.instances,
        backup.slots_per_instance,
        backup.max_queue,
    )?
    .with_tls(at, backup.tls.as_ref())?;
    let config = ApproximateBackupConfig {
        pool,
        delay: resolve_delay(at, "delay", &backup.delay, 0.97)?,
        eager: backup.eager,
        late_truth_wait: backup.late_truth_wait,
        share,
        burst: backup.burst,
        shed_above: backup.shed_above.unwrap_or(deployed.slots()),
    };
    Ok((
        config,
        RedundantPool {
            label: "backup".to_owned(),
            entry,
            version,
            pool: instances,
        },
    ))
}

/// Returns true if its inputs and outputs have the shapes and types of the deployed model's.
fn has_same_signature(entry: &ModelEntry, deployed: &ModelEntry) -> bool {
    let alike = |a: &[TensorSpec], b: &[TensorSpec]| {
        a.len() == b.len()
            && a.iter()
                .zip(b)
                .all(|(a, b)| a.shape == b.shape && a.datatype == b.datatype)
    };
    alike(&entry.inputs, &deployed.inputs) && alike(&entry.outputs, &deployed.outputs)
}

/// When a query counts as late; `field` says where that stands in the file.
fn resolve_delay(
    at: &At<'_>,
    field: &str,
    delay: &Delay,
    percentile_if_none: f64,
) -> Result<HoldBackPolicy, ConfigError> {
    let part = |name: &str| format!("{field}.{name}");
    let millis = |name: &str, value: f64| {
        Duration::try_from_secs_f64(value / 1e3).map_err(|_| {
            at.field(
                &part(name),
                format!("{value}"),
                "give milliseconds, at least 0",
            )
        })
    };
    match delay {
        Delay {
            fixed_ms: Some(fixed),
            percentile: None,
            min_ms: None,
            max_ms: None,
            max_over_median: None,
        } => Ok(HoldBackPolicy::Fixed(millis("fixed_ms", *fixed)?)),
        Delay {
            fixed_ms: Some(_), ..
        } => Err(at.field(
            field,
            "fixed_ms beside a learned percentile",
            "give one or the other",
        )),
        Delay {
            percentile,
            min_ms,
            max_ms,
            max_over_median,
            ..
        } => {
            let percentile = percentile.unwrap_or(percentile_if_none);
            if !(0.5..1.0).contains(&percentile) {
                return Err(at.field(
                    &part("percentile"),
                    format!("{percentile}"),
                    "give a quantile from 0.5 to below 1, as 0.97",
                ));
            }
            let min = min_ms.map_or(Ok(HoldBackPolicy::MIN), |min| millis("min_ms", min))?;
            let max = max_ms.map_or(Ok(HoldBackPolicy::MAX), |max| millis("max_ms", max))?;
            if max < min {
                return Err(at.field(&part("max_ms"), "less than min_ms", "raise it"));
            }
            let max_over_median = max_over_median.unwrap_or(HoldBackPolicy::MAX_OVER_MEDIAN);
            if max_over_median.is_nan() || max_over_median < 1.0 {
                return Err(at.field(
                    &part("max_over_median"),
                    format!("{max_over_median}"),
                    "give how many medians are late at most, from 1, as 1.5; inf for no bound",
                ));
            }
            Ok(HoldBackPolicy::Learned {
                percentile,
                min,
                max,
                max_over_median,
            })
        }
    }
}
