//! Coded redundancy: groups of k queries, r parity queries, reconstructions for queries that are
//! late (ParM, SOSP 2019).
//!
//! A query joins its key's open group after its own dispatch (CG-3). With its k-th member, or on
//! the flush timer with recently answered queries as fillers (CG-5), the group is sealed: its r
//! parity queries are encoded and sent, at once or just in time ([`timing`]), within the budget
//! (CG-7). A member that is late, or lost, is reconstructed as soon as the parity outputs that are
//! there are enough for its code (CG-4): with a linear one as many as predictions are missing, with
//! slots one. What the deployed model says afterwards is compared with what was sent.

mod config;
mod group;
mod hedge;
mod key;
mod lifecycle;
mod timing;

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

pub use self::config::{CodedConfig, SendParity};
use self::group::{Group, Member, Status};
use self::key::{Answered, Gone, Keys};
use self::lifecycle::{Sent, abandoned};
use self::timing::ParityTiming;
use super::allowance::Allowance;
use super::parity::Parity;
use crate::pool::Avoid;
use crate::query::Query;
use crate::stats::Fate;
use crate::{
    Action, AttemptResult, BudgetView, Comparison, Core, GroupId, GroupKey, GroupView, HedgeBudget,
    HoldBack, HoldBackOverride, JobId, QueryId, Row, Strategy, Time, TokenBucket, Verdict,
};

/// Time that a late query's group waits for other late ones: their timers fire together.
const LATE_WINDOW: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct Coded<I, O> {
    config: CodedConfig,
    hold_back: HoldBack,
    timing: ParityTiming,
    budget: TokenBucket,
    /// For copies of queries that coding cannot help; `None` for none.
    hedges: Option<Allowance>,
    keys: Keys<I, O>,
    groups: FxHashMap<GroupId, Group<I, O>>,
    membership: FxHashMap<QueryId, (GroupId, usize)>,
    sealed: u64,
}

impl<I, O> Coded<I, O> {
    /// A strategy with these settings. With `config.hedge` the hold-back is the hedge's delay, too,
    /// and `shed_above` holds for both.
    pub(crate) fn new(config: CodedConfig) -> Self {
        let allowance =
            |hedge: HedgeBudget| Allowance::new(hedge.share, hedge.burst, config.shed_above);
        Self {
            hedges: config.hedge.map(allowance),
            hold_back: HoldBack::new(config.hold_back.clone()),
            timing: ParityTiming::new(config.send_parity != SendParity::AtOnce),
            budget: TokenBucket::new(config.redundant_share, config.redundant_burst),
            // Up to k - 1 of the recent queries may sit in the open group themselves.
            keys: Keys::new(config.max_keys, 2 * (config.k - 1), config.max_kept_bytes),
            groups: FxHashMap::default(),
            membership: FxHashMap::default(),
            sealed: 0,
            config,
        }
    }

    fn group_of(&mut self, query: QueryId) -> Option<(GroupId, usize, &mut Group<I, O>)> {
        let &(id, slot) = self.membership.get(&query)?;
        Some((id, slot, self.groups.get_mut(&id)?))
    }

    fn join(&mut self, core: &mut Core<I, O>, id: QueryId) {
        let Some(query) = core.query(id) else { return };
        let (key, allow_approximate) = (query.key, query.allow_approximate);
        let late_at = core.late_at(&self.hold_back, query.arrived).min(query.last_call());
        let member =
            Member::waiting(id, Arc::clone(&query.input), allow_approximate.then_some(late_at));
        let group = query.may_join.then(|| self.open_group(core, id.class(), key));
        let Some(group_id) = group.flatten() else {
            core.stats.uncoded += 1;
            return;
        };
        if allow_approximate {
            core.set_late_timer(id, late_at);
        }
        let Some(group) = self.groups.get_mut(&group_id) else { return };
        self.membership.insert(id, (group_id, group.members.len()));
        group.members.push(member);
        if group.members.len() == self.config.k {
            self.seal(core, group_id);
        } else {
            let after = match self.config.send_parity {
                SendParity::WhenLate => LATE_WINDOW.min(self.config.flush_after),
                _ => self.config.flush_after,
            };
            Self::arm_flush(core, group_id, group, after);
        }
    }

    /// Returns true if queries join a group only once they are late, or lost.
    fn groups_late_queries(&self) -> bool {
        self.config.send_parity == SendParity::WhenLate
    }

    /// Has a query that is late, or lost, join a group, if it waited for that.
    fn join_late(&mut self, core: &mut Core<I, O>, query: QueryId) {
        if self.groups_late_queries() && !self.membership.contains_key(&query) {
            self.join(core, query);
        }
    }

    fn recover_late(&mut self, core: &mut Core<I, O>, query: QueryId) {
        // With no hold-back every query arrives late, which says nothing: its group fills as ever.
        let is_straggler = !self.hold_back.delay().is_zero();
        self.join_late(core, query);
        let Some((id, slot, group)) = self.group_of(query) else { return };
        let member = group.members.get_mut(slot);
        let was_late = member.is_none_or(|member| std::mem::replace(&mut member.late, true));
        if is_straggler && !self.groups_late_queries() {
            self.complete_with_fillers(core, id);
        }
        self.encode(core, id);
        let Some(group) = self.groups.get_mut(&id) else { return };
        let is_unrecoverable = is_straggler && !was_late && group.lacks_parity();
        core.stats.late_unrecoverable += u64::from(is_unrecoverable);
        Self::try_reconstruct(core, group, slot);
    }
}

impl<I: Send + Sync + std::fmt::Debug, O: Send + Sync + std::fmt::Debug> Strategy<I, O>
    for Coded<I, O>
{
    fn avoid(&self, core: &Core<I, O>, key: GroupKey) -> Avoid {
        let open =
            self.keys.get(key).and_then(|state| state.open).and_then(|id| self.groups.get(&id));
        let members = open.map(|group| group.members.as_slice()).unwrap_or_default();
        let queries = members.iter().filter_map(|member| member.query);
        queries.flat_map(|query| core.instances_of(query)).collect()
    }

    fn on_accepted(&mut self, core: &mut Core<I, O>, query: QueryId) {
        self.budget.earn();
        if !self.groups_late_queries() {
            self.join(core, query);
        } else if let Some(waiting) = core.query(query).filter(|query| query.allow_approximate) {
            let late_at = core.late_at(&self.hold_back, waiting.arrived);
            core.set_late_timer(query, late_at.min(waiting.last_call()));
        }
        if let Some(hedges) = &mut self.hedges {
            hedges.earn();
            self.watch_for_hedge(core, query);
        }
    }

    fn on_exact(&mut self, core: &mut Core<I, O>, query: QueryId, output: &Arc<O>) {
        let Some(&Query { arrived, bytes, .. }) = core.query(query) else { return };
        self.hold_back.observe(core.now().since(arrived));
        let Some((id, slot, group)) = self.group_of(query) else { return };
        let key = group.key;
        let Some(member) = group.members.get_mut(slot) else { return };
        member.prediction = Some(Arc::clone(output));
        member.status = Status::Done;
        let input = Arc::clone(&member.input);
        let answered = Answered { query, input, prediction: Arc::clone(output), bytes };
        if let Some(reconstruction) = member.reconstruction.take() {
            let (class, truth) = (query.class(), Arc::clone(output));
            core.push(Action::Compare(Comparison::LateTruth { class, reconstruction, truth }));
        }
        if !self.groups_late_queries() {
            let mut gone = Gone::default();
            self.keys.remember(core.now(), key, answered, abandoned(&self.groups), &mut gone);
            self.drop_open_groups(core, gone.groups);
            self.let_go(&gone.queries);
        } else {
            self.let_go(&[query]);
        }
        self.advance(core, id);
    }

    fn on_lost(&mut self, core: &mut Core<I, O>, query: QueryId) -> Verdict {
        // Without a timer it came while redundancy was switched off.
        let may_join = |query: &Query<I>| query.allow_approximate && query.late_timer.is_some();
        if core.query(query).is_some_and(may_join) {
            self.join_late(core, query);
        }
        let Some((id, slot, group)) = self.group_of(query) else { return Verdict::Fail };
        let Some(member) = group.members.get_mut(slot) else { return Verdict::Fail };
        member.lost = true;
        // A sum with an input at fault is at fault, too.
        if !member.allow_approximate() || member.refused || core.is_input_at_fault(query) {
            return Verdict::Fail;
        }
        self.complete_with_fillers(core, id);
        self.encode(core, id);
        let Some(group) = self.groups.get_mut(&id) else { return Verdict::Fail };
        if !group.may_become_recoverable() {
            return Verdict::Fail;
        }
        Self::try_reconstruct(core, group, slot);
        Verdict::Wait
    }

    fn on_closed(&mut self, core: &mut Core<I, O>, query: QueryId) {
        let Some((id, slot, group)) = self.group_of(query) else { return };
        if !group.sealed {
            self.leave_open_group(query, id, slot);
            return;
        }
        let needed = group.is_needed_by_others(slot);
        if let Some(member) = group.members.get_mut(slot) {
            member.status = if needed { Status::Kept } else { Status::Done };
        }
        self.advance(core, id);
    }

    fn keep_until(&self, core: &Core<I, O>, query: QueryId) -> Option<Time> {
        let &(id, slot) = self.membership.get(&query)?;
        let group = self.groups.get(&id)?;
        let keep = match group.members.get(slot)?.status {
            Status::AwaitingTruth => true,
            Status::Waiting | Status::Kept => group.is_needed_by_others(slot),
            Status::Done => false,
        };
        keep.then(|| core.now() + self.config.late_truth_wait)
    }

    fn on_late(&mut self, core: &mut Core<I, O>, query: QueryId) {
        if core.query(query).is_some_and(|query| query.allow_approximate) {
            self.recover_late(core, query);
        }
        self.hedge(core, query);
    }

    fn on_flush(&mut self, core: &mut Core<I, O>, id: GroupId) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        group.timer = None;
        if group.sealed {
            // Only one of the two has anything to do.
            self.encode(core, id);
            self.resend_overdue(core, id);
            return self.advance(core, id);
        }
        // With no query waiting there is nothing to protect; the group stays open and is decodable
        // at once when it fills.
        if group.is_any_waiting()
            && !self.complete_with_fillers(core, id)
            && let Some(group) = self.groups.get_mut(&id)
        {
            Self::arm_flush(core, id, group, self.config.flush_after);
        }
    }

    fn on_encoded(&mut self, core: &mut Core<I, O>, id: GroupId, row: Row, parity: Option<Arc<I>>) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        let place = usize::from(row.0);
        if !matches!(group.rows.get(place), Some(Parity::Encoding)) {
            return;
        }
        let needed = group.is_any_waiting() || group.audit;
        let sent = parity.filter(|_| needed).and_then(|input| {
            Self::send_parity(core, &self.config, group, (id, row), input, Sent::First)
        });
        group.rows[place] = sent.unwrap_or_else(|| {
            core.count(id.class(), Fate::Shed);
            Parity::Dead
        });
        self.watch_parity(core, id);
        self.advance(core, id);
    }

    fn on_parity_took(&mut self, took: Duration) {
        self.timing.observe(took);
    }

    fn on_parity(
        &mut self,
        core: &mut Core<I, O>,
        id: GroupId,
        row: Row,
        job: JobId,
        outcome: AttemptResult<Arc<O>>,
    ) {
        let Some(group) = self.groups.get_mut(&id) else {
            if outcome.is_ok() {
                core.count(id.class(), Fate::Wasted);
            }
            return;
        };
        let needed = group.is_any_waiting();
        let place = usize::from(row.0);
        let sent = group.rows.get(place).and_then(|state| state.sent_as(job));
        let Some((input, retried)) = sent else { return };
        group.rows[place] = match outcome {
            Ok(output) => Parity::Output(output),
            Err(failure)
                if needed && !retried && failure.kind.is_retryable() && self.budget.spend() =>
            {
                let sent = Sent::After(&failure);
                let sent = Self::send_parity(core, &self.config, group, (id, row), input, sent);
                sent.unwrap_or(Parity::Dead)
            }
            Err(_) => Parity::Dead,
        };
        self.advance(core, id);
    }

    fn on_reconstructed(&mut self, core: &mut Core<I, O>, query: QueryId, output: Option<Arc<O>>) {
        let has_jobs = core.query(query).is_some_and(|query| !query.jobs.is_empty());
        let Some((id, slot, group)) = self.group_of(query) else { return };
        let Some(member) = group.members.get_mut(slot) else { return };
        member.reconstructing = false;
        match output {
            Some(output) => {
                member.reconstruction = Some(output);
                member.reconstructed = true;
                member.status = if has_jobs { Status::AwaitingTruth } else { Status::Done };
                if group.won < group.outputs() {
                    group.won += 1;
                    core.count(id.class(), Fate::Won);
                }
            }
            None => member.refused = true,
        }
        self.advance(core, id);
    }

    fn view_groups(&self, groups: &mut Vec<GroupView>, limit: usize) {
        let room = limit.saturating_sub(groups.len());
        groups.extend(
            self.groups.iter().take(room).map(|(id, group)| group.view(*id, self.config.k)),
        );
    }

    fn set_hold_back(&mut self, hold_back: Option<HoldBackOverride>) {
        self.hold_back.set_override(hold_back);
    }

    fn view_budget(&self) -> Option<BudgetView> {
        let parity = self.budget.view();
        let Some(hedges) = self.hedges.as_ref().map(Allowance::view) else { return Some(parity) };
        Some(BudgetView {
            share: parity.share + hedges.share,
            burst: parity.burst + hedges.burst,
            left: parity.left + hedges.left,
        })
    }

    fn report(&self, core: &mut Core<I, O>) {
        core.stats.groups_tracked += self.groups.len() as u64;
        core.stats.kept_bytes += self.keys.bytes() as u64;
        self.hold_back.report(&mut core.stats);
    }
}
