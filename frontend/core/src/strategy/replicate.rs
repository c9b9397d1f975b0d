//! Several copies of each query at once, to distinct instances: the first answer wins, the others
//! are withdrawn (Vulimiri et al., *Low latency via redundancy*, CoNEXT 2013).
//!
//! It costs `copies - 1` requests per query, so it helps only while instances are lightly loaded:
//! their section 2.1 puts the threshold for two copies between a quarter and half of capacity.

use serde::{Deserialize, Serialize};

use super::allowance::Allowance;
use crate::{BudgetView, Core, QueryId, Strategy};

/// Settings of replication.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReplicateConfig {
    /// Requests for each query, its own included.
    pub copies: u32,
    /// Copies allowed for each accepted query over time; `copies - 1`, which lets every query have
    /// all of them, if `None`.
    pub share: Option<f64>,
    /// Copies allowed at once beyond that; at least `copies - 1`.
    pub burst: f64,
    /// No copies while more queries than this wait for a slot; the number of slots if `None`.
    pub shed_above: Option<usize>,
}

impl Default for ReplicateConfig {
    fn default() -> Self {
        Self { copies: 2, share: None, burst: 16.0, shed_above: None }
    }
}

impl ReplicateConfig {
    /// Copies of each query beside its own request.
    pub const fn extra(&self) -> u32 {
        self.copies.saturating_sub(1)
    }

    /// Copies allowed for each accepted query over time.
    pub fn share(&self) -> f64 {
        self.share.unwrap_or(f64::from(self.extra()))
    }
}

#[derive(Debug)]
pub(crate) struct Replicate {
    extra: u32,
    allowance: Allowance,
}

impl Replicate {
    pub(crate) fn new(config: &ReplicateConfig) -> Self {
        Self {
            extra: config.extra(),
            allowance: Allowance::new(config.share(), config.burst, config.shed_above),
        }
    }
}

impl<I, O> Strategy<I, O> for Replicate {
    fn on_accepted(&mut self, core: &mut Core<I, O>, query: QueryId) {
        self.allowance.earn();
        for _ in 0..self.extra {
            self.allowance.copy(core, query);
        }
    }

    fn view_budget(&self) -> Option<BudgetView> {
        Some(self.allowance.view())
    }
}
