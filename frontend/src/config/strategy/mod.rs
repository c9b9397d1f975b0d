//! Redundancy as configured: a strategy for the model, and one for each class of requests; the
//! pools that they need.

mod coded;
mod learned;
pub(super) mod settings;
mod tensors;
mod trained;

use std::sync::Arc;

use parapet_config::repository::{ModelEntry, ModelRepository, TensorSpec};
use parapet_decoder::{Calibration, Decoder};
use parapet_encoder::{CodeSpec, Encoder};
use parapet_frontend_core::{DeployedInstances, PoolId, StrategyConfig};

pub use self::tensors::CodedTensors;

use self::settings::{Models, Strategy, max_redundant_queue};
use super::ConfigError;
use super::at::At;
use super::pool::{PoolSettings, default_slots, resolve_pool, resolve_version};
use super::settings::Class;

/// The name of the class of requests that name none.
pub const DEFAULT_CLASS: &str = "default";
/// Most classes beside the default one.
const MAX_CLASSES: usize = 16;

/// A class of requests, and its redundancy.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassConfig {
    pub name: String,
    pub strategy: StrategyConfig,
    /// The code of a coded strategy.
    pub code: Option<BuiltCode>,
}

/// A code as it is served, with its encoders and decoders.
#[derive(Debug, Clone)]
pub struct BuiltCode {
    /// Short name, as `sum-k2-r1`.
    pub label: String,
    /// The inputs and outputs of the model that it covers.
    pub tensors: CodedTensors,
    /// One for each covered input.
    pub encoders: Vec<Arc<dyn Encoder>>,
    /// One for each covered output.
    pub decoders: Vec<Arc<dyn Decoder>>,
    /// For each covered input its names at the parity models, by row.
    pub parity_names: Vec<Vec<String>>,
    /// For each parity row; empty unless all rows have one.
    pub calibrations: Vec<Calibration>,
    /// Pieces of a learned code's coding that may wait for each other.
    pub max_queue: Option<usize>,
    /// Specification that the coders were built from; `None` for networks.
    pub(super) spec: Option<CodeSpec>,
}

/// Networks are never equal: they may have changed in their files.
impl PartialEq for BuiltCode {
    fn eq(&self, other: &Self) -> bool {
        self.spec.is_some() && self.spec == other.spec && self.tensors == other.tensors
    }
}

/// The instances of one parity or backup model.
#[derive(Debug, Clone, PartialEq)]
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
    /// Instances that are listed; discovery may find any number.
    fn instances(&self) -> DeployedInstances {
        let listed = self.pool.discovery.is_none();
        DeployedInstances {
            count: listed.then_some(self.pool.instances.len()),
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
    let Strategy {
        mut settings,
        models,
    } = strategy;
    settings
        .check(deployed.instances())
        .map_err(|setting| at.refused(setting))?;
    let mut code = None;
    match &mut settings {
        StrategyConfig::None | StrategyConfig::Replicate(_) | StrategyConfig::Hedge(_) => {}
        StrategyConfig::ApproximateBackup(config) => {
            config.pool = next;
            pools.push(resolve_backup(at, deployed, models)?);
        }
        StrategyConfig::Coded(config) | StrategyConfig::CodedHedged(config) => {
            let resolved = coded::resolve(at, deployed, config, &models)?;
            config.first_parity = match resolved.parity.is_empty() {
                true => PoolId::DEPLOYED,
                false => next,
            };
            code = Some(resolved.code);
            pools.extend(resolved.parity);
        }
    }
    Ok(ClassConfig {
        name: String::new(),
        strategy: settings,
        code,
    })
}

fn resolve_backup(
    at: &At<'_>,
    deployed: &Deployed<'_>,
    models: Models,
) -> Result<RedundantPool, ConfigError> {
    let missing = |name: &str| at.field(name, "missing", "give the backup model and its instances");
    let model = models.model.ok_or_else(|| missing("model"))?;
    let instances = models.instances.ok_or_else(|| missing("instances"))?;
    let entry = deployed
        .repository
        .load(&model)
        .map_err(|source| at.repository("model", source))?;
    let version = resolve_version(at, &entry, models.version)?;
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
    let slots = models.slots_per_instance.unwrap_or(default_slots());
    let queue = models.max_queue.unwrap_or(max_redundant_queue());
    let pool = resolve_pool(at, &instances, slots, queue)?.with_tls(at, models.tls.as_ref())?;
    Ok(RedundantPool {
        label: "backup".to_owned(),
        entry,
        version,
        pool,
    })
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
