//! Instances of all pools: their state, and what they have in flight.

use rustc_hash::FxHashMap;

use super::Core;
use crate::query::{Job, Purpose};
use crate::{Action, InstanceId, InstanceView, Pool, PoolId, QueryId, Time};

/// Times its usual latency after which an instance that was overtaken is suspected.
const OVERTAKEN: u32 = 4;

impl<I, O> Core<I, O> {
    /// At most `limit` instances, in the order of their ids. Looks at every request once.
    pub(crate) fn view_instances(&self, now: Time, limit: usize) -> Vec<InstanceView> {
        let mut views: Vec<InstanceView> = self.pools.iter().flat_map(Pool::view).collect();
        views.sort_unstable_by_key(|view| view.id);
        views.truncate(limit);
        let mut oldest: FxHashMap<InstanceId, Time> = FxHashMap::default();
        for job in self.jobs.values() {
            if let Some(instance) = job.instance {
                let first = oldest.entry(instance).or_insert(job.sent);
                *first = (*first).min(job.sent);
            }
        }
        for view in &mut views {
            view.oldest = oldest.get(&view.id).map(|sent| now.since(*sent));
            if let Some(outliers) = &self.outliers {
                (view.failed, view.ejections) = outliers.record(view.id);
            }
        }
        views
    }

    pub(crate) fn readmit(&mut self, instance: InstanceId) {
        let Some(pool) = self.pools.get_mut(usize::from(instance.pool.0)) else { return };
        if pool.set_ejected(instance, false) {
            self.start_queued(instance.pool);
        }
    }

    /// No more requests for this instance until the driver reports it up.
    pub(super) fn suspect(&mut self, instance: InstanceId) {
        if let Some(pool) = self.pools.get_mut(usize::from(instance.pool.0))
            && pool.set_up(instance, false)
        {
            self.push(Action::Probe { instance });
        }
    }

    /// A copy of the query has won: instances that have had its other requests for several times
    /// what they usually take must show that they are well. Else a frozen one, whose slots are
    /// freed, takes more queries than there are copies for.
    pub(crate) fn suspect_overtaken(&mut self, id: QueryId) {
        let overtaken = |job: &Job<I>| {
            let instance = job.instance?;
            let pool = self.pool(instance.pool)?;
            let is_long = self.now.since(job.sent) >= OVERTAKEN * pool.latency(instance)?;
            (is_long && pool.has_other_up(instance)).then_some(instance)
        };
        let overtaken: Vec<InstanceId> = self.jobs_of(id).filter_map(overtaken).collect();
        for instance in overtaken {
            self.suspect(instance);
        }
    }

    pub(crate) fn set_instance_up(&mut self, instance: InstanceId, up: bool) {
        let Some(pool) = self.pools.get_mut(usize::from(instance.pool.0)) else { return };
        if pool.set_up(instance, up) {
            self.start_queued(instance.pool);
        }
    }

    /// Queries that have all of their requests at `instance`, in the order in which they came.
    /// Looks at every request once, if there are any.
    pub(crate) fn waiting_only_at(&self, instance: InstanceId) -> Vec<QueryId> {
        let pool = self.pool(instance.pool);
        if pool.is_none_or(|pool| pool.in_flight(instance) == 0) {
            return Vec::new();
        }
        let is_there = |job: &Job<I>| job.instance == Some(instance);
        let there = self.jobs.values().filter(|job| is_there(job));
        let query = |job: &Job<I>| match job.purpose {
            Purpose::Query(query) => Some(query),
            _ => None,
        };
        let mut queries: Vec<QueryId> = there.filter_map(query).collect();
        queries.retain(|query| self.is_waiting(*query) && self.jobs_of(*query).all(is_there));
        queries.sort_unstable();
        queries
    }

    /// Takes a new instance into its pool, down for now. `None` for a pool that is not there.
    pub(crate) fn join(&mut self, pool: PoolId) -> Option<InstanceId> {
        self.pools.get_mut(usize::from(pool.0)).map(Pool::join)
    }

    /// No more requests for this instance, ever.
    pub(crate) fn leave(&mut self, instance: InstanceId) {
        if let Some(outliers) = &mut self.outliers {
            outliers.forget(instance);
        }
        if let Some(pool) = self.pools.get_mut(usize::from(instance.pool.0))
            && pool.leave(instance)
        {
            self.push(Action::Left { instance });
        }
    }

    pub(super) fn release(&mut self, instance: InstanceId) {
        self.free_slot(instance);
        self.start_queued(instance.pool);
    }

    pub(super) fn free_slot(&mut self, instance: InstanceId) {
        if let Some(pool) = self.pools.get_mut(usize::from(instance.pool.0))
            && pool.release(instance)
        {
            self.push(Action::Left { instance });
        }
    }
}
