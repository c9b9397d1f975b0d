//! Requests to instances: sending, queueing, and the answers that they lead to.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::Core;
use crate::pool::{Aside, Avoid};
use crate::query::{AntiAffinity, Job, Phase, Purpose, Query, UnprovenFailure};
use crate::stats::Fate;
use crate::timers::Timer;
use crate::{
    Action, Answer, Failure, FailureKind, GroupId, InstanceId, JobId, Pool, PoolId, QueryId, Row,
    Submitted, Time,
};

impl<I, O> Core<I, O> {
    /// Sends an attempt of `id` to the deployed model. False when the queue is full.
    pub(crate) fn dispatch(&mut self, id: QueryId, avoid: Avoid) -> bool {
        let Some(query) = self.queries.get_mut(&id) else { return false };
        query.attempts += 1;
        let input = Arc::clone(&query.input);
        let job = self.submit(Purpose::Query(id), PoolId::DEPLOYED, input, avoid);
        if let (Some(job), Some(query)) = (job, self.queries.get_mut(&id)) {
            query.jobs.push(job);
        }
        job.is_some()
    }

    /// Sends another attempt, if possible not where one failed.
    pub(crate) fn dispatch_again(&mut self, id: QueryId) -> bool {
        self.dispatch(id, self.query(id).map(|query| query.tried.clone()).unwrap_or_default())
    }

    /// Sends a redundant copy of `id` to an instance of the deployed model that has no other
    /// request of it. False when there is none, and when its own request still waits for a slot: a
    /// copy would wait behind it.
    pub(crate) fn dispatch_copy(&mut self, id: QueryId) -> bool {
        let Some(query) = self.queries.get(&id).filter(|query| query.is_waiting()) else {
            return false;
        };
        if query.jobs.is_empty() || self.is_own_queued(id) {
            return false;
        }
        let input = Arc::clone(&query.input);
        let taken = self.instances_of(id).collect();
        let Some(job) = self.submit(Purpose::Copy(id), PoolId::DEPLOYED, input, taken) else {
            return false;
        };
        if let Some(query) = self.queries.get_mut(&id) {
            query.copies += 1;
            query.jobs.push(job);
        }
        true
    }

    /// Returns true if the query's own request still waits for a slot.
    pub(crate) fn is_own_queued(&self, id: QueryId) -> bool {
        self.jobs_of(id)
            .any(|job| job.instance.is_none() && matches!(job.purpose, Purpose::Query(_)))
    }

    /// Asks the backup model in `pool` for its prediction, if possible not where the request before
    /// it failed. False when it cannot take the query.
    pub(crate) fn dispatch_backup(
        &mut self,
        id: QueryId,
        pool: PoolId,
        after: Option<&Failure>,
    ) -> bool {
        let may_ask = |query: &&Query<I>| query.is_waiting() && query.backup.is_none();
        let Some(query) = self.query(id).filter(may_ask) else { return false };
        if !self.pool(pool).is_some_and(Pool::is_any_up) {
            return false;
        }
        let input = Arc::clone(&query.input);
        let avoid = after.and_then(|failure| failure.instance).into_iter().collect();
        let job = self.submit(Purpose::Backup(id), pool, input, avoid);
        if let Some(query) = self.queries.get_mut(&id) {
            query.backup = job;
        }
        if let Some(job) = job.and_then(|job| self.jobs.get_mut(&job)) {
            job.unproven = after.and_then(UnprovenFailure::of);
        }
        job.is_some()
    }

    /// Sends a parity query to `pool`, if possible not where the request before it failed; it must
    /// end by `expires`. `None` when the pool's queue is full.
    ///
    /// In the deployed model's pool it goes to no instance that serves one of `apart_from`: one
    /// that keeps a member of the group waiting would keep the parity query waiting, too. It waits
    /// for another one, in a line that holds no query up.
    pub(crate) fn dispatch_parity(
        &mut self,
        (group, row): (GroupId, Row),
        pool: PoolId,
        input: Arc<I>,
        expires: Time,
        apart_from: AntiAffinity,
        after: Option<&Failure>,
    ) -> Option<JobId> {
        let (queries, requests) = (&apart_from.queries, &apart_from.requests);
        let members = queries.iter().flat_map(|query| self.instances_of(*query));
        let rows = requests.iter().filter_map(|job| self.jobs.get(job)?.instance);
        let failed = after.and_then(|failure| failure.instance);
        let taken = members.chain(rows).chain(failed).collect();
        let id = self.submit(Purpose::Parity(group, row), pool, input, taken)?;
        // A queued parity query of the group knows only of the request that this one may replace.
        for other in &apart_from.requests {
            let other = self.jobs.get_mut(other);
            if let Some(apart_from) = other.and_then(|job| job.apart_from.as_mut()) {
                apart_from.requests.push(id);
            }
        }
        if let Some(job) = self.jobs.get_mut(&id) {
            job.apart_from = (pool == PoolId::DEPLOYED).then(|| Box::new(apart_from));
            job.timer = Some(expires);
            job.unproven = after.and_then(UnprovenFailure::of);
            self.timers.set(expires, Timer::Job(id));
        }
        Some(id)
    }

    /// `avoid` is a wish for a query, and a must for a request that is to be apart from others.
    fn submit(
        &mut self,
        purpose: Purpose,
        pool: PoolId,
        input: Arc<I>,
        avoid: Avoid,
    ) -> Option<JobId> {
        let id = JobId(self.fresh_id());
        let state = self.pools.get_mut(usize::from(pool.0))?;
        let submitted = match purpose {
            Purpose::Copy(_) => state.submit_copy(id, &avoid, Aside::Copy),
            _ if purpose.is_apart(pool) => state.submit_copy(id, &avoid, Aside::Parity),
            _ => state.submit(id, avoid),
        };
        let instance = match submitted {
            Submitted::Start(instance) => Some(instance),
            Submitted::Queued => None,
            Submitted::Full => return None,
        };
        let job = Job {
            purpose,
            pool,
            input,
            instance,
            sent: self.now,
            submitted: self.now,
            timer: None,
            unproven: None,
            apart_from: None,
        };
        self.jobs.insert(id, job);
        if let Some(instance) = instance {
            self.start(id, instance);
        }
        Some(id)
    }

    /// Takes a finished request off the books and starts the next one in its slot.
    pub(crate) fn finish_job(&mut self, id: JobId, failure: Option<FailureKind>) -> Option<Job<I>> {
        let job = self.jobs.remove(&id)?;
        self.timers.cancel(job.timer, Timer::Job(id));
        match job.purpose {
            Purpose::Query(query) | Purpose::Copy(query) => {
                if failure.is_none() {
                    self.withdraw_queued_copies(query);
                }
                if let Some(query) = self.queries.get_mut(&query) {
                    query.jobs.retain(|job| *job != id);
                    if let (Some(_), Some(instance)) = (failure, job.instance) {
                        query.tried.push(instance);
                    }
                }
            }
            Purpose::Backup(query) => {
                if let Some(query) = self.queries.get_mut(&query) {
                    query.backup = None;
                }
            }
            Purpose::Parity(..) => {}
        }
        if let Some(instance) = job.instance {
            if failure.is_some_and(FailureKind::suspects_instance) {
                self.suspect(instance);
            }
            if let (None, Purpose::Query(_), Some(limit)) =
                (failure, job.purpose, &mut self.queue_limit)
            {
                limit.finished(self.now, self.now.since(job.sent));
            }
            if let (None, Some(pool)) = (failure, self.pools.get_mut(usize::from(instance.pool.0)))
            {
                pool.took(instance, self.now.since(job.sent));
            }
            self.judge_by_end(&job, instance, failure);
            self.adapt_slots(instance, failure);
            self.release(instance);
        }
        Some(job)
    }

    fn adapt_slots(&mut self, instance: InstanceId, failure: Option<FailureKind>) {
        let (PoolId::DEPLOYED, Some(concurrency), Some(pool)) =
            (instance.pool, &mut self.concurrency, self.pools.first_mut())
        else {
            return;
        };
        // Queries that are refused would wait.
        let limit = self.queue_limit.as_ref();
        let is_refusing = limit.is_some_and(|limit| limit.is_overloaded(self.now));
        let queued = pool.queued() + usize::from(is_refusing);
        let slots = match failure {
            None => {
                let is_full = pool.in_flight(instance) >= pool.slots_per_instance();
                concurrency.answered(self.now, queued, is_full)
            }
            Some(FailureKind::InstanceBusy) => Some(concurrency.refused()),
            Some(_) => None,
        };
        if let Some(slots) = slots {
            pool.set_slots(slots);
        }
    }

    /// Takes queries out of the queue, the newest first, once overload shows.
    pub(crate) fn shed(&mut self) -> Vec<QueryId> {
        let queue = self.queue_limit.as_mut().zip(self.pools.first_mut());
        let jobs = queue.map(|(limit, pool)| pool.shed(limit.take_excess(pool.queued())));
        let end = |job| match self.finish_job(job, Some(FailureKind::Shed))?.purpose {
            Purpose::Query(query) => Some(query),
            _ => None,
        };
        jobs.unwrap_or_default().into_iter().filter_map(end).collect()
    }

    /// For how long the request has been at its instance; `None` if it is at none.
    pub(crate) fn in_flight_for(&self, id: JobId) -> Option<Duration> {
        self.jobs.get(&id).filter(|job| job.instance.is_some()).map(|job| self.now.since(job.sent))
    }

    /// Returns true if the request is still waiting for a slot.
    pub(crate) fn is_queued(&self, id: JobId) -> bool {
        self.jobs.get(&id).is_some_and(|job| job.instance.is_none())
    }

    pub(crate) fn job_purpose(&self, id: JobId) -> Option<Purpose> {
        self.jobs.get(&id).map(|job| job.purpose)
    }

    pub(crate) fn instances_of(&self, id: QueryId) -> impl Iterator<Item = InstanceId> {
        self.jobs_of(id).filter_map(|job| job.instance)
    }

    /// Its requests to the deployed model, queued ones included.
    pub(super) fn jobs_of(&self, id: QueryId) -> impl Iterator<Item = &Job<I>> {
        let ids = self.query(id).map(|query| query.jobs.as_slice()).unwrap_or_default().iter();
        ids.filter_map(|job| self.jobs.get(job))
    }

    /// Returns true if a failed attempt may be made again elsewhere, where there is room for it;
    /// takes from the retry budget if so.
    pub(crate) fn may_retry(&mut self, id: QueryId, failure: FailureKind) -> bool {
        let is_input_at_fault = self.is_input_at_fault(id);
        let Some(query) = self.queries.get(&id) else { return false };
        let possible = failure.is_retryable()
            && self.pool(PoolId::DEPLOYED).is_some_and(|pool| !pool.is_full())
            && query.attempts < self.max_attempts
            && !is_input_at_fault;
        let allowed = possible && self.spend_retry(id, failure);
        self.stats.retries += u64::from(allowed);
        allowed
    }

    /// Starts what waits in `pool` and has an instance to go to.
    pub(super) fn start_queued(&mut self, pool: PoolId) {
        loop {
            let (jobs, queries) = (&self.jobs, &self.queries);
            let may_copy_to = |job, instance| may_copy_to(jobs, queries, job, instance);
            let waiting = self.pools.get_mut(usize::from(pool.0));
            let next = waiting.and_then(|pool| pool.start_next(may_copy_to));
            let Some((job, instance)) = next else { return };
            self.start(job, instance);
        }
    }

    fn start(&mut self, id: JobId, instance: InstanceId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.instance = Some(instance);
        job.sent = self.now;
        let input = Arc::clone(&job.input);
        if let (Purpose::Query(query), Some(limit)) = (job.purpose, &mut self.queue_limit) {
            let deadline = self.queries.get(&query).map(|query| query.deadline);
            let left = deadline.map_or(Duration::ZERO, |deadline| deadline.since(self.now));
            limit.started(self.now, self.now.since(job.submitted), left);
        }
        if let Some(class) = job.purpose.redundant_for() {
            self.count(class, Fate::Issued);
        }
        self.push(Action::Send { job: id, instance, input });
    }

    /// Answers a waiting query. The one place where answers are made (CG-1).
    pub(crate) fn answer(&mut self, id: QueryId, answer: Answer<O>) {
        let Some(query) = self.queries.get_mut(&id).filter(|query| query.is_waiting()) else {
            self.stats.cg1_violations += 1;
            return;
        };
        query.phase = Phase::Answered;
        self.timers.cancel(query.deadline, Timer::Deadline(id));
        self.timers.cancel(query.late_timer.take(), Timer::Late(id));
        let (now, took) = (self.now, self.now.since(query.arrived));
        match &answer {
            Answer::Backup(_) | Answer::Reconstructed(_) => {
                self.latency.approximated(now, took);
                query.truth_awaited = true;
            }
            Answer::Failed(failure) if failure.kind != FailureKind::DeadlineExceeded => {}
            Answer::Exact(_) | Answer::Hedged(_) | Answer::Failed(_) => self.latency.own(now, took),
        }
        match &answer {
            Answer::Exact(_) => self.stats.exact += 1,
            Answer::Hedged(_) => self.stats.hedged += 1,
            Answer::Backup(_) => self.stats.backup += 1,
            Answer::Reconstructed(_) => self.stats.reconstructed += 1,
            Answer::Failed(failure) => {
                self.stats.failed += 1;
                self.stats.deadline_exceeded +=
                    u64::from(failure.kind == FailureKind::DeadlineExceeded);
            }
        }
        self.push(Action::Answer { query: id, answer });
    }
}

/// Returns true if a queued copy's query has no other request at `instance`, or a queued parity
/// query's group none there. False, too, once the query is forgotten.
fn may_copy_to<I>(
    jobs: &FxHashMap<JobId, Job<I>>,
    queries: &FxHashMap<QueryId, Query<I>>,
    copy: JobId,
    instance: InstanceId,
) -> bool {
    let is_there = |job: &JobId| jobs.get(job).is_some_and(|job| job.instance == Some(instance));
    let Some(job) = jobs.get(&copy) else { return false };
    let serves = |query: &Query<I>| query.jobs.iter().any(is_there);
    match job.purpose {
        Purpose::Copy(query) => queries.get(&query).is_some_and(|query| !serves(query)),
        Purpose::Parity(..) => job.apart_from.as_ref().is_none_or(|anti_affinity| {
            let mut members = anti_affinity.queries.iter().filter_map(|query| queries.get(query));
            !members.any(serves) && !anti_affinity.requests.iter().any(is_there)
        }),
        Purpose::Query(_) | Purpose::Backup(_) => false,
    }
}
