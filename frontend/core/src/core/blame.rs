//! Blame for failures that an instance or its input may have caused: by evidence.
//!
//! An input can make any instance fail: an FP32 model overflows at 3e38. So an [`UnprovenFailure`]
//! is held against an instance only once the same input is answered well: then the instance is at
//! fault. An input that fails in the same way at two instances is at fault itself, if one of them
//! lately answered others well. The error goes to its client, no instance is blamed, and it is not
//! tried again. A failure that stays without such evidence counts for nothing, since one client can
//! cause any number of them. Retries are the evidence. Half of their burst is reserved for those
//! that [`Outliers::may_confirm`] allows now and then, so poison cannot spend what finds an
//! instance that answers nothing well. Where the configuration allows no retries there is no
//! evidence: then [`Outliers::unproven`] judges an instance that has answered nothing well for
//! long.
//!
//! [`Outliers::may_confirm`]: crate::outliers::Outliers::may_confirm
//! [`Outliers::unproven`]: crate::outliers::Outliers::unproven

use super::Core;
use crate::query::{Job, Purpose, UnprovenFailure};
use crate::timers::Timer;
use crate::{FailureKind, InstanceId, PoolId, QueryId, Time};

impl<I, O> Core<I, O> {
    /// Returns whether the query's input failed in the same way at two instances, one of which
    /// answers others well.
    pub(crate) fn is_input_at_fault(&self, id: QueryId) -> bool {
        let Some(query) = self.query(id) else { return false };
        let failures = &query.unproven;
        let is_credible = |failure: &&UnprovenFailure| {
            self.outliers.as_ref().is_none_or(|outliers| outliers.is_credible(failure.instance))
        };
        failures.iter().filter(is_credible).any(|failure| {
            failures
                .iter()
                .any(|other| other.kind == failure.kind && other.instance != failure.instance)
        })
    }

    /// Judges instances by the end of a request at `instance`.
    pub(super) fn judge_by_end(
        &mut self,
        job: &Job<I>,
        instance: InstanceId,
        failure: Option<FailureKind>,
    ) {
        match failure {
            None => {
                self.judge(instance, None);
                self.blame_proven(job);
            }
            Some(kind) => match UnprovenFailure::at(instance, kind) {
                Some(unproven) => self.note_unproven(job, unproven),
                None => self.judge(instance, failure),
            },
        }
    }

    /// Keeps a failure with its query. That of a parity query, or of a backup model's, goes with
    /// its failure to the strategy, which may send it again.
    fn note_unproven(&mut self, job: &Job<I>, unproven: UnprovenFailure) {
        if let Purpose::Query(query) | Purpose::Copy(query) = job.purpose
            && let Some(query) = self.queries.get_mut(&query)
        {
            query.unproven.push(unproven);
        }
        let has_retries = self.max_attempts > 1 && self.retry_budget.view().share > 0.0;
        let UnprovenFailure { instance, .. } = unproven;
        let (now, Some(outliers)) = (self.now, &mut self.outliers) else { return };
        let until = outliers.unproven(now, instance).filter(|_| !has_retries);
        self.eject(instance, until);
    }

    /// The input was answered well: the instances that failed on it are at fault.
    fn blame_proven(&mut self, job: &Job<I>) {
        let mut proven = smallvec::SmallVec::<[UnprovenFailure; 2]>::new();
        proven.extend(job.unproven);
        if let Purpose::Query(query) | Purpose::Copy(query) = job.purpose
            && let Some(query) = self.queries.get_mut(&query)
        {
            proven.append(&mut query.unproven);
        }
        for UnprovenFailure { instance, kind } in proven {
            self.judge(instance, Some(kind));
        }
    }

    pub(super) fn spend_retry(&mut self, id: QueryId, failure: FailureKind) -> bool {
        if !failure.input_may_cause() {
            return self.retry_budget.spend();
        }
        self.retry_budget.can_spend_beside(0.5) && self.retry_budget.spend()
            || self.retry_budget.can_spend() && self.may_confirm(id) && self.retry_budget.spend()
    }

    /// Returns whether a reserved retry may show if the query's input or its instance is at fault.
    fn may_confirm(&mut self, id: QueryId) -> bool {
        let Some(query) = self.queries.get(&id) else { return false };
        let Some(&UnprovenFailure { instance, .. }) = query.unproven.last() else { return false };
        let domain = query.key.domain;
        let has_another =
            self.pool(PoolId::DEPLOYED).is_some_and(|pool| pool.has_other_up(instance));
        let now = self.now;
        let outliers = self.outliers.as_mut().filter(|_| has_another);
        outliers.is_some_and(|outliers| outliers.may_confirm(now, instance, domain))
    }

    /// Ejects an instance whose answers are bad, if its pool can do without it.
    fn judge(&mut self, instance: InstanceId, failure: Option<FailureKind>) {
        let (now, Some(outliers)) = (self.now, &mut self.outliers) else { return };
        let until = outliers.ended(now, instance, failure);
        self.eject(instance, until);
    }

    fn eject(&mut self, instance: InstanceId, until: Option<Time>) {
        let (Some(until), Some(outliers)) = (until, &mut self.outliers) else { return };
        let Some(pool) = self.pools.get_mut(usize::from(instance.pool.0)) else { return };
        let may_go = !pool.is_ejected(instance)
            && pool.ejected() < outliers.most_ejected(pool.len())
            && pool.up() > 1;
        if may_go && pool.set_ejected(instance, true) {
            outliers.ejected(instance);
            self.stats.ejections += 1;
            self.timers.set(until, Timer::Readmit(instance));
        }
    }
}
