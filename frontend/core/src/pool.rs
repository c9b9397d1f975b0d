//! Dispatch within one pool: a single FIFO at the frontend, and instances that take the next
//! request when they have a free slot (join-idle-queue). A slow or frozen instance keeps its slots
//! busy and so takes less, with no tuning. Instances join and leave while the pool serves; one that
//! left finishes what it has in flight.

mod start;
#[cfg(test)]
mod tests;
mod view;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::{InstanceId, JobId, PoolId};

/// Instances to avoid when there is a choice.
pub(crate) type Avoid = SmallVec<[InstanceId; 4]>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Submitted {
    /// Start it on this instance now.
    Start(InstanceId),
    Queued,
    /// The queue is full; the job was not taken.
    Full,
}

/// Limit of queued jobs that a freed slot looks past for one that does not avoid its instance.
const LOOK_PAST: usize = 4;
/// Free instances among which a redundant request finds one of its own, if there is any: a parity
/// query in the deployed model's pool is barred from at most those of 16 members and 3 other rows.
const MOST_BARRED: usize = 19;

#[derive(Debug)]
struct Instance {
    in_flight: u32,
    up: bool,
    /// Its answers were bad; no jobs for it for now, whatever health checks say.
    ejected: bool,
    /// It gets no more jobs, and is forgotten once it has none in flight.
    leaving: bool,
    /// Grows with each release: among equally loaded instances the longest idle goes first.
    idle_since: u64,
    /// Moving average of its requests' latency.
    latency: Option<Duration>,
}

impl Instance {
    fn new(up: bool, idle_since: u64) -> Self {
        Self { in_flight: 0, up, ejected: false, leaving: false, idle_since, latency: None }
    }

    fn serves(&self) -> bool {
        self.up && !self.ejected
    }
}

#[derive(Debug)]
struct Waiting {
    /// Its place in line among queries and copies.
    ticket: u64,
    job: JobId,
    avoid: Avoid,
}

/// A redundant copy in line. Which instances it must not go to is asked when one is free, since
/// that changes while it waits.
#[derive(Debug)]
struct WaitingCopy {
    ticket: u64,
    job: JobId,
    /// A parity query before any query is late takes no slot that a query waits for (CG-3).
    yields: bool,
}

/// A request that must keep away from some instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aside {
    /// A copy of a query: of no use where the query itself is.
    Copy,
    /// A parity query: what it must keep away from will end, and queries go first.
    Parity,
}

/// One pool's queue and slots. Pure bookkeeping: the caller starts what it is told to.
#[derive(Debug)]
pub struct Pool {
    id: PoolId,
    slots: u32,
    /// By index. No index is given twice, so that nothing said of an instance that left is taken to
    /// be said of another.
    instances: FxHashMap<u32, Instance>,
    /// The index of the next one that joins.
    next_index: u32,
    /// Number of instances that are up and not ejected.
    up: usize,
    /// Instances that are up and have a free slot: (in flight, idle since, index), best first.
    available: BTreeSet<(u32, u64, u32)>,
    queue: VecDeque<Waiting>,
    /// Jobs in `queue` that were withdrawn; they leave when they reach its head, or by compaction.
    withdrawn: FxHashSet<JobId>,
    /// Redundant copies in line. They have a queue of their own, so that one that must not go where
    /// a slot is free blocks no other.
    copies: VecDeque<WaitingCopy>,
    tickets: u64,
    capacity: usize,
    releases: u64,
}

impl Pool {
    /// A pool of `instances` instances with `slots` concurrent requests each and at most
    /// `capacity` waiting jobs.
    pub(crate) fn new(id: PoolId, instances: usize, slots: u32, capacity: usize) -> Self {
        let next_index = u32::try_from(instances).unwrap_or(u32::MAX);
        let all = 0..next_index;
        let instance = |index| (index, Instance::new(true, u64::from(index)));
        Self {
            id,
            slots: slots.max(1),
            instances: all.clone().map(instance).collect(),
            next_index,
            up: instances,
            available: all.map(|index| (0, u64::from(index), index)).collect(),
            queue: VecDeque::new(),
            withdrawn: FxHashSet::default(),
            copies: VecDeque::new(),
            tickets: 0,
            capacity,
            releases: instances as u64,
        }
    }

    /// Jobs that wait for a slot, redundant copies aside.
    pub fn queued(&self) -> usize {
        self.queue.len() - self.withdrawn.len()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns true if another job would be refused.
    pub(crate) fn is_full(&self) -> bool {
        self.available.is_empty() && self.queued() >= self.capacity
    }

    pub(crate) fn len(&self) -> usize {
        self.instances.len()
    }

    pub(crate) fn ejected(&self) -> usize {
        self.instances.values().filter(|instance| instance.ejected).count()
    }

    /// Instances that are up and not ejected.
    pub(crate) fn up(&self) -> usize {
        self.up
    }

    /// Returns true if any instance is up.
    pub fn is_any_up(&self) -> bool {
        self.up > 0
    }

    /// Returns whether an instance other than this one is up.
    pub(crate) fn has_other_up(&self, instance: InstanceId) -> bool {
        let is_up = self.instances.get(&instance.index).is_some_and(Instance::serves);
        self.up > usize::from(is_up)
    }

    /// Returns true if a job would start at once.
    pub fn has_free_slot(&self) -> bool {
        !self.available.is_empty()
    }

    pub(crate) fn in_flight(&self, instance: InstanceId) -> u32 {
        self.instances.get(&instance.index).map_or(0, |instance| instance.in_flight)
    }

    /// Requests that an instance is sent at the same time.
    pub(crate) fn slots_per_instance(&self) -> u32 {
        self.slots
    }

    /// Sets instances' slots. Then call [`start_next`](Self::start_next) until it returns `None`.
    pub(crate) fn set_slots(&mut self, slots: u32) {
        if std::mem::replace(&mut self.slots, slots) == slots {
            return;
        }
        self.available.clear();
        let all: Vec<u32> = self.instances.keys().copied().collect();
        all.into_iter().for_each(|index| self.offer(index));
    }

    /// Requests that its instances can serve at the same time, those that are down included.
    pub(crate) fn slots(&self) -> usize {
        self.instances.len() * self.slots as usize
    }

    /// Returns true if it is the pool's; so is one that leaves, while it has requests.
    pub fn contains(&self, instance: InstanceId) -> bool {
        instance.pool == self.id && self.instances.contains_key(&instance.index)
    }

    /// Takes in a new instance. It counts as down until [`set_up`](Self::set_up) says otherwise.
    pub(crate) fn join(&mut self) -> InstanceId {
        let index = self.next_index;
        self.next_index = self.next_index.saturating_add(1);
        self.releases += 1;
        self.instances.insert(index, Instance::new(false, self.releases));
        self.id_of(index)
    }

    fn id_of(&self, index: u32) -> InstanceId {
        InstanceId { pool: self.id, index }
    }

    /// Instances with a free slot, best first.
    fn free(&self) -> impl Iterator<Item = InstanceId> {
        self.available.iter().map(|&(.., index)| self.id_of(index))
    }

    fn free_beside(&self, others: &Avoid) -> Option<InstanceId> {
        self.free().take(others.len() + 1).find(|instance| !others.contains(instance))
    }

    /// Gives an instance no more jobs. Those that it has stay its own until they end; then it is
    /// forgotten. Returns whether that is so now.
    pub(crate) fn leave(&mut self, instance: InstanceId) -> bool {
        self.set_up(instance, false);
        if let Some(state) = self.instances.get_mut(&instance.index) {
            state.leaving = true;
        }
        self.forget_if_left(instance)
    }

    fn forget_if_left(&mut self, instance: InstanceId) -> bool {
        let state = self.instances.get(&instance.index);
        let left = state.is_some_and(|state| state.leaving && state.in_flight == 0);
        left && self.instances.remove(&instance.index).is_some()
    }

    /// Takes a job. Of the instances with a free slot it goes to the least loaded, longest idle one
    /// not in `avoid`; if there is none, to any free one: avoiding never makes a job wait (CG-3).
    pub(crate) fn submit(&mut self, job: JobId, avoid: Avoid) -> Submitted {
        match self.free_beside(&avoid).or_else(|| self.free().next()) {
            Some(instance) => {
                self.occupy(instance.index);
                Submitted::Start(instance)
            }
            None if self.queued() < self.capacity => {
                let ticket = self.ticket();
                self.queue.push_back(Waiting { ticket, job, avoid });
                Submitted::Queued
            }
            None => Submitted::Full,
        }
    }

    /// Takes a request that must not go to an instance in `taken`. If no other is free it waits; if
    /// no other is up it is refused, unless those in `taken` will do once they are free of what
    /// they serve, as for all but copies.
    pub(crate) fn submit_copy(&mut self, job: JobId, taken: &Avoid, kind: Aside) -> Submitted {
        if let Some(instance) = self.free_beside(taken) {
            self.occupy(instance.index);
            return Submitted::Start(instance);
        }
        let mut up = self.instances.iter().filter(|(_, state)| state.serves());
        let hopeless = match kind {
            Aside::Copy => up.all(|(&index, _)| taken.contains(&self.id_of(index))),
            Aside::Parity => !self.is_any_up(),
        };
        if hopeless || self.copies.len() >= self.capacity {
            return Submitted::Full;
        }
        let ticket = self.ticket();
        self.copies.push_back(WaitingCopy { ticket, job, yields: kind == Aside::Parity });
        Submitted::Queued
    }

    /// Takes a queued redundant copy back.
    pub(crate) fn withdraw_copy(&mut self, job: JobId) {
        self.copies.retain(|waiting| waiting.job != job);
    }

    fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    /// Takes a queued job back. The caller knows that it is queued.
    pub(crate) fn withdraw(&mut self, job: JobId) {
        self.withdrawn.insert(job);
        if self.withdrawn.len() > 32 && self.withdrawn.len() * 2 > self.queue.len() {
            let withdrawn = std::mem::take(&mut self.withdrawn);
            self.queue.retain(|waiting| !withdrawn.contains(&waiting.job));
        }
    }

    /// Takes the newest `excess` queued jobs back.
    pub(crate) fn shed(&mut self, excess: usize) -> Vec<JobId> {
        let newest = self.queue.iter().rev().map(|waiting| waiting.job);
        let live = newest.filter(|job| !self.withdrawn.contains(job));
        let jobs: Vec<JobId> = live.take(excess).collect();
        jobs.iter().for_each(|&job| self.withdraw(job));
        jobs
    }

    /// A request at `instance` ended: its slot is free again. Call
    /// [`start_next`](Self::start_next) until it returns `None` afterwards. Returns whether that
    /// was the last one of an instance that leaves.
    pub(crate) fn release(&mut self, instance: InstanceId) -> bool {
        let Some(state) = self.instances.get_mut(&instance.index) else { return false };
        self.available.remove(&(state.in_flight, state.idle_since, instance.index));
        state.in_flight = state.in_flight.saturating_sub(1);
        self.releases += 1;
        state.idle_since = self.releases;
        self.offer(instance.index);
        self.forget_if_left(instance)
    }

    /// Marks an instance up or down. A down instance gets no jobs; those that it has stay its own
    /// until they end. One that leaves stays down. Returns whether that was a change. Call
    /// [`start_next`](Self::start_next) until it returns `None` afterwards.
    pub(crate) fn set_up(&mut self, instance: InstanceId, up: bool) -> bool {
        self.change(instance, |state| &mut state.up, up)
    }

    /// Ejects an instance or readmits it; as [`set_up`](Self::set_up), which leaves this as it is.
    pub(crate) fn set_ejected(&mut self, instance: InstanceId, ejected: bool) -> bool {
        self.change(instance, |state| &mut state.ejected, ejected)
    }

    pub(crate) fn is_ejected(&self, instance: InstanceId) -> bool {
        self.instances.get(&instance.index).is_some_and(|state| state.ejected)
    }

    /// Sets a flag of an instance's, unless it leaves. Returns whether that was a change.
    fn change(
        &mut self,
        instance: InstanceId,
        flag: impl Fn(&mut Instance) -> &mut bool,
        to: bool,
    ) -> bool {
        let state = self.instances.get_mut(&instance.index).filter(|state| !state.leaving);
        let Some(state) = state else { return false };
        let served = state.serves();
        if std::mem::replace(flag(state), to) == to {
            return false;
        }
        match (served, state.serves()) {
            (false, true) => {
                self.up += 1;
                self.offer(instance.index);
            }
            (true, false) => {
                self.up -= 1;
                self.available.remove(&(state.in_flight, state.idle_since, instance.index));
            }
            _ => {}
        }
        true
    }
}
