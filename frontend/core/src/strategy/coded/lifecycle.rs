//! A group's life: filling, sealing, encoding, and what follows from each change: reconstructions,
//! failures, its end.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::group::{Group, Member, Status};
use super::key::Answered;
use super::{Coded, CodedConfig};
use crate::pool::Pool;
use crate::stats::Fate;
use crate::strategy::parity::Parity;
use crate::timers::Timer;
use crate::{
    Action, ClassId, Comparison, Core, Failure, GroupId, GroupKey, GroupView, QueryId, Row, Slot,
};

/// The reason for which a parity query is sent.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sent<'a> {
    First,
    /// The request before it takes too long.
    InPlaceOfOverdue,
    /// The request before it failed.
    After(&'a Failure),
}

/// Returns true if no query in an open group waits.
pub(super) fn abandoned<I, O>(
    groups: &FxHashMap<GroupId, Group<I, O>>,
) -> impl Fn(GroupId) -> bool {
    |id| groups.get(&id).is_none_or(|group| !group.is_any_waiting())
}

impl<I, O> Coded<I, O> {
    /// The group of this key that takes members, a fresh one if need be.
    pub(super) fn open_group(
        &mut self,
        core: &mut Core<I, O>,
        class: ClassId,
        key: GroupKey,
    ) -> Option<GroupId> {
        let mut gone = Vec::new();
        let state = self.keys.get_or_insert(core.now(), key, abandoned(&self.groups), &mut gone)?;
        if let Some(open) = state.open {
            return Some(open);
        }
        let id = GroupId::new(core.fresh_id(), class);
        state.open = Some(id);
        self.drop_open_groups(core, gone);
        self.groups.insert(id, Group::open(key, &self.config, core.now()));
        Some(id)
    }

    /// Drops open groups that made room for others. Their waiting queries go on without a group.
    pub(super) fn drop_open_groups(&mut self, core: &mut Core<I, O>, gone: Vec<GroupId>) {
        for id in gone {
            let Some(group) = self.groups.remove(&id) else { continue };
            core.timers.cancel(group.timer, Timer::Flush(id));
            for query in group.members.iter().filter_map(|member| member.query) {
                self.membership.remove(&query);
            }
        }
    }

    /// Completes an open group and seals it: with recently answered queries, or with slots with its
    /// own first one again. False when there are too few.
    pub(super) fn complete_with_fillers(&mut self, core: &mut Core<I, O>, id: GroupId) -> bool {
        let Some(group) = self.groups.get_mut(&id).filter(|group| !group.sealed) else {
            return false;
        };
        let wanted = self.config.k - group.members.len();
        let needs_siblings = self.config.decoding.needs_siblings();
        if let Some(first) = group.members.first().filter(|_| !needs_siblings) {
            // A slot's output does not depend on what is in the others.
            let input = Arc::clone(&first.input);
            let repeat = || Member::filler(Arc::clone(&input), None);
            group.members.extend(std::iter::repeat_with(repeat).take(wanted));
            self.seal(core, id);
            return true;
        }
        let Some(state) = self.keys.get(group.key) else { return false };
        let is_member = |query| group.members.iter().any(|member| member.query == Some(query));
        let filler = |answered: &Answered<I, O>| {
            Member::filler(Arc::clone(&answered.input), Some(Arc::clone(&answered.prediction)))
        };
        let others = state.recent.iter().filter(|answered| !is_member(answered.query));
        let fillers: Vec<Member<I, O>> = others.take(wanted).map(filler).collect();
        if fillers.len() < wanted {
            return false;
        }
        group.members.extend(fillers);
        self.seal(core, id);
        true
    }

    /// The group has k members: encode it, now or when that is due.
    pub(super) fn seal(&mut self, core: &mut Core<I, O>, id: GroupId) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        group.sealed = true;
        self.sealed += 1;
        group.audit =
            self.config.audit_every > 0 && self.sealed.is_multiple_of(self.config.audit_every);
        core.timers.cancel(group.timer.take(), Timer::Flush(id));
        if let Some(state) = self.keys.get_mut(group.key) {
            state.open = None;
        }
        let deferred = group.first_late_at().filter(|_| !group.audit);
        match deferred.and_then(|late_at| self.timing.due(core.now(), late_at)) {
            Some(due) => {
                group.timer = Some(due);
                core.timers.set(due, Timer::Flush(id));
            }
            None => self.encode(core, id),
        }
        self.advance(core, id);
    }

    /// Has the parity queries of a sealed group computed, those that were not yet.
    pub(super) fn encode(&mut self, core: &mut Core<I, O>, id: GroupId) {
        let Some(group) = self.groups.get_mut(&id).filter(|group| group.is_deferred()) else {
            return;
        };
        core.timers.cancel(group.timer.take(), Timer::Flush(id));
        let congested = core.is_congested(self.config.shed_above);
        let mut encoded = false;
        let CodedConfig { k, r, decoding, .. } = self.config;
        let own = group.members.iter().filter(|member| member.query.is_some()).count();
        // Each parity output of a slot code answers all: a group with fillers has its share, of
        // rows with a free instance, in turn.
        let wanted = if decoding.needs_siblings() { r } else { (own * r).div_ceil(k) };
        let is_free =
            |row| core.pool(self.config.parity_pool(row)).is_some_and(Pool::has_free_slot);
        let turn = |row: Row| (self.sealed + u64::from(row.0)) % r as u64;
        let mut chosen: SmallVec<[Row; 4]> = (0..r).map(|row| Row(row as u8)).collect();
        chosen.sort_by_key(|&row| (!is_free(row), turn(row)));
        for (row_state, row) in group.rows.iter_mut().zip((0u8..).map(Row)) {
            if !chosen.iter().take(wanted).any(|&one| one == row) {
                *row_state = Parity::Dead;
                continue;
            }
            let pool = self.config.parity_pool(row);
            let servable = core.pool(pool).is_some_and(|pool| pool.is_any_up() && !pool.is_full());
            if !congested && servable && self.budget.spend() {
                let inputs = group.members.iter().map(|member| Arc::clone(&member.input)).collect();
                core.push(Action::Encode { group: id, row, inputs });
                *row_state = Parity::Encoding;
                encoded = true;
            } else {
                core.count(id.class(), Fate::Shed);
                *row_state = Parity::Dead;
            }
        }
        core.stats.groups_encoded += u64::from(encoded);
        let has_fillers = group.members.iter().any(|member| member.query.is_none());
        core.stats.groups_completed_with_fillers += u64::from(encoded && has_fillers);
    }

    /// Takes a member that will never have a prediction out of an open group, so it takes no slot.
    pub(super) fn leave_open_group(&mut self, query: QueryId, id: GroupId, slot: usize) {
        self.membership.remove(&query);
        let Some(group) = self.groups.get_mut(&id) else { return };
        group.members.remove(slot);
        for (slot, member) in group.members.iter().enumerate().skip(slot) {
            if let Some(query) = member.query {
                self.membership.insert(query, (id, slot));
            }
        }
    }

    /// Has open groups let go of answered queries that are no longer kept to complete groups with.
    pub(super) fn let_go(&mut self, answered: &[QueryId]) {
        for &query in answered {
            if let Some((id, slot, group)) = self.group_of(query)
                && !group.sealed
            {
                self.leave_open_group(query, id, slot);
            }
        }
    }

    pub(super) fn arm_flush(
        core: &mut Core<I, O>,
        id: GroupId,
        group: &mut Group<I, O>,
        after: Duration,
    ) {
        if group.timer.is_none() {
            let at = core.now() + after;
            group.timer = Some(at);
            core.timers.set(at, Timer::Flush(id));
        }
    }

    /// After any change to a group: reconstruct who may be, fail who cannot, and drop it when done.
    pub(super) fn advance(&mut self, core: &mut Core<I, O>, id: GroupId) {
        let Some(group) = self.groups.get_mut(&id).filter(|group| group.sealed) else { return };
        if group.is_recoverable() {
            for slot in 0..group.members.len() {
                Self::try_reconstruct(core, group, slot);
            }
        }
        if !group.may_become_recoverable() {
            for member in &mut group.members {
                if let (Status::Waiting, true, Some(query)) =
                    (member.status, member.lost, member.query)
                {
                    member.status = Status::Done;
                    core.fail_lost(query);
                }
            }
        }
        self.finish_if_done(core, id);
    }

    /// Sends a parity query, and gives what its row is then; `None` if there is no room for it.
    pub(super) fn send_parity(
        core: &mut Core<I, O>,
        config: &CodedConfig,
        group: &Group<I, O>,
        (id, row): (GroupId, Row),
        input: Arc<I>,
        sent: Sent<'_>,
    ) -> Option<Parity<I, O>> {
        let (pool, expires) = (config.parity_pool(row), core.now() + config.parity_timeout);
        let (retried, after) = match sent {
            Sent::First => (false, None),
            Sent::InPlaceOfOverdue => (true, None),
            Sent::After(failure) => (true, Some(failure)),
        };
        let (own, apart_from) = (Arc::clone(&input), group.anti_affinity());
        let job = core.dispatch_parity((id, row), pool, own, expires, apart_from, after)?;
        Some(Parity::InFlight { job, input, retried })
    }

    /// Retries the group's parity queries once they are overdue and a query is late.
    pub(super) fn watch_parity(&mut self, core: &mut Core<I, O>, id: GroupId) {
        let Some(after) = self.timing.overdue_after() else { return };
        let Some(group) = self.groups.get_mut(&id) else { return };
        let may_be_resent =
            group.rows.iter().any(|row| matches!(row, Parity::InFlight { retried: false, .. }));
        if let (true, None, Some(late_at)) = (may_be_resent, group.timer, group.first_late_at()) {
            let at = late_at.max(core.now() + after);
            group.timer = Some(at);
            core.timers.set(at, Timer::Flush(id));
        }
    }

    /// Sends those parity queries once more, elsewhere, that are stragglers themselves.
    pub(super) fn resend_overdue(&mut self, core: &mut Core<I, O>, id: GroupId) {
        let Some(after) = self.timing.overdue_after() else { return };
        let Some(group) = self.groups.get_mut(&id) else { return };
        if !group.is_any_waiting() {
            return;
        }
        let mut is_early = false;
        for place in 0..group.rows.len() {
            if group.is_recoverable() {
                return;
            }
            let row = group.rows.get(place);
            let Some(Parity::InFlight { job, input, retried: false }) = row else { continue };
            let (job, input) = (*job, Arc::clone(input));
            if core.in_flight_for(job).is_none_or(|age| age < after) {
                is_early = true;
                continue;
            }
            if !self.budget.spend() {
                continue;
            }
            core.withdraw_job(job, true);
            core.count(id.class(), Fate::Wasted);
            let (row, sent) = (Row(u8::try_from(place).unwrap_or(u8::MAX)), Sent::InPlaceOfOverdue);
            let sent = Self::send_parity(core, &self.config, group, (id, row), input, sent);
            group.rows[place] = sent.unwrap_or(Parity::Dead);
        }
        if is_early {
            self.watch_parity(core, id);
        }
    }

    pub(super) fn try_reconstruct(core: &mut Core<I, O>, group: &mut Group<I, O>, slot: usize) {
        if !group.is_recoverable() {
            return;
        }
        let (predictions, parity) = (group.predictions(), group.parity_outputs());
        let member = group.members.get_mut(slot).filter(|member| member.may_be_reconstructed());
        let Some(member) = member else { return };
        let (Some(query), Ok(slot)) = (member.query, u8::try_from(slot)) else { return };
        member.reconstructing = true;
        core.push(Action::Reconstruct { query, slot: Slot(slot), predictions, parity });
    }

    /// Frees the unneeded state of a sealed group in which no query waits, and the group itself
    /// once nothing is pending.
    fn finish_if_done(&mut self, core: &mut Core<I, O>, id: GroupId) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        if group.is_any_waiting() {
            return;
        }
        for member in &mut group.members {
            if member.status == Status::Kept {
                member.status = Status::Done;
                if let Some(query) = member.query {
                    core.forget(query, false);
                }
            }
        }
        let audit_pending = group.audit && group.is_complete() && group.is_parity_pending();
        if !audit_pending {
            group.rows.iter_mut().for_each(|row| row.withdraw_queued(core));
        }
        let truth_pending =
            group.members.iter().any(|member| member.status == Status::AwaitingTruth);
        if truth_pending || audit_pending {
            return;
        }
        if let Some(group) = self.groups.remove(&id) {
            core.timers.cancel(group.timer, Timer::Flush(id));
            if group.won > 0 {
                let closed = Some(core.now());
                core.remember_decoded(GroupView { closed, ..group.view(id, self.config.k) });
            }
            core.stats.groups_spared += u64::from(group.is_deferred());
            self.close_books(core, id, &group);
        }
    }

    fn close_books(&mut self, core: &mut Core<I, O>, id: GroupId, group: &Group<I, O>) {
        for _ in group.won..group.outputs() {
            core.count(id.class(), Fate::Wasted);
        }
        for query in group.members.iter().filter_map(|member| member.query) {
            self.membership.remove(&query);
        }
        let predictions: Option<Vec<Arc<O>>> = group.predictions().into_iter().collect();
        let parity = group.parity_outputs();
        if let (true, 0, Some(predictions)) = (group.audit, group.won, predictions)
            && parity.iter().any(Option::is_some)
        {
            let slot = u8::try_from(id.draw(self.config.k)).unwrap_or_default();
            core.push(Action::Compare(Comparison::Audit {
                class: id.class(),
                slot: Slot(slot),
                predictions,
                parity,
            }));
        }
    }
}
