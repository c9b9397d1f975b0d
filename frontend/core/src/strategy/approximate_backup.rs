//! A cheaper model answers when the deployed one is late: the approximate backups of ParM's
//! evaluation (SOSP 2019, section 5).
//!
//! Asked at arrival (`eager`, as there) the backup model must keep up with the whole request rate,
//! but its prediction is in hand when the query is late; asked then it costs little and comes
//! later. Either way its prediction answers only then, or when the query's own attempts have all
//! failed (CG-4). What the deployed model says afterwards is compared with what was sent.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::allowance::Allowance;
use super::hedge::LEAST_DELAY;
use super::settings;
use crate::stats::Fate;
use crate::{
    Action, Answer, AttemptResult, BudgetView, Comparison, Core, Failure, HoldBack,
    HoldBackOverride, HoldBackPolicy, PoolId, QueryId, Strategy, Time, Verdict,
};

/// Settings of approximate backup.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApproximateBackupConfig {
    /// The backup model's pool.
    #[serde(skip)]
    pub pool: PoolId,
    /// When a query counts as late.
    #[serde(deserialize_with = "settings::late_at_97")]
    pub delay: HoldBackPolicy,
    /// Ask the backup model when the query arrives, and hold its prediction until the query is
    /// late; else ask it when the query is late.
    pub eager: bool,
    /// Time that the prediction of a query that the backup answered is awaited, to compare.
    #[serde(rename = "late_truth_wait_ms", with = "settings::millis")]
    pub late_truth_wait: Duration,
    /// Requests to the backup model allowed for each accepted query over time; 1 lets every query
    /// have one, and is the default if `eager`, else 0.1.
    pub share: Option<f64>,
    /// Requests to the backup model allowed at once beyond that.
    pub burst: f64,
    /// None while more queries than this wait for the deployed model; its slot count if `None`.
    pub shed_above: Option<usize>,
}

impl Default for ApproximateBackupConfig {
    fn default() -> Self {
        Self {
            pool: PoolId::FIRST_REDUNDANT,
            delay: HoldBackPolicy::learned(0.97),
            eager: false,
            late_truth_wait: settings::LATE_TRUTH_WAIT,
            share: None,
            burst: 16.0,
            shed_above: None,
        }
    }
}

impl ApproximateBackupConfig {
    /// Requests to the backup model allowed for each accepted query over time.
    pub fn share(&self) -> f64 {
        self.share.unwrap_or(if self.eager { 1.0 } else { 0.1 })
    }
}

/// Record of one query that the backup model may answer.
#[derive(Debug)]
struct Backed<O> {
    late: bool,
    asked: bool,
    /// It was asked once more, after a failure.
    asked_again: bool,
    /// The backup model's prediction, which must wait.
    held: Option<Arc<O>>,
    /// The backup model's prediction, which was sent.
    sent: Option<Arc<O>>,
}

#[derive(Debug)]
pub(crate) struct ApproximateBackup<O> {
    config: ApproximateBackupConfig,
    delay: HoldBack,
    allowance: Allowance,
    queries: FxHashMap<QueryId, Backed<O>>,
}

impl<O> ApproximateBackup<O> {
    pub(crate) fn new(config: ApproximateBackupConfig) -> Self {
        Self {
            delay: HoldBack::new(config.delay.clone()),
            allowance: Allowance::new(config.share(), config.burst, config.shed_above),
            queries: FxHashMap::default(),
            config,
        }
    }

    fn ask<I>(&mut self, core: &mut Core<I, O>, id: QueryId) -> bool {
        let Some(backed) = self.queries.get_mut(&id).filter(|backed| !backed.asked) else {
            return false;
        };
        backed.asked = self.allowance.backup(core, id, self.config.pool, None);
        backed.asked
    }

    /// Asks another instance once more after a failure that the input may have caused: either of
    /// the two is at fault. A query that has lost its own prediction fails instead.
    fn ask_again<I>(&mut self, core: &mut Core<I, O>, id: QueryId, failure: &Failure) {
        let pool = self.config.pool;
        let has_another =
            |instance| core.pool(pool).is_some_and(|pool| pool.has_other_up(instance));
        let may_help = failure.kind.input_may_cause()
            && core.query(id).is_some_and(|query| query.is_waiting() && query.lost.is_none())
            && failure.instance.is_some_and(has_another);
        let backed = self.queries.get_mut(&id).filter(|backed| may_help && !backed.asked_again);
        let Some(backed) = backed else { return };
        backed.asked_again = true;
        self.allowance.backup(core, id, pool, Some(failure));
    }

    /// Answers with the prediction in hand, if there is one and the query waits.
    fn answer_held<I>(&mut self, core: &mut Core<I, O>, id: QueryId) -> bool {
        let Some(query) = core.query(id).filter(|query| query.is_waiting()) else { return false };
        let truth_may_come = !query.jobs.is_empty();
        let Some(backed) = self.queries.get_mut(&id) else { return false };
        let Some(output) = backed.held.take() else { return false };
        if truth_may_come {
            backed.sent = Some(Arc::clone(&output));
        } else {
            self.queries.remove(&id);
        }
        core.answer(id, Answer::Backup(output));
        core.count(id.class(), Fate::Won);
        true
    }

    /// Drops a query's state; a prediction that was never sent was in vain.
    fn drop_query<I>(&mut self, core: &mut Core<I, O>, id: QueryId) -> Option<Backed<O>> {
        let backed = self.queries.remove(&id)?;
        if backed.held.is_some() {
            core.count(id.class(), Fate::Wasted);
        }
        Some(backed)
    }
}

impl<I, O: Send + Sync + std::fmt::Debug> Strategy<I, O> for ApproximateBackup<O> {
    fn on_accepted(&mut self, core: &mut Core<I, O>, id: QueryId) {
        self.allowance.earn();
        let Some(query) = core.query(id).filter(|query| query.allow_approximate) else { return };
        let late_at = core.late_at(&self.delay, query.arrived).min(query.last_call());
        self.queries.insert(
            id,
            Backed { late: false, asked: false, asked_again: false, held: None, sent: None },
        );
        core.set_late_timer(id, late_at);
        if self.config.eager {
            self.ask(core, id);
        }
    }

    fn on_exact(&mut self, core: &mut Core<I, O>, id: QueryId, output: &Arc<O>) {
        if let Some(arrived) = core.query(id).map(|query| query.arrived) {
            self.delay.observe(core.now().since(arrived));
        }
        if let Some(reconstruction) = self.drop_query(core, id).and_then(|backed| backed.sent) {
            let (class, truth) = (id.class(), Arc::clone(output));
            core.push(Action::Compare(Comparison::LateTruth { class, reconstruction, truth }));
        }
    }

    fn on_late(&mut self, core: &mut Core<I, O>, id: QueryId) {
        if let Some(backed) = self.queries.get_mut(&id) {
            backed.late = true;
        }
        if self.answer_held(core, id) || self.ask(core, id) {
            return;
        }
        if self.queries.get(&id).is_some_and(|backed| !backed.asked) {
            core.set_late_timer(id, core.now() + self.delay.delay().max(LEAST_DELAY));
        }
    }

    fn on_lost(&mut self, core: &mut Core<I, O>, id: QueryId) -> Verdict {
        if self.answer_held(core, id) {
            return Verdict::Wait;
        }
        let is_asked = core.query(id).is_some_and(|query| query.backup.is_some());
        if is_asked || self.ask(core, id) { Verdict::Wait } else { Verdict::Fail }
    }

    fn on_backup(&mut self, core: &mut Core<I, O>, id: QueryId, outcome: AttemptResult<Arc<O>>) {
        let output = match outcome {
            Ok(output) => output,
            Err(failure) => return self.ask_again(core, id, &failure),
        };
        let is_lost = core.query(id).is_some_and(|query| query.lost.is_some());
        match self.queries.get_mut(&id) {
            Some(backed) if core.is_waiting(id) => {
                let may_answer = backed.late || is_lost;
                backed.held = Some(output);
                if may_answer {
                    self.answer_held(core, id);
                }
            }
            _ => core.count(id.class(), Fate::Wasted),
        }
    }

    fn on_closed(&mut self, core: &mut Core<I, O>, id: QueryId) {
        self.drop_query(core, id);
    }

    fn keep_until(&self, core: &Core<I, O>, id: QueryId) -> Option<Time> {
        let sent = self.queries.get(&id).is_some_and(|backed| backed.sent.is_some());
        sent.then(|| core.now() + self.config.late_truth_wait)
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
