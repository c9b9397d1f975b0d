//! Ends of attempts, queries and parity queries.

use std::sync::Arc;

use super::Engine;
use crate::query::Purpose;
use crate::stats::Fate;
use crate::{
    Answer, AttemptResult, Failure, FailureKind, InstanceId, JobId, Pool, PoolId, QueryId, Time,
    Verdict,
};

impl<I, O> Engine<I, O> {
    pub(super) fn attempt_ended(
        &mut self,
        query: QueryId,
        outcome: AttemptResult<O>,
        is_copy: bool,
    ) {
        match outcome {
            Ok(output) => {
                let output = Arc::new(output);
                let wins = self.core.is_waiting(query);
                if wins {
                    let answer = if is_copy { Answer::Hedged } else { Answer::Exact };
                    self.core.answer(query, answer(Arc::clone(&output)));
                }
                self.core.truth_came(query);
                if is_copy {
                    self.core.count(query.class(), if wins { Fate::Won } else { Fate::Wasted });
                }
                self.strategies.of_mut(query.class()).on_exact(&mut self.core, query, &output);
                if is_copy {
                    self.core.suspect_overtaken(query);
                }
                // A request that took long and was overtaken says something about its instance.
                self.core.forget(query, is_copy);
            }
            Err(failure) => self.attempt_failed(query, failure),
        }
    }

    pub(super) fn attempt_failed(&mut self, id: QueryId, failure: Failure) {
        let Some(query) = self.core.query(id) else { return };
        let (waiting, in_flight) = (query.is_waiting(), !query.jobs.is_empty());
        if in_flight {
            return; // another attempt is under way, and may still do it
        }
        // A prediction for others is not asked for anew once its own client's time is over.
        let in_time = self.core.now < query.deadline;
        let wanted = waiting || in_time && self.keep_until(id).is_some();
        if wanted && self.core.may_retry(id, failure.kind) && self.core.dispatch_again(id) {
            return;
        }
        if !waiting {
            self.core.forget(id, false);
            self.strategies.of_mut(id.class()).on_closed(&mut self.core, id);
            return;
        }
        self.core.mark_lost(id, failure);
        self.fail_if_hopeless(id);
    }

    /// Ends a query whose request was taken out of the queue, unless it has another one.
    pub(super) fn shed(&mut self, id: QueryId) {
        let failure = Failure::new(FailureKind::Shed, "shed from the queue");
        let query = self.core.query(id);
        if query.is_some_and(|query| query.is_waiting() && query.jobs.is_empty()) {
            self.core.answer(id, Answer::Failed(failure));
            self.close(id);
        } else {
            self.attempt_failed(id, failure);
        }
    }

    pub(super) fn try_elsewhere(&mut self, id: QueryId, down: InstanceId) {
        let has_slot = self.core.pool(down.pool).is_some_and(Pool::has_free_slot);
        if has_slot && self.core.may_retry(id, FailureKind::Unreachable) {
            self.core.dispatch_again(id);
        }
    }

    /// Answers a lost query with its failure unless the strategy can still do better.
    pub(super) fn fail_if_hopeless(&mut self, id: QueryId) {
        let Some(failure) = self.core.lost(id) else { return };
        if self.strategies.of_mut(id.class()).on_lost(&mut self.core, id) == Verdict::Fail
            && self.core.is_waiting(id)
        {
            self.core.answer(id, Answer::Failed(failure));
            self.close(id);
        } else {
            self.settle(id);
        }
    }

    pub(super) fn deadline(&mut self, id: QueryId) {
        let Some(query) = self.core.query(id).filter(|query| query.is_waiting()) else { return };
        let deployed = self.core.pool(PoolId::DEPLOYED);
        let (kind, reason) = match deployed.is_some_and(|pool| !pool.is_any_up()) {
            true => (FailureKind::Unreachable, "no instance of the deployed model is up"),
            false => (FailureKind::DeadlineExceeded, "no prediction arrived in time"),
        };
        let mut failure = query.lost.clone().unwrap_or_else(|| Failure::new(kind, reason));
        failure.at = Some(self.core.now);
        self.core.answer(id, Answer::Failed(failure));
        if self.keep_until(id).is_some() {
            self.close(id);
        } else {
            // A request that outlives its query's deadline says something about its instance.
            self.core.forget(id, true);
            self.strategies.of_mut(id.class()).on_closed(&mut self.core, id);
        }
    }

    /// A query was closed without its prediction.
    pub(super) fn close(&mut self, query: QueryId) {
        self.strategies.of_mut(query.class()).on_closed(&mut self.core, query);
        self.settle(query);
    }

    /// Withdraws the rest of an answered query, unless the strategy wants it. No-op while it waits.
    pub(super) fn settle(&mut self, query: QueryId) {
        if self.core.is_waiting(query) {
            return;
        }
        self.core.settle(query, self.keep_until(query));
    }

    fn keep_until(&self, query: QueryId) -> Option<Time> {
        self.strategies.of(query.class()).keep_until(&self.core, query)
    }

    pub(super) fn job_expired(&mut self, job: JobId) {
        let Some(Purpose::Parity(group, row)) = self.core.job_purpose(job) else { return };
        if self.core.withdraw_job(job, true).is_some_and(|job| job.instance.is_some()) {
            self.core.count(group.class(), Fate::Failed);
        }
        let reason = "the parity query took too long";
        let failure = Err(Failure::new(FailureKind::DeadlineExceeded, reason));
        self.strategies.of_mut(group.class()).on_parity(&mut self.core, group, row, job, failure);
    }
}
