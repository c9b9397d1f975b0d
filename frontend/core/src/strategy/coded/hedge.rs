//! A hedge for what coding cannot help (`coded_hedged`): a query that is late, and that its group
//! cannot recover yet, gets a second copy at a distinct instance, within a budget of its own.
//!
//! Coding covers the usual single straggler for 1/k of the work; hedging covers groups that are not
//! full, lost parity queries, two stragglers in one group, and clients that take no approximation.
//! Not in ParM; the hedge is that of *The Tail at Scale* (CACM 2013).

use super::Coded;
use crate::strategy::hedge::LEAST_DELAY;
use crate::{Core, QueryId};

impl<I, O> Coded<I, O> {
    /// Has a query that cannot be reconstructed watched all the same: it can still be hedged.
    pub(super) fn watch_for_hedge(&self, core: &mut Core<I, O>, id: QueryId) {
        let unwatched = core.query(id).filter(|query| query.late_timer.is_none());
        if let Some(at) = unwatched.map(|query| self.hold_back.late_at(query.arrived)) {
            core.set_late_timer(id, at);
        }
    }

    /// Sends a copy of a query that is late and not being reconstructed.
    pub(super) fn hedge(&mut self, core: &mut Core<I, O>, id: QueryId) {
        // A copy of a query that is lost, or still waits for its first slot, would not help.
        let has_requests = core.query(id).is_some_and(|query| !query.jobs.is_empty());
        let of_use = has_requests && !core.is_own_queued(id) && !self.is_reconstructing(id);
        let delay = self.hold_back.delay().max(LEAST_DELAY);
        let Some(allowance) = self.hedges.as_mut() else { return };
        if of_use {
            allowance.late_copy(core, id, delay);
        }
        if has_requests && core.query(id).is_none_or(|query| query.copies == 0) {
            core.set_late_timer(id, core.now() + delay);
        }
    }

    fn is_reconstructing(&self, query: QueryId) -> bool {
        self.membership
            .get(&query)
            .and_then(|(id, slot)| self.groups.get(id)?.members.get(*slot))
            .is_some_and(|member| member.reconstructing)
    }
}
