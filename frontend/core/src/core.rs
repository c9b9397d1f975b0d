//! What all strategies share: the query table, the pools, retries, deadlines. It alone answers queries, so no strategy
//! can break CG-1 or CG-2.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::pool::Avoid;
use crate::query::{Job, Phase, Purpose, Query};
use crate::timers::{Timer, Timers};
use crate::{
    Action, Answer, Failure, FailureKind, GroupId, InstanceId, JobId, Pool, PoolId, QueryId, Row, Stats,
    Submitted, Time, TokenBucket,
};

/// One pool's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolConfig {
    /// Instances.
    pub instances: usize,
    /// Concurrent requests that each instance is given.
    pub slots: u32,
    /// Jobs that may wait at the frontend.
    pub queue: usize,
}

/// Bounds of the core.
#[derive(Debug, Clone, PartialEq)]
pub struct CoreConfig {
    /// The deployed model's pool, then one for each parity row.
    pub pools: Vec<PoolConfig>,
    /// Most queries in the table, awaited late truths included.
    pub max_queries: usize,
    /// Most attempts of a query, the first included.
    pub max_attempts: u32,
    /// Retries allowed for each accepted query, over time.
    pub retry_share: f64,
    /// Retries allowed at once.
    pub retry_burst: f64,
    /// A request withdrawn after its deadline says something about its instance only if it was in flight this long: a
    /// client with a hasty deadline must not take instances out of service.
    pub suspect_after: Duration,
}

/// State shared by all strategies, and what they may do with it.
#[derive(Debug)]
pub struct Core<I, O> {
    pub(crate) now: Time,
    pub(crate) stats: Stats,
    pub(crate) timers: Timers,
    pub(crate) actions: Vec<Action<I, O>>,
    queries: FxHashMap<QueryId, Query<I>>,
    jobs: FxHashMap<JobId, Job<I>>,
    pools: Vec<Pool>,
    retry_budget: TokenBucket,
    max_queries: usize,
    max_attempts: u32,
    suspect_after: Duration,
    next_id: u64,
}

impl<I, O> Core<I, O> {
    pub(crate) fn new(config: &CoreConfig) -> Self {
        let pools = config.pools.iter().zip(0u8..);
        Self {
            now: Time::ZERO,
            stats: Stats::default(),
            timers: Timers::default(),
            actions: Vec::new(),
            queries: FxHashMap::default(),
            jobs: FxHashMap::default(),
            pools: pools
                .map(|(pool, id)| Pool::new(PoolId(id), pool.instances, pool.slots, pool.queue))
                .collect(),
            retry_budget: TokenBucket::new(config.retry_share, config.retry_burst),
            max_queries: config.max_queries,
            max_attempts: config.max_attempts.max(1),
            suspect_after: config.suspect_after,
            next_id: 0,
        }
    }

    /// The time of the event being handled.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Running totals.
    pub fn stats_mut(&mut self) -> &mut Stats {
        &mut self.stats
    }

    /// A pool's state, to look at.
    pub fn pool(&self, pool: PoolId) -> Option<&Pool> {
        self.pools.get(usize::from(pool.0))
    }

    pub(crate) fn fresh_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub(crate) fn push(&mut self, action: Action<I, O>) {
        self.actions.push(action);
    }

    // -- queries ---------------------------------------------------------------------------------------------------

    pub(crate) fn query(&self, query: QueryId) -> Option<&Query<I>> {
        self.queries.get(&query)
    }

    pub(crate) fn is_waiting(&self, query: QueryId) -> bool {
        self.queries.get(&query).is_some_and(Query::is_waiting)
    }

    pub(crate) fn tracked(&self) -> usize {
        self.queries.len()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.queries.len() < self.max_queries && self.pools.first().is_some_and(|pool| !pool.is_full())
    }

    pub(crate) fn accept(&mut self, query: Query<I>) -> QueryId {
        let id = QueryId(self.fresh_id());
        self.timers.set(query.deadline, Timer::Deadline(id));
        self.queries.insert(id, query);
        self.stats.accepted += 1;
        self.retry_budget.earn();
        id
    }

    /// Answers a waiting query. The one place where answers are made (CG-1).
    pub(crate) fn answer(&mut self, id: QueryId, answer: Answer<O>) {
        let Some(query) = self.queries.get_mut(&id).filter(|query| query.is_waiting()) else {
            self.stats.cg1_violations += 1;
            return;
        };
        query.phase = Phase::Answered;
        self.timers.cancel(query.deadline, Timer::Deadline(id));
        if let Some(at) = query.late_timer.take() {
            self.timers.cancel(at, Timer::Late(id));
        }
        match &answer {
            Answer::Exact(_) => self.stats.exact += 1,
            Answer::Reconstructed(_) => self.stats.reconstructed += 1,
            Answer::Failed(failure) => {
                self.stats.failed += 1;
                self.stats.deadline_exceeded += u64::from(failure.kind == FailureKind::DeadlineExceeded);
            }
        }
        self.push(Action::Answer { query: id, answer });
    }

    /// The client went away. False when it had its answer, or is unknown.
    pub(crate) fn abandon(&mut self, id: QueryId) -> bool {
        let Some(query) = self.queries.get_mut(&id).filter(|query| query.is_waiting()) else {
            return false;
        };
        query.phase = Phase::Abandoned;
        self.timers.cancel(query.deadline, Timer::Deadline(id));
        if let Some(at) = query.late_timer.take() {
            self.timers.cancel(at, Timer::Late(id));
        }
        self.stats.abandoned += 1;
        true
    }

    /// Asks to be called when the query is late.
    pub(crate) fn set_late_timer(&mut self, id: QueryId, at: Time) {
        let Some(query) = self.queries.get_mut(&id).filter(|query| query.is_waiting()) else {
            return;
        };
        if let Some(before) = query.late_timer.replace(at) {
            self.timers.cancel(before, Timer::Late(id));
        }
        self.timers.set(at, Timer::Late(id));
    }

    pub(crate) fn late_timer_fired(&mut self, id: QueryId) {
        if let Some(query) = self.queries.get_mut(&id) {
            query.late_timer = None;
        }
    }

    /// Keeps a closed query's requests until `until`; without one, withdraws them. Forgets the query once it has none.
    pub(crate) fn settle(&mut self, id: QueryId, keep_until: Option<Time>) {
        let Some(query) = self.queries.get_mut(&id).filter(|query| !query.is_waiting()) else {
            return;
        };
        match keep_until.filter(|_| !query.jobs.is_empty()) {
            Some(until) => {
                if let Some(before) = query.give_up_timer.replace(until) {
                    self.timers.cancel(before, Timer::GiveUp(id));
                }
                self.timers.set(until, Timer::GiveUp(id));
            }
            None => self.forget(id, false),
        }
    }

    /// Withdraws a closed query's requests and forgets it. `suspect`: they took so long that their instances must show
    /// that they are well before they get more.
    pub(crate) fn forget(&mut self, id: QueryId, suspect: bool) {
        let Some(query) = self.queries.remove(&id) else {
            return;
        };
        if let Some(at) = query.give_up_timer {
            self.timers.cancel(at, Timer::GiveUp(id));
        }
        for job in query.jobs {
            self.withdraw_job(job, suspect);
        }
    }

    pub(crate) fn mark_lost(&mut self, id: QueryId, failure: Failure) {
        if let Some(query) = self.queries.get_mut(&id) {
            query.lost = Some(failure);
        }
    }

    /// Answers a lost query with the failure of its last attempt, and forgets it.
    pub(crate) fn fail_lost(&mut self, id: QueryId) {
        let lost =
            self.queries.get(&id).filter(|query| query.is_waiting()).and_then(|query| query.lost.clone());
        if let Some(failure) = lost {
            self.answer(id, Answer::Failed(failure));
            self.forget(id, false);
        }
    }

    // -- requests --------------------------------------------------------------------------------------------------

    /// Sends an attempt of `id` to the deployed model. False when the queue is full.
    pub(crate) fn dispatch(&mut self, id: QueryId, avoid: Avoid) -> bool {
        let Some(query) = self.queries.get_mut(&id) else {
            return false;
        };
        query.attempts += 1;
        let input = Arc::clone(&query.input);
        match self.submit(Purpose::Query(id), PoolId::DEPLOYED, input, avoid) {
            Some(job) => {
                if let Some(query) = self.queries.get_mut(&id) {
                    query.jobs.push(job);
                }
                true
            }
            None => false,
        }
    }

    /// Sends a parity query that must end by `expires`. `None` when the pool's queue is full.
    pub(crate) fn dispatch_parity(
        &mut self,
        group: GroupId,
        row: Row,
        input: Arc<I>,
        expires: Time,
    ) -> Option<JobId> {
        let id = self.submit(Purpose::Parity(group, row), PoolId::parity(row), input, Avoid::new())?;
        if let Some(job) = self.jobs.get_mut(&id) {
            job.timer = Some(expires);
            self.timers.set(expires, Timer::Job(id));
        }
        self.stats.redundant_issued += 1;
        Some(id)
    }

    fn submit(&mut self, purpose: Purpose, pool: PoolId, input: Arc<I>, avoid: Avoid) -> Option<JobId> {
        let id = JobId(self.fresh_id());
        let instance = match self.pools.get_mut(usize::from(pool.0))?.submit(id, avoid) {
            Submitted::Start(instance) => Some(instance),
            Submitted::Queued => None,
            Submitted::Full => return None,
        };
        let job = Job { purpose, pool, input: Arc::clone(&input), instance, sent: self.now, timer: None };
        self.jobs.insert(id, job);
        if let Some(instance) = instance {
            self.push(Action::Send { job: id, instance, input });
        }
        Some(id)
    }

    /// Takes a finished request off the books and starts the next one in its slot.
    pub(crate) fn finish_job(&mut self, id: JobId, failure: Option<FailureKind>) -> Option<Job<I>> {
        let job = self.jobs.remove(&id)?;
        if let Some(at) = job.timer {
            self.timers.cancel(at, Timer::Job(id));
        }
        if let Purpose::Query(query) = job.purpose
            && let Some(query) = self.queries.get_mut(&query)
        {
            query.jobs.retain(|job| *job != id);
            if let (Some(_), Some(instance)) = (failure, job.instance) {
                query.tried.push(instance);
            }
        }
        if let Some(instance) = job.instance {
            if failure.is_some_and(FailureKind::suspects_instance) {
                self.suspect(instance);
            }
            self.release(instance);
        }
        Some(job)
    }

    /// Withdraws a request that is queued or in flight. `suspect` as in [`forget`](Self::forget).
    pub(crate) fn withdraw_job(&mut self, id: JobId, suspect: bool) {
        let Some(job) = self.jobs.remove(&id) else { return };
        if let Some(at) = job.timer {
            self.timers.cancel(at, Timer::Job(id));
        }
        match job.instance {
            None => {
                if let Some(pool) = self.pools.get_mut(usize::from(job.pool.0)) {
                    pool.withdraw(id);
                }
            }
            Some(instance) => {
                self.push(Action::Abort { job: id });
                if suspect && self.now.since(job.sent) >= self.suspect_after {
                    self.suspect(instance);
                }
                self.release(instance);
            }
        }
    }

    /// Whether the request is still waiting for a slot.
    pub(crate) fn is_queued(&self, id: JobId) -> bool {
        self.jobs.get(&id).is_some_and(|job| job.instance.is_none())
    }

    pub(crate) fn job_purpose(&self, id: JobId) -> Option<Purpose> {
        self.jobs.get(&id).map(|job| job.purpose)
    }

    /// Instances that have requests of this query.
    pub(crate) fn instances_of(&self, id: QueryId) -> impl Iterator<Item = InstanceId> {
        let jobs = self.queries.get(&id).map(|query| query.jobs.as_slice()).unwrap_or_default();
        jobs.iter().filter_map(|job| self.jobs.get(job)?.instance)
    }

    /// Whether a failed attempt may be made again elsewhere; takes from the retry budget if so.
    pub(crate) fn may_retry(&mut self, id: QueryId, failure: FailureKind) -> bool {
        let Some(query) = self.queries.get(&id) else {
            return false;
        };
        let allowed =
            failure.is_retryable() && query.attempts < self.max_attempts && self.retry_budget.spend();
        self.stats.retries += u64::from(allowed);
        allowed
    }

    // -- instances -------------------------------------------------------------------------------------------------

    /// No more requests for this instance until the driver reports it up.
    fn suspect(&mut self, instance: InstanceId) {
        if let Some(pool) = self.pools.get_mut(usize::from(instance.pool.0))
            && pool.set_up(instance, false)
        {
            self.push(Action::Probe { instance });
        }
    }

    pub(crate) fn set_instance_up(&mut self, instance: InstanceId, up: bool) {
        let Some(pool) = self.pools.get_mut(usize::from(instance.pool.0)) else {
            return;
        };
        if pool.set_up(instance, up) {
            while let Some((job, instance)) =
                self.pools.get_mut(usize::from(instance.pool.0)).and_then(Pool::start_next)
            {
                self.start(job, instance);
            }
        }
    }

    fn release(&mut self, instance: InstanceId) {
        if let Some((job, instance)) =
            self.pools.get_mut(usize::from(instance.pool.0)).and_then(|pool| pool.release(instance))
        {
            self.start(job, instance);
        }
    }

    fn start(&mut self, id: JobId, instance: InstanceId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.instance = Some(instance);
        job.sent = self.now;
        let input = Arc::clone(&job.input);
        self.push(Action::Send { job: id, instance, input });
    }
}

/// How long before a deadline a reconstruction is tried, late or not, so that decoding still makes it.
pub(crate) const DECODE_MARGIN: Duration = Duration::from_millis(1);
