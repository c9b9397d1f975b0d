//! The settings that the tests run strategies with.

use std::time::Duration;

use parapet_encoder::Decoding;
use parapet_frontend_core::{
    ApproximateBackupConfig, CodedConfig, CoreConfig, HedgeBudget, HedgeConfig, HoldBackPolicy,
    OutlierConfig, PoolConfig, PoolId, QueueLimitConfig, ReplicateConfig, SendParity,
    StrategyConfig,
};

pub const HOLD_BACK: Duration = Duration::from_millis(20);
pub const FLUSH_AFTER: Duration = Duration::from_millis(10);
pub const LATE_TRUTH_WAIT: Duration = Duration::from_millis(500);

pub fn coded_config(k: usize, r: usize) -> CodedConfig {
    CodedConfig {
        k,
        r,
        decoding: Decoding::Linear,
        first_parity: PoolId::FIRST_REDUNDANT,
        hold_back: HoldBackPolicy::Fixed(HOLD_BACK),
        send_parity: SendParity::AtOnce,
        flush_after: FLUSH_AFTER,
        late_truth_wait: LATE_TRUTH_WAIT,
        parity_timeout: Duration::from_millis(300),
        redundant_share: 1.0,
        redundant_burst: 4.0,
        shed_above: Some(8),
        audit_every: 3,
        max_keys: 4,
        max_kept_bytes: 10,
        hedge: None,
    }
}

/// A parity output has a slot for each member.
pub fn slots_config(k: usize, r: usize) -> CodedConfig {
    CodedConfig { decoding: Decoding::Slots, ..coded_config(k, r) }
}

/// Late queries alone form groups.
pub fn when_late_config(k: usize, r: usize) -> CodedConfig {
    CodedConfig { send_parity: SendParity::WhenLate, ..slots_config(k, r) }
}

/// Parity queries go to the deployed model itself.
pub fn unmodified_config(k: usize, r: usize) -> CodedConfig {
    CodedConfig { first_parity: PoolId::DEPLOYED, ..coded_config(k, r) }
}

pub fn replicate_config(copies: u32) -> ReplicateConfig {
    ReplicateConfig { copies, share: None, burst: 4.0, shed_above: Some(4) }
}

pub fn hedge_config() -> HedgeConfig {
    HedgeConfig {
        delay: HoldBackPolicy::Fixed(HOLD_BACK),
        max_copies: 1,
        share: 0.3,
        burst: 3.0,
        shed_above: Some(4),
    }
}

pub fn backup_config(eager: bool) -> ApproximateBackupConfig {
    ApproximateBackupConfig {
        pool: PoolId::FIRST_REDUNDANT,
        delay: HoldBackPolicy::Fixed(HOLD_BACK),
        eager,
        late_truth_wait: LATE_TRUTH_WAIT,
        share: Some(1.0),
        burst: 4.0,
        shed_above: Some(4),
    }
}

pub fn coded_hedged_config(k: usize, r: usize) -> CodedConfig {
    CodedConfig { hedge: Some(HedgeBudget { share: 0.2, burst: 3.0 }), ..coded_config(k, r) }
}

/// Returns the budget of a strategy: its share and burst, and those of its hedge.
pub fn budget(strategy: &StrategyConfig) -> (f64, f64) {
    match strategy {
        StrategyConfig::None => (0.0, 0.0),
        StrategyConfig::Replicate(config) => (config.share(), config.burst),
        StrategyConfig::Hedge(config) => (config.share, config.burst),
        StrategyConfig::ApproximateBackup(config) => (config.share(), config.burst),
        StrategyConfig::Coded(config) => (config.redundant_share, config.redundant_burst),
        StrategyConfig::CodedHedged(config) => {
            let hedge = config.hedge.unwrap_or_default();
            (hedge.share + config.redundant_share, hedge.burst + config.redundant_burst)
        }
    }
}

pub fn coded_part(strategy: &StrategyConfig) -> Option<CodedConfig> {
    match strategy {
        StrategyConfig::Coded(config) | StrategyConfig::CodedHedged(config) => Some(config.clone()),
        _ => None,
    }
}

pub fn core_config(instances: usize, slots: u32, r: usize) -> CoreConfig {
    let deployed = PoolConfig { instances, slots, queue: 16 };
    let parity = PoolConfig { instances: 2, slots, queue: 4 };
    CoreConfig {
        max_slots: 0,
        pools: std::iter::once(deployed).chain((0..r).map(|_| parity)).collect(),
        max_queries: 64,
        max_attempts: 3,
        retry_share: 0.2,
        retry_burst: 5.0,
        suspect_after: Duration::from_millis(50),
        queue_limit: Some(QueueLimitConfig::default()),
        outliers: Some(OutlierConfig::default()),
    }
}
