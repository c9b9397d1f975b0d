//! All instances, their processes' ends and the frontend's checks.

use parapet_frontend_core::{FailureKind, InstanceId, JobId, PoolId};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::Exp1;

use super::delay::{nanoseconds, to_nanos};
use super::instance::{Begun, Instance, Taken};
use super::queue::{Event, Queue};
use super::{Crashes, Health, Jobs, Network, Outage, Simulation};
use crate::experiment::What;

/// Streams of random numbers, apart from each other; the load's own is another generator.
const NETWORK_STREAM: u64 = 1;
const CHECKS_STREAM: u64 = 2;
const CRASHES_STREAM: u64 = 1 << 32;

#[derive(Debug)]
pub(super) struct SimulatedCluster {
    instances: Vec<Instance>,
    ids: Vec<InstanceId>,
    /// The number of each pool's first instance.
    first: Vec<u32>,
    network: Network,
    network_random: ChaCha8Rng,
    /// Requests that the frontend has given up and that have not ended by themselves.
    withdrawn: Jobs,
    crashes: Option<(Crashes, Vec<ChaCha8Rng>)>,
    health: Health,
    checks_random: ChaCha8Rng,
    watches: Vec<Watch>,
    upstream_requests: u64,
}

/// The frontend's watch of one instance. Checks of one that is well say nothing new, so only
/// others are checked.
#[derive(Debug, Clone, Copy, Default)]
struct Watch {
    round: u32,
    failures: u32,
}

impl SimulatedCluster {
    /// All instances, idle; `queue` gets the first end of each process.
    pub(super) fn new(simulation: &Simulation, queue: &mut Queue) -> Self {
        let (mut instances, mut ids, mut first) = (Vec::new(), Vec::new(), Vec::new());
        for (pool, id) in simulation.pools.iter().zip(0_u8..) {
            first.push(ids.len() as u32);
            for index in 0..pool.instances as u32 {
                let number = ids.len() as u64;
                let model = pool.role.model();
                instances.push(Instance::new(
                    simulation.instance,
                    &pool.faults,
                    number,
                    model,
                ));
                ids.push(InstanceId {
                    pool: PoolId(id),
                    index,
                });
            }
        }
        let stream = |number: u64| {
            let mut random = ChaCha8Rng::seed_from_u64(simulation.load.seed);
            random.set_stream(number);
            random
        };
        let own = |crashes: Crashes| {
            let streams = (0..ids.len() as u64).map(|number| stream(CRASHES_STREAM + number));
            (crashes, streams.collect::<Vec<_>>())
        };
        let mut cluster = Self {
            crashes: simulation.crashes.map(own),
            watches: vec![Watch::default(); ids.len()],
            instances,
            ids,
            first,
            network: simulation.network,
            network_random: stream(NETWORK_STREAM),
            withdrawn: Jobs::default(),
            health: simulation.frontend.health,
            checks_random: stream(CHECKS_STREAM),
            upstream_requests: 0,
        };
        for number in 0..cluster.instances.len() as u32 {
            cluster.plan_crash(0, number, queue);
        }
        for Outage {
            instance,
            what,
            from,
            until,
        } in &simulation.outages
        {
            let (from, until, instance) = (to_nanos(*from), to_nanos(*until), *instance);
            match what {
                What::Freeze => {
                    if let Some(instance) = cluster.instances.get_mut(instance as usize) {
                        instance.stop(from, until);
                    }
                }
                What::Kill => {
                    queue.push(from, Event::Killed { instance });
                    queue.push(until, Event::Revived { instance });
                }
            }
        }
        cluster
    }

    pub(super) fn id(&self, number: u32) -> Option<InstanceId> {
        self.ids.get(number as usize).copied()
    }

    pub(super) fn upstream_requests(&self) -> u64 {
        self.upstream_requests
    }

    pub(super) fn pool(&self, pool: usize) -> impl Iterator<Item = &Instance> {
        let own = move |(_, id): &(&Instance, &InstanceId)| usize::from(id.pool.0) == pool;
        self.instances
            .iter()
            .zip(&self.ids)
            .filter(own)
            .map(|(instance, _)| instance)
    }

    fn number(&self, instance: InstanceId) -> u32 {
        self.first
            .get(usize::from(instance.pool.0))
            .map_or(u32::MAX, |first| first + instance.index)
    }

    /// A client's time to the frontend and back.
    pub(super) fn client_delay(&mut self) -> u64 {
        self.network.client.sample(&mut self.network_random)
    }

    pub(super) fn send(&mut self, now: u64, instance: InstanceId, job: JobId, queue: &mut Queue) {
        self.upstream_requests += 1;
        let at = now + self.network.to_instance.sample(&mut self.network_random);
        queue.push(
            at,
            Event::Delivered {
                instance: self.number(instance),
                job,
            },
        );
    }

    pub(super) fn withdraw(&mut self, job: JobId) {
        self.withdrawn.insert(job);
    }

    /// Returns true if the frontend gave the request up before its response came.
    pub(super) fn is_withdrawn(&mut self, job: JobId) -> bool {
        !self.withdrawn.is_empty() && self.withdrawn.remove(&job)
    }

    pub(super) fn deliver(&mut self, now: u64, number: u32, job: JobId, queue: &mut Queue) {
        if self.is_withdrawn(job) {
            return;
        }
        let Some(instance) = self.instances.get_mut(number as usize) else {
            return;
        };
        match instance.take(now, job, &mut self.withdrawn) {
            Taken::Accepted(begun) => plan_end(number, begun, queue),
            Taken::Full => self.respond(now, job, Some(FailureKind::InstanceBusy), queue),
            Taken::Away => self.respond(now, job, Some(FailureKind::Unreachable), queue),
        }
    }

    fn respond(&mut self, now: u64, job: JobId, failure: Option<FailureKind>, queue: &mut Queue) {
        let at = now + self.network.to_frontend.sample(&mut self.network_random);
        queue.push(at, Event::Responded { job, failure });
    }

    pub(super) fn end_batch(&mut self, now: u64, number: u32, life: u32, queue: &mut Queue) {
        let Some(instance) = self.instances.get_mut(number as usize) else {
            return;
        };
        let Some((done, fails, begun)) = instance.end(now, life, &mut self.withdrawn) else {
            return;
        };
        plan_end(number, begun, queue);
        for job in done {
            self.respond(now, job, fails.then_some(FailureKind::InstanceError), queue);
        }
    }

    fn plan_crash(&mut self, now: u64, number: u32, queue: &mut Queue) {
        if let Some((crashes, random)) = &mut self.crashes
            && let Some(random) = random.get_mut(number as usize)
        {
            let interval = crashes.mean_interval_ms * random.sample::<f64, _>(Exp1);
            queue.push(
                now + nanoseconds(interval),
                Event::Crashed { instance: number },
            );
        }
    }

    pub(super) fn crash(&mut self, now: u64, number: u32, queue: &mut Queue) {
        if let Some((crashes, random)) = &mut self.crashes
            && let Some(random) = random.get_mut(number as usize)
        {
            let away = random.random_range(crashes.away.min_ms..=crashes.away.max_ms);
            queue.push(
                now + nanoseconds(away),
                Event::Restarted { instance: number },
            );
        }
        self.kill(now, number, queue);
    }

    /// A process ends, and what it had is lost.
    pub(super) fn kill(&mut self, now: u64, number: u32, queue: &mut Queue) {
        let Some(instance) = self.instances.get_mut(number as usize) else {
            return;
        };
        let lost = instance.crash(now);
        for job in lost {
            self.respond(now, job, Some(FailureKind::ConnectionLost), queue);
        }
        let phase = self.checks_random.random_range(0.0..1.0);
        self.plan_check(
            number,
            now + nanoseconds(self.health.interval.as_secs_f64() * 1e3 * phase),
            queue,
        );
    }

    pub(super) fn restart(&mut self, now: u64, number: u32, queue: &mut Queue) {
        self.revive(number);
        self.plan_crash(now, number, queue);
    }

    pub(super) fn revive(&mut self, number: u32) {
        if let Some(instance) = self.instances.get_mut(number as usize) {
            instance.restart();
        }
    }

    fn plan_check(&mut self, number: u32, at: u64, queue: &mut Queue) {
        if let Some(watch) = self.watches.get_mut(number as usize) {
            watch.round = watch.round.wrapping_add(1);
            queue.push(
                at,
                Event::Checked {
                    instance: number,
                    round: watch.round,
                },
            );
        }
    }

    /// The frontend suspects an instance: it checks it out of turn.
    pub(super) fn probe(&mut self, now: u64, instance: InstanceId, queue: &mut Queue) {
        let Network {
            to_instance,
            to_frontend,
            ..
        } = self.network;
        let there = to_instance.sample(&mut self.network_random);
        let back = to_frontend.sample(&mut self.network_random);
        self.plan_check(self.number(instance), now + there + back, queue);
    }

    /// A check ends. What the engine is told of it, if anything.
    pub(super) fn check(
        &mut self,
        now: u64,
        number: u32,
        round: u32,
        queue: &mut Queue,
    ) -> Option<bool> {
        let well = self
            .instances
            .get(number as usize)
            .is_some_and(|instance| !instance.is_away());
        let watch = self
            .watches
            .get_mut(number as usize)
            .filter(|watch| watch.round == round)?;
        watch.failures = if well {
            0
        } else {
            watch.failures.saturating_add(1)
        };
        let is_down = watch.failures >= self.health.failures;
        if !well {
            // Up to a tenth more or less, as in the frontend.
            let interval = to_nanos(self.health.recovery_interval) as f64;
            let jittered = interval * self.checks_random.random_range(0.9..1.1);
            self.plan_check(number, now + (jittered as u64).max(1), queue);
        }
        (well || is_down).then_some(well)
    }
}

fn plan_end(number: u32, begun: Option<Begun>, queue: &mut Queue) {
    if let Some(Begun { ends, life }) = begun {
        queue.push(
            ends,
            Event::BatchEnded {
                instance: number,
                life,
            },
        );
    }
}
