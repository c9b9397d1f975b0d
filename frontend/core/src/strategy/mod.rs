//! Redundancy strategies: what to send beside a query's own request, and when its outcome answers.

use std::sync::Arc;
use std::time::Duration;

use crate::pool::Avoid;
use crate::{
    AttemptResult, BudgetView, Core, GroupId, GroupKey, GroupView, HoldBackOverride, JobId,
    QueryId, Row, Time,
};

mod allowance;
pub(crate) mod approximate_backup;
pub(crate) mod by_class;
pub(crate) mod coded;
pub(crate) mod config;
pub(crate) mod hedge;
mod parity;
pub(crate) mod replicate;
pub(crate) mod settings;

/// Decision about a query whose own attempts have all failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It may still answer; keep the query until its deadline.
    Wait,
    /// It cannot; answer with the failure now.
    Fail,
}

/// Hooks of a redundancy strategy. The engine does what all have in common: it dispatches each
/// query at once, answers with the first exact prediction, retries, and keeps deadlines. Every hook
/// has a default that adds no redundancy.
#[allow(unused_variables, reason = "their names say what the hooks are given")]
pub trait Strategy<I, O>: Send + std::fmt::Debug {
    /// Instances that a new query of this kind had better not go to.
    fn avoid(&self, core: &Core<I, O>, key: GroupKey) -> Avoid {
        Avoid::new()
    }

    /// The query was accepted and its own request submitted (CG-3).
    fn on_accepted(&mut self, core: &mut Core<I, O>, query: QueryId) {}

    /// The deployed model's prediction came, from whichever request; the query has been answered
    /// with it, unless it was closed before.
    fn on_exact(&mut self, core: &mut Core<I, O>, query: QueryId, output: &Arc<O>) {}

    /// All attempts failed.
    fn on_lost(&mut self, core: &mut Core<I, O>, query: QueryId) -> Verdict {
        Verdict::Fail
    }

    /// The query was closed without its exact prediction: failed, abandoned, or given up.
    fn on_closed(&mut self, core: &mut Core<I, O>, query: QueryId) {}

    /// Returns the time to keep the requests of a closed query; `None` to withdraw them (CG-8).
    fn keep_until(&self, core: &Core<I, O>, query: QueryId) -> Option<Time> {
        None
    }

    /// The time asked for with the late timer has come.
    fn on_late(&mut self, core: &mut Core<I, O>, query: QueryId) {}

    /// The time asked for with a flush timer has come.
    fn on_flush(&mut self, core: &mut Core<I, O>, group: GroupId) {}

    /// The backup model's request ended.
    fn on_backup(&mut self, core: &mut Core<I, O>, query: QueryId, outcome: AttemptResult<Arc<O>>) {
    }

    /// A parity query has been computed, or could not be.
    fn on_encoded(
        &mut self,
        core: &mut Core<I, O>,
        group: GroupId,
        row: Row,
        parity: Option<Arc<I>>,
    ) {
    }

    /// Records a parity query's time from hand-over to its pool until its answer, needed or not.
    fn on_parity_took(&mut self, took: Duration) {}

    /// A parity query's request ended.
    fn on_parity(
        &mut self,
        core: &mut Core<I, O>,
        group: GroupId,
        row: Row,
        job: JobId,
        outcome: AttemptResult<Arc<O>>,
    ) {
    }

    /// A reconstruction answered the query (`Some`), came too late or was refused (`None`).
    fn on_reconstructed(&mut self, core: &mut Core<I, O>, query: QueryId, output: Option<Arc<O>>) {}

    /// Adds its coding groups to `groups`, until there are `limit` of them.
    fn view_groups(&self, groups: &mut Vec<GroupView>, limit: usize) {}

    /// Puts something in place of the configured hold-back, for queries that arrive from now on;
    /// `None` puts that back.
    fn set_hold_back(&mut self, hold_back: Option<HoldBackOverride>) {}

    /// Returns the redundancy budget; `None` where it spends nothing.
    fn view_budget(&self) -> Option<BudgetView> {
        None
    }

    /// Adds to the gauges in the core's statistics, which were set to zero before.
    fn report(&self, core: &mut Core<I, O>) {}
}

/// No redundancy: one request for each query, retried on failure. The baseline, and what coded
/// serving degrades to.
#[derive(Debug)]
struct NoRedundancy;

impl<I, O> Strategy<I, O> for NoRedundancy {}
