//! Coded redundancy, and a hedge for what it cannot help: a query that is late, and that its group
//! cannot recover yet, gets a second copy at a distinct instance, within a budget of its own.
//!
//! Coding covers the usual single straggler for 1/k of the work; hedging covers groups that are not
//! full, lost parity queries, two stragglers in one group, and clients that take no approximation.
//! Not in ParM; the hedge is that of *The Tail at Scale* (CACM 2013).

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use super::allowance::Allowance;
use crate::pool::Avoid;
use crate::{
    AttemptResult, BudgetView, ClassId, Coded, CodedConfig, Core, GroupId, GroupKey, GroupView,
    HoldBackOverride, JobId, QueryId, Row, Strategy, Time, Verdict,
};

/// The coded strategy with hedging.
#[derive(Debug)]
pub struct CodedHedged<I, O> {
    coded: Coded<I, O>,
    allowance: Allowance,
}

impl<I, O> CodedHedged<I, O> {
    /// A strategy with these settings: `config.hedge` is the budget of copies, the hold-back is
    /// the hedge's delay, too, and `shed_above` holds for both.
    pub fn new(config: CodedConfig) -> Self {
        let hedge = config.hedge.unwrap_or_default();
        Self {
            allowance: Allowance::new(hedge.share, hedge.burst, config.shed_above),
            coded: Coded::new(config),
        }
    }
}

impl<I: Send + Sync + Debug, O: Send + Sync + Debug> Strategy<I, O> for CodedHedged<I, O> {
    fn avoid(&self, core: &Core<I, O>, class: ClassId, key: GroupKey) -> Avoid {
        self.coded.avoid(core, class, key)
    }

    fn on_accepted(&mut self, core: &mut Core<I, O>, id: QueryId) {
        self.allowance.earn();
        self.coded.on_accepted(core, id);
        // Queries that cannot be reconstructed can still be hedged.
        let unwatched = core.query(id).filter(|query| query.late_timer.is_none());
        if let Some(at) = unwatched.map(|query| self.coded.late_at(query.arrived)) {
            core.set_late_timer(id, at);
        }
    }

    fn on_exact(&mut self, core: &mut Core<I, O>, query: QueryId, output: &Arc<O>) {
        self.coded.on_exact(core, query, output);
    }

    fn on_lost(&mut self, core: &mut Core<I, O>, query: QueryId) -> Verdict {
        self.coded.on_lost(core, query)
    }

    fn on_closed(&mut self, core: &mut Core<I, O>, query: QueryId) {
        self.coded.on_closed(core, query);
    }

    fn keep_until(&self, core: &Core<I, O>, query: QueryId) -> Option<Time> {
        self.coded.keep_until(core, query)
    }

    fn on_late(&mut self, core: &mut Core<I, O>, id: QueryId) {
        if core.query(id).is_some_and(|query| query.allow_approximate) {
            self.coded.on_late(core, id);
        }
        // A copy of a query that is lost, or still waits for its first slot, would not help.
        let has_requests = core.query(id).is_some_and(|query| !query.jobs.is_empty());
        if has_requests && !core.is_own_queued(id) && !self.coded.is_reconstructing(id) {
            self.allowance.copy(core, id);
        }
    }

    fn on_flush(&mut self, core: &mut Core<I, O>, group: GroupId) {
        self.coded.on_flush(core, group);
    }

    fn on_encoded(
        &mut self,
        core: &mut Core<I, O>,
        group: GroupId,
        row: Row,
        parity: Option<Arc<I>>,
    ) {
        self.coded.on_encoded(core, group, row, parity);
    }

    fn on_parity_took(&mut self, group: GroupId, took: Duration) {
        self.coded.on_parity_took(group, took);
    }

    fn on_parity(
        &mut self,
        core: &mut Core<I, O>,
        group: GroupId,
        row: Row,
        job: JobId,
        outcome: AttemptResult<Arc<O>>,
    ) {
        self.coded.on_parity(core, group, row, job, outcome);
    }

    fn on_reconstructed(&mut self, core: &mut Core<I, O>, query: QueryId, output: Option<Arc<O>>) {
        self.coded.on_reconstructed(core, query, output);
    }

    fn view_groups(&self, groups: &mut Vec<GroupView>, limit: usize) {
        self.coded.view_groups(groups, limit);
    }

    fn set_hold_back(&mut self, hold_back: Option<HoldBackOverride>) {
        self.coded.set_hold_back(hold_back);
    }

    fn view_budget(&self, class: ClassId) -> Option<BudgetView> {
        let hedges = self.allowance.view();
        let coded = self.coded.view_budget(class)?;
        Some(BudgetView {
            share: coded.share + hedges.share,
            burst: coded.burst + hedges.burst,
            left: coded.left + hedges.left,
        })
    }

    fn report(&self, core: &mut Core<I, O>) {
        self.coded.report(core);
    }
}
