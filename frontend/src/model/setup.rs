//! Engine, strategies and labels of a model, from its configuration.

use parapet_frontend_core::{
    ByClass, ClassId, CoreConfig, OutlierConfig, PoolConfig, QueueLimitConfig, StrategyConfig,
};

use super::coding::Coder;
use crate::config::{ClassConfig, ModelConfig, PoolSettings};
use crate::metrics::ClassLabels;
use crate::payload::{Input, Output};

/// Label of the deployed model's pool.
pub(super) const DEPLOYED: &str = "deployed";

/// Times the first ejection that the longest lasts.
const LONGEST_EJECTION: u32 = 12;

/// The deployed model's pool, then the others.
pub(crate) fn pool_settings(config: &ModelConfig) -> impl Iterator<Item = &PoolSettings> {
    std::iter::once(&config.pool).chain(config.redundant.iter().map(|other| &other.pool))
}

pub(super) fn core_config(config: &ModelConfig) -> CoreConfig {
    let pool = |pool: &PoolSettings| PoolConfig {
        instances: pool.instances.len(),
        slots: pool.slots,
        queue: pool.queue,
    };
    CoreConfig {
        pools: pool_settings(config).map(pool).collect(),
        max_queries: config.max_in_flight,
        max_attempts: config.max_attempts,
        retry_share: config.retry_share,
        retry_burst: 10.0,
        suspect_after: config.health.suspect_after,
        queue_limit: (config.queue_wait_share > 0.0).then(|| QueueLimitConfig {
            wait_share: config.queue_wait_share,
            ..QueueLimitConfig::default()
        }),
        outliers: Some(OutlierConfig {
            consecutive: config.health.eject_after_failures,
            ejected_for: config.health.eject,
            ejected_for_at_most: config.health.eject.saturating_mul(LONGEST_EJECTION),
            max_share: config.health.max_ejected_share,
            ..OutlierConfig::default()
        }),
    }
}

/// One strategy for all classes, and the coder of each.
pub(super) fn strategy(config: &ModelConfig) -> (ByClass<Input, Output>, Vec<Option<Coder>>) {
    let coder = |class: &ClassConfig| class.code.as_ref().map(|code| Coder::new(config, code));
    let coders = config.classes.iter().map(coder).collect();
    let mut strategies = config.classes.iter().map(|class| class.strategy.build());
    let default = strategies.next();
    let default = default.unwrap_or_else(|| StrategyConfig::None.build());
    (ByClass::new(default, strategies.collect()), coders)
}

pub(super) fn class_labels(
    config: &ModelConfig,
    code: impl Fn(ClassId) -> Option<String>,
) -> Vec<ClassLabels> {
    let classes = config.classes.iter().zip((0u8..).map(ClassId));
    classes
        .map(|(class, id)| {
            let strategy = class.strategy.name();
            let code = match (code(id), &class.strategy) {
                (Some(code), _) => code,
                (None, StrategyConfig::ApproximateBackup(_)) => "backup".to_owned(),
                (None, _) => "none".to_owned(),
            };
            ClassLabels {
                class: class.name.clone(),
                strategy,
                code,
            }
        })
        .collect()
}

pub(super) fn pool_labels(config: &ModelConfig) -> Vec<String> {
    let redundant = config.redundant.iter().map(|other| other.label.clone());
    std::iter::once(DEPLOYED.to_owned())
        .chain(redundant)
        .collect()
}
