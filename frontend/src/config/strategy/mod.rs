//! Redundancy as configured: strategies for the model and for classes of requests; their pools.

mod coded;

use std::sync::Arc;

use parapet_config::repository::{ModelEntry, ModelRepository};
use parapet_frontend_core::{DeployedInstances, PoolId, StrategyConfig};

use super::pool::{PoolSettings, find_entry, resolve_version};
use super::settings::{Class, Models, Strategy};
use super::{At, ConfigError};
use crate::coding::Coder;

const MAX_CLASSES: usize = 16;
/// Requests to one instance of a redundant pool at a time, and those that wait, by default.
const REDUNDANT_SLOTS: u32 = 2;
const REDUNDANT_QUEUE: usize = 16;

#[derive(Debug, Clone, PartialEq)]
pub struct ClassConfig {
    pub name: String,
    pub strategy: StrategyConfig,
    pub code: Option<Arc<Coder>>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct RedundantPool {
    /// Its name in metrics: `parity0`, `backup`; those of a class begin with its name.
    pub label: String,
    pub entry: ModelEntry,
    /// Its instances choose if `None`.
    pub version: Option<u64>,
    pub pool: PoolSettings,
}

pub(super) struct Deployed<'a> {
    pub(super) repository: Option<&'a ModelRepository>,
    pub(super) entry: &'a ModelEntry,
    pub(super) version: Option<u64>,
    pub(super) pool: &'a PoolSettings,
}

impl Deployed<'_> {
    fn load(
        &self,
        at: &At<'_>,
        model: &str,
        version: Option<u64>,
    ) -> Result<(ModelEntry, u64), ConfigError> {
        let missing = || {
            let problem = format!("{model:?} needs an entry in a repository, and there is none");
            at.field("model", problem, "give [repository] path")
        };
        let entry = self.repository.ok_or_else(missing)?.load(model);
        let entry = entry.map_err(|error| at.because("model", error))?;
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
    let problem = format!("{} classes", others.len());
    let fix = format!("give at most {MAX_CLASSES}");
    at.check(others.len() <= MAX_CLASSES, "classes", problem, fix)?;
    let (mut classes, mut pools) = (Vec::new(), Vec::new());
    let default = at.inside("strategy");
    classes.push(resolve_strategy(&default, deployed, "default", strategy, &mut pools)?);
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

/// Makes the checks that need no entry of a model.
pub(super) fn check_strategies(
    at: &At<'_>,
    deployed: DeployedInstances,
    strategy: &Strategy,
    others: &[Class],
) -> Result<(), ConfigError> {
    check_strategy(&at.inside("strategy"), deployed, strategy)?;
    for (index, class) in others.iter().enumerate() {
        let at = at.inside(&format!("classes[{index}].strategy"));
        check_strategy(&at, deployed, &class.strategy)?;
    }
    Ok(())
}

fn check_strategy(
    at: &At<'_>,
    deployed: DeployedInstances,
    Strategy { settings, models }: &Strategy,
) -> Result<StrategyConfig, ConfigError> {
    let mut strategy = settings.clone();
    if let StrategyConfig::Coded(config) | StrategyConfig::CodedHedged(config) = &mut strategy {
        config.decoding = models.decoding().unwrap_or_default();
    }
    strategy.check(deployed).map_err(|mistake| at.setting(mistake))?;
    Ok(strategy)
}

fn resolve_strategy(
    at: &At<'_>,
    deployed: &Deployed<'_>,
    class: &str,
    strategy: &Strategy,
    pools: &mut Vec<RedundantPool>,
) -> Result<ClassConfig, ConfigError> {
    // Pool 0 is the deployed model's.
    let next = u8::try_from(pools.len() + 1)
        .map(PoolId)
        .map_err(|_| at.field("kind", "more than 255 pools", "use fewer parity rows or classes"))?;
    let models = &strategy.models;
    let mut strategy = check_strategy(at, deployed.pool.deployed(), strategy)?;
    let mut code = None;
    match &mut strategy {
        StrategyConfig::None | StrategyConfig::Replicate(_) | StrategyConfig::Hedge(_) => {}
        StrategyConfig::ApproximateBackup(config) => {
            config.pool = next;
            pools.push(resolve_backup(at, deployed, models)?);
        }
        StrategyConfig::Coded(config) | StrategyConfig::CodedHedged(config) => {
            let (built, parity) = coded::resolve(at, deployed, config, models)?;
            config.first_parity = if parity.is_empty() { PoolId::DEPLOYED } else { next };
            code = Some(Arc::new(built));
            pools.extend(parity);
        }
    }
    Ok(ClassConfig { name: class.to_owned(), strategy, code })
}

fn resolve_backup(
    at: &At<'_>,
    deployed: &Deployed<'_>,
    models: &Models,
) -> Result<RedundantPool, ConfigError> {
    let missing = |name: &str| at.field(name, "missing", "give the backup model and its instances");
    let model = models.model.as_ref().ok_or_else(|| missing("model"))?;
    let instances = models.instances.as_ref();
    let instances = instances.ok_or_else(|| missing("instances"))?;
    let (entry, version) = match find_entry(at, "model", deployed.repository, model)? {
        Some(entry) => {
            let version = resolve_version(at, &entry, models.version)?;
            (entry, Some(version))
        }
        // Health checks compare its instances with the deployed model.
        None => (ModelEntry::unknown(model, models.version).alike(deployed.entry), models.version),
    };
    let problem = format!("{model:?} is a parity model");
    at.check(entry.code.is_none(), "model", problem, "name a model for queries")?;
    let is_other = entry.name != deployed.entry.name || version != deployed.version;
    let problem = format!("{model:?} is the deployed model itself");
    at.check(is_other, "model", problem, "name a cheaper model, or use kind = \"hedge\"")?;
    let alike = entry.inputs == deployed.entry.inputs && entry.outputs == deployed.entry.outputs;
    let toml = entry.toml_file();
    let toml = toml.display();
    let problem =
        format!("inputs or outputs of {toml} have other names or shapes than the deployed model's");
    at.check(alike, "model", problem, "name a model that takes and gives the same tensors")?;
    let size = redundant_size(models.slots_per_instance, models.max_queue);
    let pool = PoolSettings::resolve(at, instances, size, models.tls.as_ref())?;
    Ok(RedundantPool { label: "backup".to_owned(), entry, version, pool })
}

fn redundant_size(slots: Option<u32>, queue: Option<usize>) -> (u32, usize) {
    (slots.unwrap_or(REDUNDANT_SLOTS), queue.unwrap_or(REDUNDANT_QUEUE))
}
