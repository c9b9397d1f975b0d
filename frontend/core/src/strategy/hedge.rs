//! A second copy of a query that is late, to a distinct instance: hedged requests (Dean and
//! Barroso, *The Tail at Scale*, CACM 2013, "Within request short-term adaptations").
//!
//! Late is a percentile of recent latency, so that at the 95th about one query in twenty is hedged;
//! the budget holds when everything slows down at once. Ordinary jitter may use it up, so a part of
//! the burst is kept for queries that have waited for longer, as those at a frozen instance have: a
//! query that gets no copy is looked at again. The first answer of either wins, the other is
//! withdrawn. An error of one does not end the query while the other is under way.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::allowance::Allowance;
use super::settings;
use crate::{BudgetView, Core, HoldBack, HoldBackOverride, HoldBackPolicy, QueryId, Strategy};

/// Settings of hedging.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HedgeConfig {
    /// After which time since its arrival a query is hedged, and after which further time again.
    #[serde(deserialize_with = "settings::late_at_95")]
    pub delay: HoldBackPolicy,
    /// Most copies of a query beside its own request.
    pub max_copies: u32,
    /// Copies allowed for each accepted query over time.
    pub share: f64,
    /// Copies allowed at once beyond that.
    pub burst: f64,
    /// No copies while more queries than this wait for a slot; the number of slots if `None`.
    pub shed_above: Option<usize>,
}

impl Default for HedgeConfig {
    fn default() -> Self {
        let HedgeBudget { share, burst } = HedgeBudget::default();
        Self { delay: HoldBackPolicy::learned(0.95), max_copies: 1, share, burst, shed_above: None }
    }
}

/// Budget of late copies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HedgeBudget {
    /// Copies allowed for each accepted query over time.
    pub share: f64,
    /// Copies allowed at once beyond that.
    pub burst: f64,
}

impl Default for HedgeBudget {
    fn default() -> Self {
        Self { share: 0.05, burst: 10.0 }
    }
}

#[derive(Debug)]
pub(crate) struct Hedge {
    delay: HoldBack,
    max_copies: u32,
    allowance: Allowance,
}

impl Hedge {
    pub(crate) fn new(config: &HedgeConfig) -> Self {
        Self {
            delay: HoldBack::new(config.delay.clone()),
            max_copies: config.max_copies,
            allowance: Allowance::new(config.share, config.burst, config.shed_above),
        }
    }

    /// After a look at a query, the time of the next one.
    fn look_again<I, O>(&self, core: &mut Core<I, O>, query: QueryId) {
        core.set_late_timer(query, core.now() + self.delay.delay().max(LEAST_DELAY));
    }
}

/// Between two looks at one query, lest a delay of zero looks for ever.
pub(super) const LEAST_DELAY: Duration = Duration::from_millis(1);

impl<I, O> Strategy<I, O> for Hedge {
    fn on_accepted(&mut self, core: &mut Core<I, O>, query: QueryId) {
        self.allowance.earn();
        if self.max_copies > 0 {
            core.set_late_timer(query, self.delay.late_at(core.now()));
        }
    }

    fn on_exact(&mut self, core: &mut Core<I, O>, query: QueryId, _: &std::sync::Arc<O>) {
        // A hedged query counts with what it took in the end: more than the delay, so that the
        // share of late ones is right.
        if let Some(arrived) = core.query(query).map(|query| query.arrived) {
            self.delay.observe(core.now().since(arrived));
        }
    }

    fn on_late(&mut self, core: &mut Core<I, O>, query: QueryId) {
        if core.is_own_queued(query) {
            // It is late for want of a slot; a copy would wait behind it.
            self.look_again(core, query);
            return;
        }
        self.allowance.late_copy(core, query, self.delay.delay());
        if core.query(query).is_some_and(|query| query.copies < self.max_copies) {
            self.look_again(core, query);
        }
    }

    fn set_hold_back(&mut self, hold_back: Option<HoldBackOverride>) {
        self.delay.set_override(hold_back);
    }

    fn view_budget(&self) -> Option<BudgetView> {
        Some(self.allowance.view())
    }

    fn report(&self, core: &mut Core<I, O>) {
        self.delay.report(&mut core.stats);
    }
}
