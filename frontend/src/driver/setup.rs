//! Engine, strategy and labels of a model, from its configuration.

use parapet_frontend_core::{
    ByClass, CoreConfig, OutlierConfig, PoolConfig, PoolId, QueueLimitConfig, StrategyConfig,
};

use crate::config::{ClassConfig, ModelConfig, PoolSettings};
use crate::metrics::ClassLabels;
use crate::payload::{Input, Output};

/// Times the first ejection that the longest lasts.
const LONGEST_EJECTION: u32 = 12;

pub(super) fn core_config(config: &ModelConfig) -> CoreConfig {
    let pool = |pool: &PoolSettings| PoolConfig {
        instances: pool.instances.len(),
        slots: pool.slots,
        queue: pool.queue,
    };
    let settings = &config.settings;
    let health = &settings.health;
    CoreConfig {
        pools: config.pools().map(pool).collect(),
        max_queries: settings.max_in_flight,
        max_attempts: settings.max_attempts,
        retry_share: settings.retry_share,
        retry_burst: 10.0,
        suspect_after: health.suspect_after,
        queue_limit: (settings.queue_wait_share > 0.0).then(|| QueueLimitConfig {
            wait_share: settings.queue_wait_share,
            ..QueueLimitConfig::default()
        }),
        max_slots: config.max_slots(),
        outliers: Some(OutlierConfig {
            consecutive: health.eject_after_failures,
            ejected_for: health.eject,
            ejected_for_at_most: health.eject.saturating_mul(LONGEST_EJECTION),
            max_share: health.max_ejected_share,
            ..OutlierConfig::default()
        }),
    }
}

pub(super) fn strategy(config: &ModelConfig) -> ByClass<Input, Output> {
    let mut strategies = config.classes.iter().map(|class| class.strategy.build());
    let default = strategies.next().unwrap_or_else(|| StrategyConfig::None.build());
    ByClass::new(default, strategies.collect())
}

pub(super) fn stand_ins(config: &ModelConfig) -> Vec<PoolId> {
    config.classes.first().map_or_else(Vec::new, |class| class.strategy.stand_ins())
}

pub(crate) fn class_labels(config: &ModelConfig) -> Vec<ClassLabels> {
    let labels = |class: &ClassConfig| {
        let code = match (&class.code, &class.strategy) {
            (Some(code), _) => &code.label,
            (None, StrategyConfig::ApproximateBackup(_)) => "backup",
            (None, _) => "none",
        };
        ClassLabels {
            class: class.name.clone(),
            strategy: class.strategy.name(),
            code: code.to_owned(),
        }
    };
    config.classes.iter().map(labels).collect()
}
