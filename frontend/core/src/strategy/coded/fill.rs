//! Filling, sealing and encoding of groups.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::Coded;
use super::group::{Group, Member};
use crate::stats::Fate;
use crate::strategy::parity::Parity;
use crate::timers::Timer;
use crate::{Action, ClassId, Core, GroupId, GroupKey, QueryId, Row};

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
        let state = self
            .keys
            .get_or_insert(core.now(), key, abandoned(&self.groups), &mut gone)?;
        if let Some(open) = state.open {
            return Some(open);
        }
        let id = GroupId::new(core.fresh_id(), class);
        state.open = Some(id);
        self.drop_open_groups(core, gone);
        self.groups
            .insert(id, Group::open(key, self.config.r, core.now()));
        Some(id)
    }

    /// Drops open groups that have made room for others. Queries of theirs that wait go on
    /// without a group.
    pub(super) fn drop_open_groups(&mut self, core: &mut Core<I, O>, gone: Vec<GroupId>) {
        for id in gone {
            let Some(group) = self.groups.remove(&id) else {
                continue;
            };
            if let Some(at) = group.timer {
                core.timers.cancel(at, Timer::Flush(id));
            }
            for query in group.members.iter().filter_map(|member| member.query) {
                self.membership.remove(&query);
            }
        }
    }

    /// Completes an open group with recently answered queries and seals it. False when there
    /// are too few.
    pub(super) fn complete_with_fillers(&mut self, core: &mut Core<I, O>, id: GroupId) -> bool {
        let Some(group) = self.groups.get_mut(&id).filter(|group| !group.sealed) else {
            return false;
        };
        let wanted = self.config.k - group.members.len();
        let Some(state) = self.keys.get(group.key) else {
            return false;
        };
        let is_member = |query| {
            group
                .members
                .iter()
                .any(|member| member.query == Some(query))
        };
        let fillers: Vec<Member<I, O>> = state
            .recent
            .iter()
            .filter(|answered| !is_member(answered.query))
            .take(wanted)
            .map(|answered| {
                Member::filler(
                    Arc::clone(&answered.input),
                    Arc::clone(&answered.prediction),
                )
            })
            .collect();
        if fillers.len() < wanted {
            return false;
        }
        group.members.extend(fillers);
        self.seal(core, id);
        true
    }

    /// The group has k members: encode it, now or when that is due.
    pub(super) fn seal(&mut self, core: &mut Core<I, O>, id: GroupId) {
        let Some(group) = self.groups.get_mut(&id) else {
            return;
        };
        group.sealed = true;
        self.sealed += 1;
        group.audit =
            self.config.audit_every > 0 && self.sealed.is_multiple_of(self.config.audit_every);
        if let Some(at) = group.timer.take() {
            core.timers.cancel(at, Timer::Flush(id));
        }
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
        if let Some(at) = group.timer.take() {
            core.timers.cancel(at, Timer::Flush(id));
        }
        let congested = core.is_congested(self.config.shed_above);
        let mut encoded = false;
        for (row_state, row) in group.rows.iter_mut().zip((0u8..).map(Row)) {
            let pool = self.config.parity_pool(row);
            let servable = core
                .pool(pool)
                .is_some_and(|pool| pool.is_any_up() && !pool.is_full());
            if !congested && servable && self.budget.spend() {
                let inputs = group
                    .members
                    .iter()
                    .map(|member| Arc::clone(&member.input))
                    .collect();
                core.push(Action::Encode {
                    group: id,
                    row,
                    inputs,
                });
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

    /// Takes a member that will never have a prediction out of an open group, so that it
    /// takes no slot.
    pub(super) fn leave_open_group(&mut self, query: QueryId, id: GroupId, slot: usize) {
        self.membership.remove(&query);
        let Some(group) = self.groups.get_mut(&id) else {
            return;
        };
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
}
