//! Withdrawal of requests that are not needed any more.

use smallvec::SmallVec;

use super::Core;
use crate::query::{Job, Purpose};
use crate::stats::Fate;
use crate::timers::Timer;
use crate::{Action, JobId, PoolId, QueryId};

type Jobs = SmallVec<[JobId; 4]>;

impl<I, O> Core<I, O> {
    /// Withdraws what is redundant of a closed query's requests, if one of its own is left.
    pub(super) fn withdraw_redundant(&mut self, id: QueryId) {
        let Some(query) = self.queries.get_mut(&id) else { return };
        let is_own = |job: &JobId| {
            self.jobs.get(job).is_some_and(|job| matches!(job.purpose, Purpose::Query(_)))
        };
        let mut unneeded: SmallVec<[JobId; 2]> = query.backup.take().into_iter().collect();
        if query.jobs.iter().any(is_own) {
            unneeded.extend(query.jobs.iter().copied().filter(|job| !is_own(job)));
            query.jobs.retain(|job| is_own(job));
        }
        self.withdraw_unneeded(unneeded, false);
    }

    /// Withdraws requests of a query that needs them no more.
    pub(super) fn withdraw_unneeded(
        &mut self,
        jobs: impl IntoIterator<Item = JobId>,
        suspect: bool,
    ) {
        let mut freed: SmallVec<[PoolId; 4]> = SmallVec::new();
        for job in jobs {
            let job = self.take_back(job, suspect);
            let Some(Job { purpose, instance: Some(instance), .. }) = job else { continue };
            if let Some(class) = purpose.redundant_for() {
                self.count(class, Fate::Wasted);
            }
            freed.push(instance.pool);
        }
        // Not before all are withdrawn: a slot that one frees is not for another one in line, and
        // what keeps away from one of them would not know of it any more.
        for pool in freed {
            self.start_queued(pool);
        }
    }

    /// A query's prediction is there: the slot that it frees is not for its own copies in line.
    pub(super) fn withdraw_queued_copies(&mut self, id: QueryId) {
        let Some(query) = self.queries.get_mut(&id).filter(|query| query.copies > 0) else {
            return;
        };
        let is_queued = |job: &JobId| self.jobs.get(job).is_some_and(|job| job.instance.is_none());
        let (queued, rest): (Jobs, Jobs) = query.jobs.drain(..).partition(is_queued);
        query.jobs.extend(rest);
        self.withdraw_unneeded(queued, false);
    }

    /// Withdraws a request that is queued or in flight. `suspect` as in [`forget`](Self::forget).
    pub(crate) fn withdraw_job(&mut self, id: JobId, suspect: bool) -> Option<Job<I>> {
        let job = self.take_back(id, suspect)?;
        if let Some(instance) = job.instance {
            self.start_queued(instance.pool);
        }
        Some(job)
    }

    /// Withdraws a request; what waits for the slot that it may have freed is still to be started.
    pub(super) fn take_back(&mut self, id: JobId, suspect: bool) -> Option<Job<I>> {
        let job = self.jobs.remove(&id)?;
        self.timers.cancel(job.timer, Timer::Job(id));
        match job.instance {
            None => {
                if let Some(pool) = self.pools.get_mut(usize::from(job.pool.0)) {
                    if job.purpose.is_apart(job.pool) {
                        pool.withdraw_copy(id);
                    } else {
                        pool.withdraw(id);
                    }
                }
            }
            Some(instance) => {
                self.push(Action::Abort { job: id });
                if suspect && self.now.since(job.sent) >= self.suspect_after {
                    self.suspect(instance);
                }
                self.free_slot(instance);
            }
        }
        Some(job)
    }
}
