//! State that all strategies share: the query table, the pools, retries, deadlines. It alone
//! answers queries, so no strategy can break CG-1 or CG-2.

mod blame;
mod instances;
mod requests;
mod withdrawals;

use std::collections::VecDeque;
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::concurrency::Concurrency;
use crate::latency::LatencyWindow;
use crate::outliers::Outliers;
use crate::query::{Job, Phase, Query};
use crate::stats::Fate;
use crate::timers::{Timer, Timers};
use crate::{
    Action, Answer, ClassId, Failure, GroupView, HoldBack, JobId, OutlierConfig, Pool, PoolId,
    QueryId, QueueLimit, QueueLimitConfig, RedundancyOutcomes, Stats, Time, TokenBucket,
};

/// One pool's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolConfig {
    /// Number of instances.
    pub instances: usize,
    /// Concurrent requests that each instance is given.
    pub slots: u32,
    /// Jobs that may wait at the frontend.
    pub queue: usize,
}

/// Bounds of the core.
#[derive(Debug, Clone, PartialEq)]
pub struct CoreConfig {
    /// The deployed model's pool, then those of the parity rows, or a backup model's.
    pub pools: Vec<PoolConfig>,
    /// Most queries in the table, awaited late truths included.
    pub max_queries: usize,
    /// Most attempts of a query, the first included.
    pub max_attempts: u32,
    /// Retries allowed for each accepted query, over time.
    pub retry_share: f64,
    /// Retries allowed at once.
    pub retry_burst: f64,
    /// A request withdrawn after its deadline says something about its instance only if it was in
    /// flight this long: a client with a hasty deadline must not take instances out of service.
    pub suspect_after: Duration,
    /// Limit of queries that wait for a slot of the deployed model; `None`: the pool's.
    pub queue_limit: Option<QueueLimitConfig>,
    /// Slots that an instance of the deployed model may be given, if more of them than the pool's
    /// raise the rate of answers.
    pub max_slots: u32,
    /// When an instance that answers badly is ejected; never without it.
    pub outliers: Option<OutlierConfig>,
}

/// State shared by all strategies, and what they may do with it.
#[derive(Debug)]
pub struct Core<I, O> {
    pub(crate) now: Time,
    pub(crate) stats: Stats,
    pub(crate) timers: Timers,
    pub(crate) actions: Vec<Action<I, O>>,
    pub(crate) latency: LatencyWindow,
    /// The last groups that reconstructed something.
    decoded: VecDeque<GroupView>,
    queries: FxHashMap<QueryId, Query<I>>,
    jobs: FxHashMap<JobId, Job<I>>,
    pools: Vec<Pool>,
    redundancy_outcomes: Vec<RedundancyOutcomes>,
    retry_budget: TokenBucket,
    max_queries: usize,
    max_attempts: u32,
    suspect_after: Duration,
    queue_limit: Option<QueueLimit>,
    concurrency: Option<Concurrency>,
    outliers: Option<Outliers>,
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
            latency: LatencyWindow::new(),
            decoded: VecDeque::new(),
            queries: FxHashMap::default(),
            jobs: FxHashMap::default(),
            pools: pools
                .map(|(pool, id)| Pool::new(PoolId(id), pool.instances, pool.slots, pool.queue))
                .collect(),
            redundancy_outcomes: Vec::new(),
            retry_budget: TokenBucket::new(config.retry_share, config.retry_burst),
            max_queries: config.max_queries,
            max_attempts: config.max_attempts.max(1),
            suspect_after: config.suspect_after,
            queue_limit: config.queue_limit.map(|limit| {
                QueueLimit::new(limit, config.pools.first().map_or(0, |pool| pool.queue))
            }),
            concurrency: (config.pools.first())
                .filter(|pool| config.max_slots > pool.slots)
                .map(|pool| Concurrency::new(pool.slots.max(1), config.max_slots)),
            outliers: config.outliers.map(Outliers::new),
            next_id: 0,
        }
    }

    /// The time of the event being handled.
    pub fn now(&self) -> Time {
        self.now
    }

    /// A pool's state, to look at.
    pub fn pool(&self, pool: PoolId) -> Option<&Pool> {
        self.pools.get(usize::from(pool.0))
    }

    /// Returns the outcomes of the redundant requests of a class.
    pub fn redundancy_outcomes(&self, class: ClassId) -> RedundancyOutcomes {
        self.redundancy_outcomes.get(usize::from(class.0)).copied().unwrap_or_default()
    }

    pub(crate) fn count(&mut self, class: ClassId, fate: Fate) {
        self.stats.redundant.count(fate);
        let class = usize::from(class.0);
        if self.redundancy_outcomes.len() <= class {
            self.redundancy_outcomes.resize(class + 1, RedundancyOutcomes::default());
        }
        if let Some(redundancy_outcomes) = self.redundancy_outcomes.get_mut(class) {
            redundancy_outcomes.count(fate);
        }
    }

    /// Returns true while no instance of the deployed model is up: there is nothing to wait for.
    pub(crate) fn is_down(&self) -> bool {
        !self.pool(PoolId::DEPLOYED).is_some_and(Pool::is_any_up)
    }

    /// When a query counts as late.
    pub(crate) fn late_at(&self, hold_back: &HoldBack, arrived: Time) -> Time {
        if self.is_down() { self.now } else { hold_back.late_at(arrived) }
    }

    /// Returns true if so many queries wait for a slot, or queries are being refused, that
    /// redundant work is to be shed (CG-7); not while nothing else answers.
    pub(crate) fn is_congested(&self, shed_above: Option<usize>) -> bool {
        if self.is_down() {
            return false;
        }
        let queued = |pool: &Pool| pool.queued() > shed_above.unwrap_or(pool.slots());
        self.pool(PoolId::DEPLOYED).is_some_and(queued)
            || self.queue_limit.as_ref().is_some_and(|limit| limit.is_overloaded(self.now))
    }

    pub(crate) fn fresh_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub(crate) fn push(&mut self, action: Action<I, O>) {
        self.actions.push(action);
    }

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
        let admits = |pool: &Pool| {
            let within = |limit: &QueueLimit| pool.has_free_slot() || limit.admits(pool.queued());
            !pool.is_full() && self.queue_limit.as_ref().is_none_or(within)
        };
        self.queries.len() < self.max_queries && self.pools.first().is_some_and(admits)
    }

    pub(crate) fn refuse(&mut self) {
        self.stats.rejected += 1;
        if let Some(limit) = &mut self.queue_limit {
            limit.refused(self.now);
        }
    }

    /// Sets the gauges that concern the deployed model's pool.
    pub(crate) fn report_pool(&mut self) {
        let Some(pool) = self.pools.first() else { return };
        let limit = self.queue_limit.as_ref().map_or(pool.capacity(), QueueLimit::limit);
        self.stats.ejected = pool.ejected() as u64;
        self.stats.queued = pool.queued() as u64;
        self.stats.queue_limit = limit as u64;
        self.stats.slots_per_instance = pool.slots_per_instance().into();
    }

    pub(crate) fn accept(&mut self, class: ClassId, query: Query<I>) -> QueryId {
        let id = QueryId::new(self.fresh_id(), class);
        self.timers.set(query.deadline, Timer::Deadline(id));
        self.queries.insert(id, query);
        self.stats.accepted += 1;
        self.retry_budget.earn();
        id
    }

    /// The client went away. False when it had its answer, or is unknown.
    pub(crate) fn abandon(&mut self, id: QueryId) -> bool {
        let Some(query) = self.queries.get_mut(&id).filter(|query| query.is_waiting()) else {
            return false;
        };
        query.phase = Phase::Abandoned;
        self.timers.cancel(query.deadline, Timer::Deadline(id));
        self.timers.cancel(query.late_timer.take(), Timer::Late(id));
        self.stats.abandoned += 1;
        true
    }

    pub(crate) fn set_late_timer(&mut self, id: QueryId, at: Time) {
        let Some(query) = self.queries.get_mut(&id).filter(|query| query.is_waiting()) else {
            return;
        };
        self.timers.cancel(query.late_timer.replace(at), Timer::Late(id));
        self.timers.set(at, Timer::Late(id));
    }

    pub(crate) fn late_timer_fired(&mut self, id: QueryId) {
        if let Some(query) = self.queries.get_mut(&id) {
            query.late_timer = None;
        }
    }

    /// Keeps a closed query's own requests until `until`; until now if they wait for instances that
    /// are all down. Without a time, withdraws them. Forgets the query once it has none. Redundant
    /// ones beside them are withdrawn in any case.
    pub(crate) fn settle(&mut self, id: QueryId, keep_until: Option<Time>) {
        let is_down = self.is_down();
        let Some(query) = self.queries.get_mut(&id).filter(|query| !query.is_waiting()) else {
            return;
        };
        let is_in_flight = |id| self.jobs.get(id).is_some_and(|job| job.instance.is_some());
        match keep_until.filter(|_| !query.jobs.is_empty()) {
            Some(until) => {
                let until =
                    if is_down && !query.jobs.iter().any(is_in_flight) { self.now } else { until };
                self.timers.cancel(query.give_up_timer.replace(until), Timer::GiveUp(id));
                self.timers.set(until, Timer::GiveUp(id));
                self.withdraw_redundant(id);
            }
            None => self.forget(id, false),
        }
    }

    /// Withdraws a closed query's requests and forgets it. `suspect`: they took so long that their
    /// instances must show that they are well before they get more.
    pub(crate) fn forget(&mut self, id: QueryId, suspect: bool) {
        let Some(query) = self.queries.remove(&id) else { return };
        self.timers.cancel(query.give_up_timer, Timer::GiveUp(id));
        if query.truth_awaited {
            // It never came: its client would have waited until the deadline at least.
            self.latency.without(self.now, self.now.max(query.deadline).since(query.arrived));
        }
        self.withdraw_unneeded(query.jobs.into_iter().chain(query.backup), suspect);
    }

    /// The deployed model's prediction is there. If the query was approximated before, that is when
    /// it would have been answered without.
    pub(crate) fn truth_came(&mut self, id: QueryId) {
        if let Some(query) = self.queries.get_mut(&id).filter(|query| query.truth_awaited) {
            query.truth_awaited = false;
            self.latency.without(self.now, self.now.since(query.arrived));
        }
    }

    /// Keeps a group that reconstructed something, to be looked at; the oldest one goes for it.
    pub(crate) fn remember_decoded(&mut self, group: GroupView) {
        if self.decoded.len() >= DECODED_GROUPS {
            self.decoded.pop_front();
        }
        self.decoded.push_back(group);
    }

    pub(crate) fn decoded_groups(&self) -> impl Iterator<Item = &GroupView> {
        self.decoded.iter()
    }

    pub(crate) fn mark_lost(&mut self, id: QueryId, failure: Failure) {
        if let Some(query) = self.queries.get_mut(&id) {
            query.lost = Some(failure);
        }
    }

    /// The failure of a waiting query's last attempt, if it is lost.
    pub(crate) fn lost(&self, id: QueryId) -> Option<Failure> {
        self.query(id).filter(|query| query.is_waiting())?.lost.clone()
    }

    /// Answers a lost query with the failure of its last attempt, and forgets it.
    pub(crate) fn fail_lost(&mut self, id: QueryId) {
        if let Some(failure) = self.lost(id) {
            self.answer(id, Answer::Failed(failure));
            self.forget(id, false);
        }
    }
}

/// Groups that are kept to be looked at.
const DECODED_GROUPS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Avoid;

    #[test]
    fn as_many_as_slots_follows_the_instances_that_are_there() {
        let config = CoreConfig {
            pools: vec![PoolConfig { instances: 1, slots: 2, queue: 16 }],
            max_queries: 64,
            max_attempts: 1,
            retry_share: 0.0,
            retry_burst: 0.0,
            suspect_after: Duration::ZERO,
            queue_limit: None,
            max_slots: 0,
            outliers: None,
        };
        let mut core: Core<(), ()> = Core::new(&config);
        for job in 0..5 {
            core.pools[0].submit(JobId(job), Avoid::new());
        }
        assert_eq!(core.pools[0].queued(), 3);
        core.report_pool();
        assert_eq!((core.stats.queued, core.stats.queue_limit), (3, 16));
        assert!(core.is_congested(None), "three wait for two slots");
        assert!(core.is_congested(Some(2)) && !core.is_congested(Some(3)));
        core.join(PoolId::DEPLOYED);
        assert!(!core.is_congested(None), "three wait for four");
    }
}
