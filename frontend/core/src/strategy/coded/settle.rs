//! Consequences of a change to a group: reconstructions, failures, and the group's end.

use std::sync::Arc;

use super::group::{Group, Status};
use super::{Coded, CodedConfig};
use crate::stats::Fate;
use crate::strategy::parity::Parity;
use crate::timers::Timer;
use crate::{Action, Comparison, Core, Failure, GroupId, GroupView, Row, Slot};

/// The reason for which a parity query is sent.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sent<'a> {
    First,
    /// The request before it takes too long.
    InPlaceOfOverdue,
    /// The request before it failed.
    After(&'a Failure),
}

impl<I, O> Coded<I, O> {
    /// After any change to a group: reconstruct who may be, fail who cannot, and drop the group
    /// when it is done.
    pub(super) fn advance(&mut self, core: &mut Core<I, O>, id: GroupId) {
        let Some(group) = self.groups.get_mut(&id).filter(|group| group.sealed) else {
            return;
        };
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
        let job = core.dispatch_parity(
            (id, row),
            pool,
            Arc::clone(&input),
            expires,
            group.anti_affinity(),
            after,
        )?;
        Some(Parity::InFlight {
            job,
            input,
            retried,
        })
    }

    /// Retries the group's parity queries once they are overdue and a query is late.
    pub(super) fn watch_parity(&mut self, core: &mut Core<I, O>, id: GroupId) {
        let (Some(after), Some(group)) = (self.timing.overdue_after(), self.groups.get_mut(&id))
        else {
            return;
        };
        let may_be_resent = group
            .rows
            .iter()
            .any(|row| matches!(row, Parity::InFlight { retried: false, .. }));
        if let (true, None, Some(late_at)) = (may_be_resent, group.timer, group.first_late_at()) {
            let at = late_at.max(core.now() + after);
            group.timer = Some(at);
            core.timers.set(at, Timer::Flush(id));
        }
    }

    /// Sends those parity queries once more, elsewhere, that are stragglers themselves.
    pub(super) fn resend_overdue(&mut self, core: &mut Core<I, O>, id: GroupId) {
        let (Some(after), Some(group)) = (self.timing.overdue_after(), self.groups.get_mut(&id))
        else {
            return;
        };
        if !group.is_any_waiting() {
            return;
        }
        let mut is_early = false;
        for place in 0..group.rows.len() {
            if group.is_recoverable() {
                return;
            }
            let Some(Parity::InFlight {
                job,
                input,
                retried: false,
            }) = group.rows.get(place)
            else {
                continue;
            };
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
            let row = Row(u8::try_from(place).unwrap_or(u8::MAX));
            let sent = Self::send_parity(
                core,
                &self.config,
                group,
                (id, row),
                input,
                Sent::InPlaceOfOverdue,
            );
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
        let Some(member) = group
            .members
            .get_mut(slot)
            .filter(|member| member.may_be_reconstructed())
        else {
            return;
        };
        let (Some(query), Ok(slot)) = (member.query, u8::try_from(slot)) else {
            return;
        };
        member.reconstructing = true;
        core.push(Action::Reconstruct {
            query,
            slot: Slot(slot),
            predictions,
            parity,
        });
    }

    /// Frees the unneeded state of a sealed group in which no query waits, and the group itself
    /// once nothing is pending.
    fn finish_if_done(&mut self, core: &mut Core<I, O>, id: GroupId) {
        let Some(group) = self.groups.get_mut(&id) else {
            return;
        };
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
            group
                .rows
                .iter_mut()
                .for_each(|row| row.withdraw_queued(core));
        }
        let truth_pending = group
            .members
            .iter()
            .any(|member| member.status == Status::AwaitingTruth);
        if truth_pending || audit_pending {
            return;
        }
        if let Some(group) = self.groups.remove(&id) {
            if let Some(at) = group.timer {
                core.timers.cancel(at, Timer::Flush(id));
            }
            if group.won > 0 {
                let closed = Some(core.now());
                core.remember_decoded(GroupView {
                    closed,
                    ..group.view(id, self.config.k)
                });
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
