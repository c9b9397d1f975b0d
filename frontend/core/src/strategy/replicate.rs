//! Several copies of each query at once, to distinct instances: the first answer wins, the others
//! are withdrawn (Vulimiri et al., *Low latency via redundancy*, CoNEXT 2013).
//!
//! It costs `copies - 1` requests for each query, so that it helps only while the instances are
//! lightly loaded: their section 2.1 puts the threshold for two copies between a quarter and a half
//! of capacity.

use super::allowance::Allowance;
use crate::{BudgetView, ClassId, Core, QueryId, Strategy};

/// Settings of replication.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplicateConfig {
    /// Requests for each query, its own included.
    pub copies: u32,
    /// Copies allowed for each accepted query over time; `copies - 1` lets every query have
    /// all of them.
    pub share: f64,
    /// Copies allowed at once beyond that; at least `copies - 1`.
    pub burst: f64,
    /// No copies while more queries than this wait for a slot.
    pub shed_above: usize,
}

/// The strategy of several copies.
#[derive(Debug)]
pub struct Replicate {
    extra: u32,
    allowance: Allowance,
}

impl Replicate {
    /// A strategy with these settings.
    pub fn new(config: &ReplicateConfig) -> Self {
        Self {
            extra: config.copies.saturating_sub(1),
            allowance: Allowance::new(config.share, config.burst, config.shed_above),
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

    fn view_budget(&self, _: ClassId) -> Option<BudgetView> {
        Some(self.allowance.view())
    }
}
