//! A strategy for each class of requests, over the same instances of the deployed model. Queries
//! and groups carry their class in their ids, so that whatever is said of them finds its strategy.

use std::sync::Arc;
use std::time::Duration;

use crate::pool::Avoid;
use crate::{
    AttemptResult, BudgetView, ClassId, Core, GroupId, GroupKey, GroupView, HoldBackOverride,
    JobId, QueryId, Row, Strategy, Time, Verdict,
};

/// One strategy for each class.
#[derive(Debug)]
pub struct ByClass<I, O> {
    default: Box<dyn Strategy<I, O>>,
    others: Vec<Box<dyn Strategy<I, O>>>,
}

impl<I, O> ByClass<I, O> {
    /// `default` is for [`ClassId::DEFAULT`] and for classes that are not there; `others` are those
    /// of class 1, 2, ...
    pub fn new(default: Box<dyn Strategy<I, O>>, others: Vec<Box<dyn Strategy<I, O>>>) -> Self {
        Self { default, others }
    }

    fn of(&self, class: ClassId) -> &dyn Strategy<I, O> {
        let index = usize::from(class.0).checked_sub(1);
        index
            .and_then(|index| self.others.get(index))
            .unwrap_or(&self.default)
            .as_ref()
    }

    fn of_mut(&mut self, class: ClassId) -> &mut dyn Strategy<I, O> {
        let index = usize::from(class.0).checked_sub(1);
        index
            .and_then(|index| self.others.get_mut(index))
            .unwrap_or(&mut self.default)
            .as_mut()
    }
}

impl<I: std::fmt::Debug, O: std::fmt::Debug> Strategy<I, O> for ByClass<I, O> {
    fn avoid(&self, core: &Core<I, O>, class: ClassId, key: GroupKey) -> Avoid {
        self.of(class).avoid(core, class, key)
    }

    fn on_accepted(&mut self, core: &mut Core<I, O>, query: QueryId) {
        self.of_mut(query.class()).on_accepted(core, query);
    }

    fn on_exact(&mut self, core: &mut Core<I, O>, query: QueryId, output: &Arc<O>) {
        self.of_mut(query.class()).on_exact(core, query, output);
    }

    fn on_lost(&mut self, core: &mut Core<I, O>, query: QueryId) -> Verdict {
        self.of_mut(query.class()).on_lost(core, query)
    }

    fn on_closed(&mut self, core: &mut Core<I, O>, query: QueryId) {
        self.of_mut(query.class()).on_closed(core, query);
    }

    fn keep_until(&self, core: &Core<I, O>, query: QueryId) -> Option<Time> {
        self.of(query.class()).keep_until(core, query)
    }

    fn on_late(&mut self, core: &mut Core<I, O>, query: QueryId) {
        self.of_mut(query.class()).on_late(core, query);
    }

    fn on_flush(&mut self, core: &mut Core<I, O>, group: GroupId) {
        self.of_mut(group.class()).on_flush(core, group);
    }

    fn on_backup(&mut self, core: &mut Core<I, O>, query: QueryId, outcome: AttemptResult<Arc<O>>) {
        self.of_mut(query.class()).on_backup(core, query, outcome);
    }

    fn on_encoded(
        &mut self,
        core: &mut Core<I, O>,
        group: GroupId,
        row: Row,
        parity: Option<Arc<I>>,
    ) {
        self.of_mut(group.class())
            .on_encoded(core, group, row, parity);
    }

    fn on_parity_took(&mut self, group: GroupId, took: Duration) {
        self.of_mut(group.class()).on_parity_took(group, took);
    }

    fn on_parity(
        &mut self,
        core: &mut Core<I, O>,
        group: GroupId,
        row: Row,
        job: JobId,
        outcome: AttemptResult<Arc<O>>,
    ) {
        self.of_mut(group.class())
            .on_parity(core, group, row, job, outcome);
    }

    fn on_reconstructed(&mut self, core: &mut Core<I, O>, query: QueryId, output: Option<Arc<O>>) {
        self.of_mut(query.class())
            .on_reconstructed(core, query, output);
    }

    fn view_groups(&self, groups: &mut Vec<GroupView>, limit: usize) {
        self.default.view_groups(groups, limit);
        for strategy in &self.others {
            strategy.view_groups(groups, limit);
        }
    }

    fn set_hold_back(&mut self, hold_back: Option<HoldBackOverride>) {
        self.default.set_hold_back(hold_back);
        for strategy in &mut self.others {
            strategy.set_hold_back(hold_back);
        }
    }

    fn view_budget(&self, class: ClassId) -> Option<BudgetView> {
        self.of(class).view_budget(class)
    }

    fn report(&self, core: &mut Core<I, O>) {
        self.default.report(core);
        for strategy in &self.others {
            strategy.report(core);
        }
    }
}
