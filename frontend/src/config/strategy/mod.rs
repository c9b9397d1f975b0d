//! Redundancy as configured: a strategy for the model, and one for each class of requests; the
//! pools that they need.

mod coded;

use std::sync::Arc;

use parapet_config::repository::{ModelEntry, ModelRepository, TensorSpec};
use parapet_frontend_core::{DeployedInstances, PoolId, StrategyConfig};

use super::pool::{PoolSettings, resolve_version};
use super::settings::{Class, Models, Strategy};
use super::{At, ConfigError};
use crate::coding::Coder;

/// Most classes beside the default one.
const MAX_CLASSES: usize = 16;
/// Requests to one instance of a redundant pool at a time, and those that wait, by default.
const REDUNDANT_SLOTS: u32 = 2;
const REDUNDANT_QUEUE: usize = 16;

/// A class of requests, and its redundancy.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassConfig {
    pub name: String,
    pub strategy: StrategyConfig,
    /// The code of a coded strategy.
    pub code: Option<Arc<Coder>>,
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

    /// The entry that the field `model` names, and its version.
    fn load(
        &self,
        at: &At<'_>,
        model: &str,
        version: Option<u64>,
    ) -> Result<(ModelEntry, u64), ConfigError> {
        let entry = self
            .repository
            .load(model)
            .map_err(|error| at.because("model", error))?;
        let version = resolve_version(at, &entry, version)?;
        Ok((entry, version))
    }
}

/// All classes, the default one first, and all pools beside the deployed model's.
pub(super) fn resolve_classes(
    at: &At<'_>,
    deployed: &Deployed<'_>,
    strategy: &Strategy,
    others: &[Class],
) -> Result<(Vec<ClassConfig>, Vec<RedundantPool>), ConfigError> {
    let (problem, fix) = (
        format!("{} classes", others.len()),
        format!("give at most {MAX_CLASSES}"),
    );
    at.check(others.len() <= MAX_CLASSES, "classes", problem, fix)?;
    let mut pools = Vec::new();
    let at_default = at.inside("strategy");
    let mut classes = vec![resolve_strategy(
        &at_default,
        deployed,
        "default",
        strategy,
        &mut pools,
    )?];
    for (index, Class { name, strategy }) in others.iter().enumerate() {
        let at = at.inside(&format!("classes[{index}]"));
        let is_own = !name.is_empty() && classes.iter().all(|other| other.name != *name);
        let problem = format!("{name:?} is empty, there twice, or the default class");
        at.check(is_own, "name", problem, "give each class a name of its own")?;
        let first = pools.len();
        let at = at.inside("strategy");
        classes.push(resolve_strategy(&at, deployed, name, strategy, &mut pools)?);
        for pool in pools.iter_mut().skip(first) {
            pool.label = format!("{name}-{}", pool.label);
        }
    }
    Ok((classes, pools))
}

fn resolve_strategy(
    at: &At<'_>,
    deployed: &Deployed<'_>,
    class: &str,
    Strategy { settings, models }: &Strategy,
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
    let mut strategy = settings.clone();
    strategy
        .check(deployed.instances())
        .map_err(|setting| at.field(&setting.field, setting.problem, setting.fix))?;
    let mut code = None;
    match &mut strategy {
        StrategyConfig::None | StrategyConfig::Replicate(_) | StrategyConfig::Hedge(_) => {}
        StrategyConfig::ApproximateBackup(config) => {
            config.pool = next;
            pools.push(resolve_backup(at, deployed, models)?);
        }
        StrategyConfig::Coded(config) | StrategyConfig::CodedHedged(config) => {
            let (built, parity) = coded::resolve(at, deployed, config, models)?;
            config.first_parity = if parity.is_empty() {
                PoolId::DEPLOYED
            } else {
                next
            };
            code = Some(Arc::new(built));
            pools.extend(parity);
        }
    }
    Ok(ClassConfig {
        name: class.to_owned(),
        strategy,
        code,
    })
}

fn resolve_backup(
    at: &At<'_>,
    deployed: &Deployed<'_>,
    models: &Models,
) -> Result<RedundantPool, ConfigError> {
    let missing = |name: &str| at.field(name, "missing", "give the backup model and its instances");
    let model = models.model.as_ref().ok_or_else(|| missing("model"))?;
    let instances = models
        .instances
        .as_ref()
        .ok_or_else(|| missing("instances"))?;
    let (entry, version) = deployed.load(at, model, models.version)?;
    let problem = format!("{model:?} is a parity model");
    at.check(
        entry.code.is_none(),
        "model",
        problem,
        "name a model for queries",
    )?;
    let is_other = entry.name != deployed.entry.name || version != deployed.version;
    let problem = format!("{model:?} is the deployed model itself");
    let fix = "name a cheaper model, or use kind = \"hedge\"";
    at.check(is_other, "model", problem, fix)?;
    let alike = have_same_signature(&entry.inputs, &deployed.entry.inputs)
        && have_same_signature(&entry.outputs, &deployed.entry.outputs);
    let toml = entry.toml_file();
    let toml = toml.display();
    let problem =
        format!("inputs or outputs of {toml} have other names or shapes than the deployed model's");
    at.check(
        alike,
        "model",
        problem,
        "name a model that takes and gives the same tensors",
    )?;
    let slots = models.slots_per_instance.unwrap_or(REDUNDANT_SLOTS);
    let queue = models.max_queue.unwrap_or(REDUNDANT_QUEUE);
    let pool = PoolSettings::resolve(at, instances, (slots, queue), models.tls.as_ref())?;
    Ok(RedundantPool {
        label: "backup".to_owned(),
        entry,
        version,
        pool,
    })
}

fn have_same_signature(a: &[TensorSpec], b: &[TensorSpec]) -> bool {
    let alike = |(a, b): (&TensorSpec, &TensorSpec)| {
        a.name == b.name && a.shape == b.shape && a.datatype == b.datatype
    };
    a.len() == b.len() && a.iter().zip(b).all(alike)
}
