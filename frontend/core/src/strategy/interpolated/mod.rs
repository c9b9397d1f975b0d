//! Interpolation in its authors' form (ApproxIFER, AAAI 2022): queries are not sent themselves. A group of k is coded into
//! k + s queries for unmodified replicas of the deployed model, and any k outputs give all k predictions.
//!
//! What is gained is a code with no parity model that outlasts s stragglers; what is paid is that every answer of a group is
//! approximate, and that a query waits for its group to fill. That weakens CG-3, and its bound is the invariant here: **a
//! query that is withheld is coded, sent as it is, or closed within `fill_within`.** The other invariants hold:
//!
//! - CG-4: outputs are more accurate together, so while one of them may still come, k of them are not decoded before the
//!   group is late. Nothing exact is given up for it: the query's own request goes only once the group cannot help.
//! - CG-5: a group that is not full in time is dissolved and its queries are sent as they are: that costs less than to
//!   complete it, and is exact.
//! - CG-7: with the budget spent, too many queries waiting or too few instances up, queries are not withheld.
//! - CG-8: coded queries in line are withdrawn when nobody of their group waits; those in flight end, as parity queries do.

mod config;
mod group;

use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

pub use self::config::InterpolatedConfig;
use self::group::{Group, Member, Status};
use super::coded::key::Keys;
use super::parity::Parity;
use crate::stats::Fate;
use crate::timers::Timer;
use crate::{
    Action, BudgetView, ClassId, Comparison, Core, Failure, FailureKind, GroupId, GroupKey, GroupView,
    HoldBack, HoldBackOverride, JobId, Outcome, Pool, PoolId, QueryId, Row, Slot, Strategy, Time,
    TokenBucket, Verdict,
};

/// The strategy in which every query is coded.
#[derive(Debug)]
pub struct Interpolated<I, O> {
    config: InterpolatedConfig,
    hold_back: HoldBack,
    budget: TokenBucket,
    keys: Keys<I, O>,
    groups: FxHashMap<GroupId, Group<I, O>>,
    membership: FxHashMap<QueryId, GroupId>,
    sealed: u64,
}

impl<I, O> Interpolated<I, O> {
    /// A strategy with these settings.
    pub fn new(config: InterpolatedConfig) -> Self {
        Self {
            hold_back: HoldBack::new(config.hold_back.clone()),
            budget: TokenBucket::new(config.redundant_share, config.redundant_burst),
            keys: Keys::new(config.max_keys, 0, 0),
            groups: FxHashMap::default(),
            membership: FxHashMap::default(),
            sealed: 0,
            config,
        }
    }

    /// Whether a group could be coded now (CG-7). With fewer than k instances up two outputs would come from one of them.
    fn may_code(&self, core: &Core<I, O>) -> bool {
        self.budget.can_spend_all(self.config.workers())
            && !core.is_congested(self.config.shed_above)
            && core
                .pool(PoolId::DEPLOYED)
                .is_some_and(|pool| pool.up() >= self.config.k && !Pool::is_full(pool))
    }

    /// The group of this key that takes members, a fresh one if need be; `None` when there are too many kinds of query.
    fn open_group(&mut self, core: &mut Core<I, O>, query: QueryId, key: GroupKey) -> Option<GroupId> {
        // An open group is dissolved after a time: none is given up for another kind.
        let state = self.keys.get_or_insert(key, |_| false, &mut Vec::new())?;
        if let Some(open) = state.open {
            return Some(open);
        }
        let id = GroupId::new(core.fresh_id(), query.class());
        let now = core.now();
        let flush_at = now + self.config.fill_within;
        core.timers.set(flush_at, Timer::Flush(id));
        state.open = Some(id);
        self.groups.insert(id, Group::open(key, self.config.workers(), now, flush_at));
        Some(id)
    }

    /// The group takes no more members.
    fn close_to_members(&mut self, core: &mut Core<I, O>, id: GroupId) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        if let Some(at) = group.flush_at.take() {
            core.timers.cancel(at, Timer::Flush(id));
        }
        if let Some(state) = self.keys.get_mut(group.key) {
            state.open = None;
        }
    }

    /// The group has k members: code it, or if that cannot be, send them as they are.
    fn seal(&mut self, core: &mut Core<I, O>, id: GroupId) {
        let workers = self.config.workers();
        if !self.may_code(core) || !self.budget.spend_all(workers) {
            (0..workers).for_each(|_| core.count(id.class(), Fate::Shed));
            self.dissolve(core, id);
            return;
        }
        self.close_to_members(core, id);
        self.sealed += 1;
        core.stats.groups_encoded += 1;
        let now = core.now();
        let late_at = self.hold_back.late_at(now);
        let Some(group) = self.groups.get_mut(&id) else { return };
        group.sealed_at = Some(now);
        if self.config.audit_every > 0 && self.sealed.is_multiple_of(self.config.audit_every) {
            group.audited = usize::try_from(self.sealed % self.config.k as u64).ok();
        }
        for (state, row) in group.rows.iter_mut().zip((0u8..).map(Row)) {
            let inputs = group.members.iter().map(|member| Arc::clone(&member.input)).collect();
            core.push(Action::Encode { group: id, row, inputs });
            *state = Parity::Encoding;
        }
        for member in &mut group.members {
            let Some(query) = core.query(member.query) else { continue };
            let half = query.last_call().since(now) / 2;
            member.plain_at = now + self.config.plain_after.min(half);
            member.late_at = late_at.min(member.plain_at);
            core.set_late_timer(member.query, member.late_at);
        }
    }

    /// Sends the members of an open group as they are (CG-5, CG-7).
    fn dissolve(&mut self, core: &mut Core<I, O>, id: GroupId) {
        self.close_to_members(core, id);
        let Some(mut group) = self.groups.remove(&id) else { return };
        for member in &mut group.members {
            self.membership.remove(&member.query);
            send_plainly(core, member, &[]);
        }
    }

    /// After any change to a group that is coded: reconstruct who may be, send those as they are whom it cannot help any
    /// more, and drop the group when it is done.
    fn advance(&mut self, core: &mut Core<I, O>, id: GroupId) {
        let k = self.config.k;
        let Some(group) = self.groups.get_mut(&id).filter(|group| group.sealed_at.is_some()) else {
            return;
        };
        if group.outputs() >= k {
            for slot in 0..group.members.len() {
                try_reconstruct(core, group, slot);
            }
        } else if group.alive() < k {
            let busy = group.jobs();
            for member in group.members.iter_mut().filter(|member| member.status == Status::Waiting) {
                if member.lost {
                    member.status = Status::Done;
                    core.fail_lost(member.query);
                } else {
                    send_plainly(core, member, &busy);
                }
            }
        }
        self.finish_if_done(core, id);
    }

    /// Withdraws what a group in which nobody waits no longer needs, and forgets it once nothing is pending.
    fn finish_if_done(&mut self, core: &mut Core<I, O>, id: GroupId) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        if group.members.iter().any(|member| member.status == Status::Waiting) {
            return;
        }
        group.rows.iter_mut().for_each(|row| row.withdraw_queued(core));
        if group.is_any_pending() || group.members.iter().any(|member| member.status == Status::AwaitingTruth)
        {
            return;
        }
        if let Some(group) = self.groups.remove(&id) {
            if group.won > 0 {
                let closed = Some(core.now());
                core.remember_decoded(GroupView { closed, ..group.view(id, self.config.k) });
            }
            for _ in group.won..group.outputs() {
                core.count(id.class(), Fate::Wasted);
            }
            for member in &group.members {
                self.membership.remove(&member.query);
            }
        }
    }

    fn member(&mut self, query: QueryId) -> Option<(GroupId, &mut Group<I, O>, usize)> {
        let id = *self.membership.get(&query)?;
        let group = self.groups.get_mut(&id)?;
        let slot = group.members.iter().position(|member| member.query == query)?;
        Some((id, group, slot))
    }
}

/// Asks for the reconstruction of `slot` if its client waits and the group has all outputs that it is to wait for.
fn try_reconstruct<I, O>(core: &mut Core<I, O>, group: &mut Group<I, O>, slot: usize) {
    let complete = !group.is_any_pending();
    let (k, outputs) =
        (group.members.len(), group.rows.iter().map(|row| row.output().cloned()).collect::<Vec<_>>());
    let there = outputs.iter().flatten().count();
    let Some(member) = group.members.get_mut(slot) else { return };
    let due = complete || member.late || member.lost;
    let (true, Ok(place)) = (there >= k && due && member.may_be_reconstructed(), u8::try_from(slot)) else {
        return;
    };
    member.reconstructing = true;
    group.used = group.used.max(there);
    let predictions = (0..k).map(|_| None).collect();
    core.push(Action::Reconstruct { query: member.query, slot: Slot(place), predictions, parity: outputs });
}

/// Sends a waiting query as it is, once; if possible not to where coded queries of its group are.
fn send_plainly<I, O>(core: &mut Core<I, O>, member: &mut Member<I, O>, busy: &[JobId]) {
    if member.plain || member.status != Status::Waiting {
        return;
    }
    member.plain = true;
    let avoid = busy.iter().filter_map(|job| core.instance_of(*job)).collect();
    if !core.dispatch(member.query, avoid) {
        let full = Failure::new(FailureKind::InstanceBusy, "too many queries wait for the deployed model");
        core.mark_lost(member.query, full);
        member.status = Status::Done;
        core.fail_lost(member.query);
    }
}

impl<I: Send + Sync + std::fmt::Debug, O: Send + Sync + std::fmt::Debug> Strategy<I, O>
    for Interpolated<I, O>
{
    fn withhold(&mut self, core: &mut Core<I, O>, id: QueryId) -> bool {
        self.budget.earn();
        let Some(query) = core.query(id) else { return false };
        let member = Member::new(id, Arc::clone(&query.input));
        let (key, last_call) = (query.key, query.last_call());
        if !query.allow_approximate || core.now() + 2 * self.config.fill_within >= last_call {
            return false;
        }
        if !self.may_code(core) {
            core.count(id.class(), Fate::Shed);
            return false;
        }
        let Some(group_id) = self.open_group(core, id, key) else {
            core.stats.uncoded += 1;
            return false;
        };
        let Some(group) = self.groups.get_mut(&group_id) else { return false };
        self.membership.insert(id, group_id);
        group.members.push(member);
        if group.members.len() == self.config.k {
            self.seal(core, group_id);
        }
        true
    }

    fn on_exact(&mut self, core: &mut Core<I, O>, query: QueryId, output: &Arc<O>) {
        let Some((id, group, slot)) = self.member(query) else { return };
        let Some(member) = group.members.get_mut(slot) else { return };
        member.status = Status::Done;
        if let Some(reconstruction) = member.reconstruction.take() {
            let truth = Arc::clone(output);
            core.push(Action::Compare(Comparison::LateTruth { class: query.class(), reconstruction, truth }));
        }
        self.advance(core, id);
    }

    fn on_lost(&mut self, core: &mut Core<I, O>, query: QueryId) -> Verdict {
        let k = self.config.k;
        let Some((_, group, slot)) = self.member(query) else { return Verdict::Fail };
        let hopeless = group.alive() < k;
        let Some(member) = group.members.get_mut(slot) else { return Verdict::Fail };
        member.lost = true;
        if hopeless || member.refused {
            return Verdict::Fail;
        }
        try_reconstruct(core, group, slot);
        Verdict::Wait
    }

    fn on_closed(&mut self, core: &mut Core<I, O>, query: QueryId) {
        let Some((id, group, slot)) = self.member(query) else { return };
        if group.sealed_at.is_none() {
            // It takes nobody's slot.
            group.members.remove(slot);
            self.membership.remove(&query);
            return;
        }
        if let Some(member) = group.members.get_mut(slot) {
            member.status = Status::Done;
        }
        self.advance(core, id);
    }

    fn keep_until(&self, core: &Core<I, O>, query: QueryId) -> Option<Time> {
        let group = self.groups.get(self.membership.get(&query)?)?;
        let member = group.members.iter().find(|member| member.query == query)?;
        (member.status == Status::AwaitingTruth).then(|| core.now() + self.config.late_truth_wait)
    }

    fn on_late(&mut self, core: &mut Core<I, O>, query: QueryId) {
        let (k, now) = (self.config.k, core.now());
        let Some((_, group, slot)) = self.member(query) else { return };
        let (there, busy) = (group.outputs(), group.jobs());
        let Some(member) = group.members.get_mut(slot) else { return };
        if !member.late {
            member.late = true;
            core.stats.late_unrecoverable += u64::from(there < k);
        }
        if there >= k {
            try_reconstruct(core, group, slot);
        } else if now >= member.plain_at {
            send_plainly(core, member, &busy);
        } else {
            core.set_late_timer(query, member.plain_at);
        }
    }

    fn on_flush(&mut self, core: &mut Core<I, O>, id: GroupId) {
        self.dissolve(core, id);
    }

    fn on_encoded(&mut self, core: &mut Core<I, O>, id: GroupId, row: Row, coded: Option<Arc<I>>) {
        let expires = core.now() + self.config.coded_timeout;
        let Some(group) = self.groups.get_mut(&id) else { return };
        let needed = group.members.iter().any(|member| member.status == Status::Waiting);
        let others = group.jobs();
        let Some(state @ Parity::Encoding) = group.rows.get_mut(usize::from(row.0)) else { return };
        let sent = coded.filter(|_| needed).and_then(|input| {
            let job = core.dispatch_coded((id, row), Arc::clone(&input), expires, others)?;
            Some(Parity::InFlight { job, input, retried: false })
        });
        *state = sent.unwrap_or_else(|| {
            core.count(id.class(), Fate::Shed);
            Parity::Dead
        });
        self.advance(core, id);
    }

    fn on_parity(
        &mut self,
        core: &mut Core<I, O>,
        id: GroupId,
        row: Row,
        job: JobId,
        outcome: Outcome<Arc<O>>,
    ) {
        let now = core.now();
        let Some(group) = self.groups.get_mut(&id) else { return };
        let needed = group.members.iter().any(|member| member.status == Status::Waiting);
        let others: SmallVec<_> = group.jobs().into_iter().filter(|other| *other != job).collect();
        let sealed_at = group.sealed_at;
        let Some(state) = group.rows.get_mut(usize::from(row.0)) else { return };
        let Some((input, retried)) = state.sent_as(job) else { return };
        // Stragglers count with what they took, those given up with what they were given.
        let timed_out = outcome.as_ref().is_err_and(|failure| failure.kind == FailureKind::DeadlineExceeded);
        if let Some(sealed_at) = sealed_at.filter(|_| outcome.is_ok() || timed_out) {
            self.hold_back.observe(now.since(sealed_at));
        }
        *state = match outcome {
            Ok(output) => Parity::Output(output),
            Err(failure) if needed && !retried && failure.kind.is_retryable() && self.budget.spend() => {
                let expires = now + self.config.coded_timeout;
                match core.dispatch_coded((id, row), Arc::clone(&input), expires, others) {
                    Some(job) => Parity::InFlight { job, input, retried: true },
                    None => Parity::Dead,
                }
            }
            Err(_) => Parity::Dead,
        };
        self.advance(core, id);
    }

    fn on_reconstructed(&mut self, core: &mut Core<I, O>, query: QueryId, output: Option<Arc<O>>) {
        let waiting = core.is_waiting(query);
        let room = !core.is_congested(self.config.shed_above);
        let Some((id, group, slot)) = self.member(query) else { return };
        let (busy, audited) = (group.jobs(), group.audited == Some(slot));
        let Some(member) = group.members.get_mut(slot) else { return };
        member.reconstructing = false;
        match output {
            Some(output) => {
                if audited && room && !member.plain {
                    core.dispatch(query, SmallVec::new());
                }
                let truth_comes = core.query(query).is_some_and(|query| !query.jobs.is_empty());
                member.status = if truth_comes { Status::AwaitingTruth } else { Status::Done };
                member.reconstruction = Some(output).filter(|_| truth_comes);
                member.reconstructed = true;
                for _ in group.won..group.used {
                    core.count(id.class(), Fate::Won);
                }
                group.won = group.used.max(group.won);
            }
            None if waiting => {
                member.refused = true;
                send_plainly(core, member, &busy);
            }
            None => {}
        }
        self.advance(core, id);
    }

    fn view_groups(&self, groups: &mut Vec<GroupView>, limit: usize) {
        let room = limit.saturating_sub(groups.len());
        groups.extend(self.groups.iter().take(room).map(|(id, group)| group.view(*id, self.config.k)));
    }

    fn set_hold_back(&mut self, hold_back: Option<HoldBackOverride>) {
        self.hold_back.set_override(hold_back);
    }

    fn view_budget(&self, _: ClassId) -> Option<BudgetView> {
        Some(self.budget.view())
    }

    fn report(&self, core: &mut Core<I, O>) {
        core.stats.groups_tracked += self.groups.len() as u64;
        self.hold_back.report(&mut core.stats);
    }
}
