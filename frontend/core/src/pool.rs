//! Dispatch within one pool: a single FIFO at the frontend, and instances that take the next request when they have a
//! free slot (join-idle-queue). A slow or frozen instance keeps its slots busy and so takes less, with no tuning.

use std::collections::{BTreeSet, VecDeque};

use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use crate::{InstanceId, JobId, PoolId};

/// Instances to avoid when there is a choice.
pub(crate) type Avoid = SmallVec<[InstanceId; 4]>;

/// What became of a submitted job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Submitted {
    /// Start it on this instance now.
    Start(InstanceId),
    /// It waits its turn.
    Queued,
    /// The queue is full; the job was not taken.
    Full,
}

/// How many queued jobs a freed slot may look past for one that does not avoid its instance.
const LOOK_PAST: usize = 4;
/// Free instances among which a redundant request finds one of its own, if there is any: a parity query in the deployed
/// model's pool is barred from at most those of 16 members and 4 rows, a coded one from those of 31 others.
const MOST_BARRED: usize = 31;

#[derive(Debug)]
struct Instance {
    slots: u32,
    in_flight: u32,
    up: bool,
    /// Its answers were bad; no jobs for it for now, whatever health checks say.
    ejected: bool,
    /// Grows with each release: among equally loaded instances the longest idle goes first.
    idle_since: u64,
}

impl Instance {
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

/// A redundant copy in line. Which instances it must not go to is asked when one is free, since that changes while it
/// waits.
#[derive(Debug)]
struct WaitingCopy {
    ticket: u64,
    job: JobId,
    /// A parity query: nobody is late yet, so it takes no slot that a query waits for (CG-3).
    yields: bool,
}

/// A request that must keep away from some instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aside {
    /// A copy of a query: of no use where the query itself is.
    Copy,
    /// A parity query: what it must keep away from will end, and queries go first.
    Parity,
    /// A coded query in place of queries: it waits like them.
    Coded,
}

/// One pool's queue and slots. Pure bookkeeping: the caller starts what it is told to.
#[derive(Debug)]
pub struct Pool {
    id: PoolId,
    instances: Vec<Instance>,
    /// How many of them are up and not ejected.
    up: usize,
    /// Instances that are up and have a free slot: (in flight, idle since, index), best first.
    available: BTreeSet<(u32, u64, u32)>,
    queue: VecDeque<Waiting>,
    /// Jobs in `queue` that were withdrawn; they leave when they reach its head, or by compaction.
    withdrawn: FxHashSet<JobId>,
    /// Redundant copies in line. Apart from `queue`, so that one that must not go where a slot is free holds nobody up.
    copies: VecDeque<WaitingCopy>,
    tickets: u64,
    capacity: usize,
    releases: u64,
}

impl Pool {
    /// A pool of `instances` instances with `slots` concurrent requests each and at most `capacity` waiting jobs.
    pub fn new(id: PoolId, instances: usize, slots: u32, capacity: usize) -> Self {
        let slots = slots.max(1);
        let all = 0..u32::try_from(instances).unwrap_or(u32::MAX);
        Self {
            id,
            instances: all
                .clone()
                .map(|index| Instance {
                    slots,
                    in_flight: 0,
                    up: true,
                    ejected: false,
                    idle_since: u64::from(index),
                })
                .collect(),
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

    /// Jobs that may wait.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether another job would be refused.
    pub fn is_full(&self) -> bool {
        self.available.is_empty() && self.queued() >= self.capacity
    }

    /// Instances.
    pub fn len(&self) -> usize {
        self.instances.len()
    }

    /// Whether there are no instances.
    pub fn is_empty(&self) -> bool {
        self.instances.is_empty()
    }

    /// Instances that are ejected.
    pub fn ejected(&self) -> usize {
        self.instances.iter().filter(|instance| instance.ejected).count()
    }

    /// Instances that are up and not ejected.
    pub fn up(&self) -> usize {
        self.up
    }

    /// Whether any instance is up.
    pub fn is_any_up(&self) -> bool {
        self.up > 0
    }

    /// Whether a job would start at once.
    pub fn has_free_slot(&self) -> bool {
        !self.available.is_empty()
    }

    /// Requests in flight at `instance`.
    pub fn in_flight(&self, instance: InstanceId) -> u32 {
        self.instances.get(instance.index as usize).map_or(0, |instance| instance.in_flight)
    }

    /// Takes a job. Of the instances with a free slot it goes to the least loaded, longest idle one that is not in
    /// `avoid`; if there is none such, to any free one: avoiding never makes a job wait (CG-3).
    pub(crate) fn submit(&mut self, job: JobId, avoid: Avoid) -> Submitted {
        let best = self
            .available
            .iter()
            .map(|&(_, _, index)| InstanceId { pool: self.id, index })
            .take(avoid.len() + 1)
            .find(|instance| !avoid.contains(instance))
            .or_else(|| self.available.first().map(|&(_, _, index)| InstanceId { pool: self.id, index }));
        match best {
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

    /// Takes a request that must not go to an instance in `taken`. If no other is free it waits; if no other is up it is
    /// refused, unless those in `taken` will do once they are free of what they serve, as for all but copies.
    pub(crate) fn submit_copy(&mut self, job: JobId, taken: &Avoid, kind: Aside) -> Submitted {
        let here = |index| InstanceId { pool: self.id, index };
        let mut free = self.available.iter().map(|&(_, _, index)| here(index)).take(taken.len() + 1);
        if let Some(instance) = free.find(|instance| !taken.contains(instance)) {
            self.occupy(instance.index);
            return Submitted::Start(instance);
        }
        let others_up = self
            .instances
            .iter()
            .zip(0u32..)
            .any(|(state, index)| state.serves() && !taken.contains(&here(index)));
        let hopeless = if kind == Aside::Copy { !others_up } else { !self.is_any_up() };
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

    /// A request at `instance` ended: its slot is free again. Call [`start_next`](Self::start_next) until it returns
    /// `None` afterwards.
    pub(crate) fn release(&mut self, instance: InstanceId) {
        let Some(state) = self.instances.get_mut(instance.index as usize) else {
            return;
        };
        let was_available = (state.in_flight, state.idle_since, instance.index);
        self.available.remove(&was_available);
        state.in_flight = state.in_flight.saturating_sub(1);
        self.releases += 1;
        state.idle_since = self.releases;
        self.offer(instance.index);
    }

    /// Marks an instance up or down. A down instance gets no jobs; those that it has stay its own until they end.
    /// Returns whether that was a change. Call [`start_next`](Self::start_next) until it returns `None` afterwards.
    pub(crate) fn set_up(&mut self, instance: InstanceId, up: bool) -> bool {
        self.change(instance, |state| &mut state.up, up)
    }

    /// Ejects an instance, or lets it back in; as [`set_up`](Self::set_up), which leaves this as it is.
    pub(crate) fn set_ejected(&mut self, instance: InstanceId, ejected: bool) -> bool {
        self.change(instance, |state| &mut state.ejected, ejected)
    }

    /// Whether the instance is ejected.
    pub(crate) fn is_ejected(&self, instance: InstanceId) -> bool {
        self.instances.get(instance.index as usize).is_some_and(|state| state.ejected)
    }

    /// Sets a flag of an instance's. Returns whether that was a change.
    fn change(&mut self, instance: InstanceId, flag: impl Fn(&mut Instance) -> &mut bool, to: bool) -> bool {
        let Some(state) = self.instances.get_mut(instance.index as usize) else {
            return false;
        };
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
                let entry = (state.in_flight, state.idle_since, instance.index);
                self.available.remove(&entry);
            }
            _ => {}
        }
        true
    }

    /// The next queued job and the instance to start it on, if there are both: first come, first served. A redundant
    /// copy goes only to an instance of which `may_copy_to` says so.
    pub(crate) fn start_next(
        &mut self,
        may_copy_to: impl Fn(JobId, InstanceId) -> bool,
    ) -> Option<(JobId, InstanceId)> {
        let &(_, _, index) = self.available.first()?;
        let instance = InstanceId { pool: self.id, index };
        while let Some(head) = self.queue.front() {
            if !self.withdrawn.remove(&head.job) {
                break;
            }
            self.queue.pop_front();
        }
        let ahead_of = self.queue.front().map_or(u64::MAX, |head| head.ticket);
        if let Some(start) = self.start_copy(ahead_of, may_copy_to) {
            return Some(start);
        }
        let willing = self
            .queue
            .iter()
            .take(LOOK_PAST)
            .position(|waiting| !waiting.avoid.contains(&instance) && !self.withdrawn.contains(&waiting.job))
            .unwrap_or(0);
        let waiting = self.queue.remove(willing)?;
        self.occupy(index);
        Some((waiting.job, instance))
    }

    /// The first copy in line before `ahead_of` that may go to an instance with a free slot.
    fn start_copy(
        &mut self,
        ahead_of: u64,
        may_copy_to: impl Fn(JobId, InstanceId) -> bool,
    ) -> Option<(JobId, InstanceId)> {
        let queries_wait = !self.queue.is_empty();
        let mut copies = self
            .copies
            .iter()
            .enumerate()
            .take_while(|(_, copy)| copy.ticket < ahead_of)
            .filter(|(_, copy)| !(copy.yields && queries_wait))
            .take(LOOK_PAST);
        let (position, job, instance) = copies.find_map(|(position, copy)| {
            let mut free = self.available.iter().take(MOST_BARRED + 1);
            free.find_map(|&(_, _, index)| {
                let instance = InstanceId { pool: self.id, index };
                may_copy_to(copy.job, instance).then_some((position, copy.job, instance))
            })
        })?;
        self.copies.remove(position);
        self.occupy(instance.index);
        Some((job, instance))
    }

    fn occupy(&mut self, index: u32) {
        let Some(state) = self.instances.get_mut(index as usize) else {
            return;
        };
        self.available.remove(&(state.in_flight, state.idle_since, index));
        state.in_flight += 1;
        self.offer(index);
    }

    /// Lists an instance as available if it is.
    fn offer(&mut self, index: u32) {
        let Some(state) = self.instances.get(index as usize) else {
            return;
        };
        if state.serves() && state.in_flight < state.slots {
            self.available.insert((state.in_flight, state.idle_since, index));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque as Fifo;

    const POOL: PoolId = PoolId::DEPLOYED;

    fn at(index: u32) -> InstanceId {
        InstanceId { pool: POOL, index }
    }

    fn anywhere(_: JobId, _: InstanceId) -> bool {
        true
    }

    /// What starts when a request there ends.
    fn freed(pool: &mut Pool, instance: InstanceId) -> Option<(JobId, InstanceId)> {
        pool.release(instance);
        pool.start_next(anywhere)
    }

    #[test]
    fn spreads_over_idle_instances_then_queues_then_refuses() {
        let mut pool = Pool::new(POOL, 2, 1, 1);
        assert_eq!(pool.submit(JobId(1), Avoid::new()), Submitted::Start(at(0)));
        assert_eq!(pool.submit(JobId(2), Avoid::new()), Submitted::Start(at(1)));
        assert_eq!(pool.submit(JobId(3), Avoid::new()), Submitted::Queued);
        assert!(pool.is_full());
        assert_eq!(pool.submit(JobId(4), Avoid::new()), Submitted::Full);
        assert_eq!(freed(&mut pool, at(1)), Some((JobId(3), at(1))));
        assert_eq!(freed(&mut pool, at(0)), None);
        assert_eq!(freed(&mut pool, at(1)), None);
        assert_eq!(
            pool.submit(JobId(5), Avoid::new()),
            Submitted::Start(at(0)),
            "the longest idle goes first"
        );
    }

    #[test]
    fn avoids_when_there_is_a_choice_and_never_waits_for_it() {
        let mut pool = Pool::new(POOL, 2, 2, 4);
        let avoid = Avoid::from_slice(&[at(0)]);
        assert_eq!(pool.submit(JobId(1), avoid.clone()), Submitted::Start(at(1)));
        assert_eq!(pool.submit(JobId(2), avoid.clone()), Submitted::Start(at(1)));
        assert_eq!(pool.submit(JobId(3), avoid.clone()), Submitted::Start(at(0)));
        assert_eq!(pool.submit(JobId(4), avoid.clone()), Submitted::Start(at(0)));
        assert_eq!(pool.submit(JobId(5), avoid), Submitted::Queued);
        assert_eq!(pool.submit(JobId(6), Avoid::new()), Submitted::Queued);
        assert_eq!(
            freed(&mut pool, at(0)),
            Some((JobId(6), at(0))),
            "the freed slot looks past one that avoids it"
        );
        assert_eq!(
            freed(&mut pool, at(0)),
            Some((JobId(5), at(0))),
            "and takes it when there is nothing else"
        );
    }

    #[test]
    fn a_down_instance_gets_nothing_and_comes_back() {
        let mut pool = Pool::new(POOL, 2, 1, 4);
        assert!(pool.set_up(at(0), false));
        assert!(!pool.set_up(at(0), false));
        assert_eq!(pool.submit(JobId(1), Avoid::new()), Submitted::Start(at(1)));
        assert_eq!(pool.submit(JobId(2), Avoid::new()), Submitted::Queued);
        assert!(pool.set_up(at(0), true));
        assert_eq!(pool.start_next(anywhere), Some((JobId(2), at(0))));
        assert_eq!(pool.start_next(anywhere), None);
    }

    #[test]
    fn a_copy_waits_for_an_instance_of_its_own_and_holds_nobody_up() {
        let mut pool = Pool::new(POOL, 2, 2, 4);
        let taken = Avoid::from_slice(&[at(0)]);
        let elsewhere = |job, instance| job != JobId(4) || instance != at(0);
        assert_eq!(pool.submit(JobId(1), Avoid::new()), Submitted::Start(at(0)));
        assert_eq!(pool.submit_copy(JobId(2), &taken, Aside::Copy), Submitted::Start(at(1)));
        assert_eq!(pool.submit_copy(JobId(3), &taken, Aside::Copy), Submitted::Start(at(1)));
        assert_eq!(
            pool.submit_copy(JobId(4), &taken, Aside::Copy),
            Submitted::Queued,
            "although instance 0 has a free slot"
        );
        assert_eq!(pool.submit(JobId(5), Avoid::new()), Submitted::Start(at(0)), "which others take");
        assert_eq!(pool.submit(JobId(6), Avoid::new()), Submitted::Queued);
        pool.release(at(0));
        assert_eq!(pool.start_next(elsewhere), Some((JobId(6), at(0))), "past the copy");
        pool.release(at(1));
        assert_eq!(pool.start_next(elsewhere), Some((JobId(4), at(1))));
        pool.set_up(at(1), false);
        assert_eq!(
            pool.submit_copy(JobId(7), &taken, Aside::Copy),
            Submitted::Full,
            "no other instance is up"
        );
        assert_eq!(
            pool.submit_copy(JobId(8), &taken, Aside::Parity),
            Submitted::Queued,
            "the taken one will be free"
        );
    }

    #[test]
    fn a_parity_query_takes_no_slot_that_a_query_waits_for() {
        let mut pool = Pool::new(POOL, 2, 1, 4);
        let taken = Avoid::from_slice(&[at(0), at(1)]);
        assert_eq!(pool.submit(JobId(1), Avoid::new()), Submitted::Start(at(0)));
        assert_eq!(pool.submit(JobId(2), Avoid::new()), Submitted::Start(at(1)));
        assert_eq!(pool.submit_copy(JobId(3), &taken, Aside::Parity), Submitted::Queued);
        assert_eq!(pool.submit(JobId(4), Avoid::new()), Submitted::Queued);
        assert_eq!(freed(&mut pool, at(0)), Some((JobId(4), at(0))), "although it came later");
        assert_eq!(freed(&mut pool, at(1)), Some((JobId(3), at(1))));
    }

    proptest! {
        /// Against a plain model: nothing starts without a free slot, nothing is lost, started twice or started after
        /// it was withdrawn, and no job waits while an instance that is up has a free slot.
        #[test]
        fn keeps_its_books(ops in proptest::collection::vec((0u8..5, 0u32..3), 1..300)) {
            let (slots, capacity) = (2u32, 5usize);
            let mut pool = Pool::new(POOL, 3, slots, capacity);
            let mut running: Vec<(JobId, InstanceId)> = Vec::new();
            let mut queued: Fifo<JobId> = Fifo::new();
            let mut up = [true; 3];
            let mut next = 0;
            for (op, index) in ops {
                let mut started = Vec::new();
                match op {
                    0 | 1 => {
                        next += 1;
                        let job = JobId(next);
                        match pool.submit(job, Avoid::from_slice(&[at(index)])) {
                            Submitted::Start(instance) => started.push((job, instance)),
                            Submitted::Queued => queued.push_back(job),
                            Submitted::Full => prop_assert!(queued.len() >= capacity),
                        }
                    }
                    2 => {
                        if !running.is_empty() {
                            let (_, instance) = running.swap_remove(index as usize % running.len());
                            started.extend(freed(&mut pool, instance));
                        }
                    }
                    3 => {
                        if !queued.is_empty() {
                            let job = queued.remove(index as usize % queued.len()).unwrap();
                            pool.withdraw(job);
                        }
                    }
                    _ => {
                        up[index as usize] = !up[index as usize];
                        pool.set_up(at(index), up[index as usize]);
                        while let Some(start) = pool.start_next(anywhere) {
                            started.push(start);
                        }
                    }
                }
                for (job, instance) in started {
                    prop_assert!(up[instance.index as usize], "started on a down instance");
                    queued.retain(|&waiting| waiting != job);
                    running.push((job, instance));
                }
                for index in 0..3 {
                    let load = running.iter().filter(|(_, instance)| instance.index == index).count();
                    prop_assert!(load <= slots as usize);
                    prop_assert_eq!(load, pool.in_flight(at(index)) as usize);
                }
                prop_assert_eq!(pool.queued(), queued.len());
                if pool.has_free_slot() {
                    prop_assert!(queued.is_empty(), "a job waits beside a free slot");
                }
                prop_assert_eq!(pool.is_any_up(), up.contains(&true));
            }
        }
    }
}
