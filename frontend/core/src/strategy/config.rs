//! Every strategy with its settings, as one value that the frontend's configuration, experiments
//! and simulations deserialise.

use std::fmt::Debug;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};

use super::NoRedundancy;
use super::approximate_backup::{ApproximateBackup, ApproximateBackupConfig};
use super::coded::{Coded, CodedConfig};
use super::hedge::{Hedge, HedgeConfig};
use super::replicate::{Replicate, ReplicateConfig};
use crate::{PoolId, Strategy};

/// A redundancy strategy and its settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoStaticStr, VariantNames)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum StrategyConfig {
    /// Strategy without redundancy.
    #[default]
    None,
    /// Several copies at once.
    Replicate(ReplicateConfig),
    /// A second copy when late.
    Hedge(HedgeConfig),
    /// A cheaper model when late.
    ApproximateBackup(ApproximateBackupConfig),
    /// Strategy that codes groups of queries.
    Coded(CodedConfig),
    /// Strategy that codes groups of queries, and hedges what a group cannot recover.
    CodedHedged(CodedConfig),
}

impl StrategyConfig {
    /// The names of all strategies.
    pub const NAMES: &[&str] = Self::VARIANTS;

    /// The strategy's name in configurations, metrics and reports.
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// Returns true if it adds redundant work.
    pub const fn is_redundant(&self) -> bool {
        !matches!(self, Self::None)
    }

    /// Returns true if it waits for a query to be late.
    pub const fn has_hold_back(&self) -> bool {
        self.is_redundant() && !matches!(self, Self::Replicate(_))
    }

    /// Limit of the time that a request goes on after its query's answer.
    pub const fn keeps_requests_for(&self) -> Duration {
        match self {
            Self::None | Self::Replicate(_) | Self::Hedge(_) => Duration::ZERO,
            Self::ApproximateBackup(config) => config.late_truth_wait,
            Self::Coded(config) | Self::CodedHedged(config) => config.late_truth_wait,
        }
    }

    /// Pools that answer queries, approximately, while no instance of the deployed model is up. The
    /// budget of a backup model lets it answer a few alone.
    pub fn stand_ins(&self) -> Vec<PoolId> {
        match self {
            Self::Coded(config) | Self::CodedHedged(config) if !config.decoding.is_linear() => {
                (config.first_parity.0..).take(config.r).map(PoolId).collect()
            }
            _ => Vec::new(),
        }
    }

    /// A strategy with these settings, for payloads of any kind.
    pub fn build<I, O>(&self) -> Box<dyn Strategy<I, O>>
    where
        I: Send + Sync + Debug + 'static,
        O: Send + Sync + Debug + 'static,
    {
        match self.clone() {
            Self::None => Box::new(NoRedundancy),
            Self::Replicate(config) => Box::new(Replicate::new(&config)),
            Self::Hedge(config) => Box::new(Hedge::new(&config)),
            Self::ApproximateBackup(config) => Box::new(ApproximateBackup::new(config)),
            Self::Coded(config) => Box::new(Coded::new(CodedConfig { hedge: None, ..config })),
            Self::CodedHedged(config) => Box::new(Coded::new(CodedConfig {
                hedge: Some(config.hedge.unwrap_or_default()),
                ..config
            })),
        }
    }
}
