//! All instances, their processes' ends, the frontend's checks, and what happens next.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use parapet_frontend_core::{FailureKind, GroupId, InstanceId, JobId, PoolId, QueryId, Row};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::instance::{Batch, Begun, Instance, Taken};
use super::surroundings::nanoseconds;
use super::{Jobs, Network, Simulation};
use crate::experiment::What;

/// Streams of random numbers, apart from each other; the load's own is another generator.
const NETWORK_STREAM: u64 = 1;
const CHECKS_STREAM: u64 = 2;

/// Milliseconds between two of the frontend's checks of an instance that is up, and that is not.
const CHECK_INTERVAL_MS: f64 = 1000.0;
const RECOVERY_INTERVAL_MS: f64 = 200.0;
const FAILURES_UNTIL_DOWN: u32 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    Delivered(u32, JobId),
    /// An instance ends its batch, unless it was restarted since the life in which that began.
    BatchEnded(u32, Batch),
    Responded(JobId, Option<FailureKind>),
    Encoded(GroupId, Row),
    Decoded(QueryId),
    /// The frontend checks an instance, unless another round of checks was begun since.
    Checked(u32, u32),
    /// An instance's process ends by an event of the experiment, and is there again.
    Killed(u32),
    Revived(u32),
}

/// Times are nanoseconds since the start.
#[derive(Debug)]
pub(super) struct SimulatedCluster {
    pub(super) now: u64,
    /// Among events of one time, first come first served: the order is the same in every run.
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    pushed: u64,
    instances: Vec<Instance>,
    ids: Vec<InstanceId>,
    first: Vec<u32>,
    network: Network,
    network_random: ChaCha8Rng,
    /// Requests that the frontend has given up and that have not ended by themselves.
    withdrawn: Jobs,
    checks_random: ChaCha8Rng,
    watches: Vec<Watch>,
    pub(super) upstream_requests: u64,
}

/// The frontend's watch of one instance, which is checked only while it is not well.
#[derive(Debug, Clone, Copy, Default)]
struct Watch {
    round: u32,
    failures: u32,
}

impl SimulatedCluster {
    pub(super) fn new(simulation: &Simulation) -> Self {
        let (mut instances, mut ids, mut first) = (Vec::new(), Vec::new(), Vec::new());
        let pools = simulation.core.pools.iter().zip(&simulation.models);
        for ((pool, model), id) in pools.zip(0_u8..) {
            first.push(ids.len() as u32);
            for index in 0..pool.instances as u32 {
                instances.push(Instance::new(simulation, ids.len() as u64, model));
                ids.push(InstanceId { pool: PoolId(id), index });
            }
        }
        let stream = |number: u64| {
            let mut random = ChaCha8Rng::seed_from_u64(simulation.experiment.seed);
            random.set_stream(number);
            random
        };
        let mut cluster = Self {
            now: 0,
            events: BinaryHeap::new(),
            pushed: 0,
            watches: vec![Watch::default(); ids.len()],
            instances,
            ids,
            first,
            network: simulation.experiment.simulation.network,
            network_random: stream(NETWORK_STREAM),
            withdrawn: Jobs::default(),
            checks_random: stream(CHECKS_STREAM),
            upstream_requests: 0,
        };
        for (number, what, [from, until]) in simulation.outages() {
            match (what, cluster.instances.get_mut(number as usize)) {
                (What::Freeze, Some(instance)) => instance.stop(from, until),
                (What::Freeze, None) => {}
                (What::Kill, _) => {
                    cluster.after(from, Event::Killed(number));
                    cluster.after(until, Event::Revived(number));
                }
            }
        }
        cluster
    }

    pub(super) fn after(&mut self, delay: u64, event: Event) {
        self.pushed += 1;
        self.events.push(Reverse((self.now + delay, self.pushed, event)));
    }

    pub(super) fn next_at(&self) -> Option<u64> {
        self.events.peek().map(|Reverse((at, ..))| *at)
    }

    pub(super) fn pop(&mut self) -> Option<Event> {
        self.events.pop().map(|Reverse((.., event))| event)
    }

    pub(super) fn id(&self, number: u32) -> Option<InstanceId> {
        self.ids.get(number as usize).copied()
    }

    pub(super) fn pool(&self, pool: usize) -> impl Iterator<Item = &Instance> {
        let all = self.instances.iter().zip(&self.ids);
        all.filter(move |(_, id)| usize::from(id.pool.0) == pool).map(|(instance, _)| instance)
    }

    fn number(&self, instance: InstanceId) -> u32 {
        let first = self.first.get(usize::from(instance.pool.0));
        first.map_or(u32::MAX, |first| first + instance.index)
    }

    pub(super) fn client_delay(&mut self) -> u64 {
        self.network.client.sample(&mut self.network_random)
    }

    pub(super) fn send(&mut self, instance: InstanceId, job: JobId) {
        self.upstream_requests += 1;
        let delay = self.network.to_instance.sample(&mut self.network_random);
        self.after(delay, Event::Delivered(self.number(instance), job));
    }

    pub(super) fn withdraw(&mut self, job: JobId) {
        self.withdrawn.insert(job);
    }

    /// Returns true if the frontend gave the request up before its response came.
    pub(super) fn is_withdrawn(&mut self, job: JobId) -> bool {
        !self.withdrawn.is_empty() && self.withdrawn.remove(&job)
    }

    pub(super) fn deliver(&mut self, number: u32, job: JobId) {
        if self.is_withdrawn(job) {
            return;
        }
        let Some(instance) = self.instances.get_mut(number as usize) else { return };
        match instance.take(self.now, job, &mut self.withdrawn) {
            Taken::Accepted(begun) => self.plan_end(number, begun),
            Taken::Full => self.respond(job, Some(FailureKind::InstanceBusy)),
            Taken::Away => self.respond(job, Some(FailureKind::Unreachable)),
        }
    }

    fn respond(&mut self, job: JobId, failure: Option<FailureKind>) {
        let delay = self.network.to_frontend.sample(&mut self.network_random);
        self.after(delay, Event::Responded(job, failure));
    }

    fn plan_end(&mut self, number: u32, begun: Begun) {
        if let Some((ends, batch)) = begun {
            self.after(ends.saturating_sub(self.now), Event::BatchEnded(number, batch));
        }
    }

    pub(super) fn end_batch(&mut self, number: u32, batch: Batch) {
        let Some(instance) = self.instances.get_mut(number as usize) else { return };
        let Some((done, fails, begun)) = instance.end(self.now, batch, &mut self.withdrawn) else {
            return;
        };
        self.plan_end(number, begun);
        for job in done {
            self.respond(job, fails.then_some(FailureKind::InstanceError));
        }
    }

    pub(super) fn kill(&mut self, number: u32) {
        let Some(instance) = self.instances.get_mut(number as usize) else { return };
        for job in instance.crash(self.now) {
            self.respond(job, Some(FailureKind::ConnectionLost));
        }
        let phase = self.checks_random.random_range(0.0..1.0);
        self.plan_check(number, nanoseconds(CHECK_INTERVAL_MS * phase));
    }

    pub(super) fn revive(&mut self, number: u32) {
        if let Some(instance) = self.instances.get_mut(number as usize) {
            instance.away = false;
        }
    }

    fn plan_check(&mut self, number: u32, delay: u64) {
        if let Some(watch) = self.watches.get_mut(number as usize) {
            watch.round = watch.round.wrapping_add(1);
            let round = watch.round;
            self.after(delay, Event::Checked(number, round));
        }
    }

    pub(super) fn probe(&mut self, instance: InstanceId) {
        let there = self.network.to_instance.sample(&mut self.network_random);
        let back = self.network.to_frontend.sample(&mut self.network_random);
        let number = self.number(instance);
        let stopped = self.instances.get(number as usize);
        let stopped = stopped.map_or(0, |it| it.stopped_until(self.now) - self.now);
        self.plan_check(number, there + stopped + back);
    }

    /// A check ends. Returns what the engine is told of it, if anything.
    pub(super) fn check(&mut self, number: u32, round: u32) -> Option<bool> {
        let well = !self.instances.get(number as usize)?.away;
        let watch = self.watches.get_mut(number as usize)?;
        if watch.round != round {
            return None;
        }
        watch.failures = if well { 0 } else { watch.failures.saturating_add(1) };
        let is_down = watch.failures >= FAILURES_UNTIL_DOWN;
        if !well {
            // Up to a tenth more or less, as in the frontend.
            let interval = RECOVERY_INTERVAL_MS * self.checks_random.random_range(0.9..1.1);
            self.plan_check(number, nanoseconds(interval));
        }
        (well || is_down).then_some(well)
    }
}
