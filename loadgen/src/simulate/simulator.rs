//! The loop: the engine's events in, its actions out, in virtual time.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use parapet_frontend_core::{
    Action, Answer, Arrival, ClassId, DomainId, Engine, Failure, FailureKind, GroupKey, PoolId,
    QueryId, Time,
};
use rustc_hash::FxHashMap;

use super::cluster::SimulatedCluster;
use super::delay::to_nanos;
use super::queue::{Event, Queue};
use super::tally::{Sent, Tally};
use super::{PoolUse, Simulated, Simulation};
use crate::compare::Redundancy;
use crate::schedule;
use crate::target::{self, Provenance};

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Progress {
    pub planned: u64,
    pub sent: u64,
    pub elapsed_s: f64,
    /// 99th percentile of the latency so far, in milliseconds.
    pub p99_ms: f64,
}

/// Queries between two looks of the observer.
const LOOK_EVERY: u64 = 8192;

pub struct Simulator {
    simulation: Simulation,
    engine: Engine<(), ()>,
    cluster: SimulatedCluster,
    queue: Queue,
    now: u64,
    arrivals: Box<dyn Iterator<Item = u64> + Send>,
    /// The next query's planned time in microseconds.
    next: Option<u64>,
    sent: u64,
    waiting: FxHashMap<QueryId, Sent>,
    tally: Tally,
    actions: Vec<Action<(), ()>>,
    spare: Vec<Action<(), ()>>,
    input: Arc<()>,
    queues: Vec<QueueUse>,
}

#[derive(Debug, Clone, Copy, Default)]
struct QueueUse {
    /// Requests times nanoseconds.
    area: u128,
    longest: usize,
}

enum Next {
    Event,
    Timer,
    Arrival(u64),
}

impl Simulator {
    /// A simulation at its start, with all instances idle.
    pub fn new(simulation: Simulation) -> anyhow::Result<Self> {
        simulation.check()?;
        let load = simulation.load;
        let times = schedule::endless(load.arrivals, load.rate, load.seed)?;
        let mut arrivals = times.take(usize::try_from(load.queries).unwrap_or(usize::MAX));
        let mut queue = Queue::default();
        Ok(Self {
            engine: Engine::new(&simulation.core_config(), simulation.strategy.build()),
            cluster: SimulatedCluster::new(&simulation, &mut queue),
            queue,
            now: 0,
            next: arrivals.next(),
            arrivals: Box::new(arrivals),
            sent: 0,
            waiting: FxHashMap::default(),
            tally: Tally::new(&load, simulation.frontend.deadline, simulation.keep_records),
            actions: Vec::new(),
            spare: Vec::new(),
            input: Arc::new(()),
            queues: vec![QueueUse::default(); simulation.pools.len()],
            simulation,
        })
    }

    /// Runs until every query has its answer, or until `observe`, which is asked now and
    /// then, breaks off.
    pub fn run(mut self, mut observe: impl FnMut(Progress) -> ControlFlow<()>) -> Simulated {
        while let Some(next) = self.next_step() {
            match next {
                Next::Event => self.event(),
                Next::Timer => self
                    .engine
                    .tick(Time::from_nanos(self.now), &mut self.actions),
                Next::Arrival(planned_us) => {
                    self.arrive(planned_us);
                    if self.sent.is_multiple_of(LOOK_EVERY) && observe(self.progress()).is_break() {
                        break;
                    }
                }
            }
            self.act();
        }
        self.finish()
    }

    fn progress(&self) -> Progress {
        Progress {
            planned: self.simulation.load.queries,
            sent: self.sent,
            elapsed_s: self.now as f64 / 1e9,
            p99_ms: self.tally.quantile_ms(0.99),
        }
    }

    /// Moves the time to what happens next; `None` once every query has its answer. At one time
    /// what has happened elsewhere comes before the frontend's timers, and both before arrivals.
    fn next_step(&mut self) -> Option<Next> {
        if self.next.is_none() && self.waiting.is_empty() {
            return None;
        }
        let event = self.queue.next_at().unwrap_or(u64::MAX);
        let timer = self.engine.next_timer().map_or(u64::MAX, Time::as_nanos);
        let arrival = self
            .next
            .map_or(u64::MAX, |planned_us| planned_us.saturating_mul(1000));
        let at = event.min(timer).min(arrival);
        if at == u64::MAX {
            return None;
        }
        self.pass_time(at.max(self.now));
        if event == at {
            return Some(Next::Event);
        }
        if timer == at {
            return Some(Next::Timer);
        }
        let planned_us = self.next?;
        self.next = self.arrivals.next();
        Some(Next::Arrival(planned_us))
    }

    fn pass_time(&mut self, to: u64) {
        let passed = u128::from(to - self.now);
        for (queue, id) in self.queues.iter_mut().zip(0..) {
            let queued = self
                .engine
                .core()
                .pool(PoolId(id))
                .map_or(0, |pool| pool.queued());
            queue.area += passed * queued as u128;
            queue.longest = queue.longest.max(queued);
        }
        self.now = to;
    }

    fn arrive(&mut self, planned_us: u64) {
        self.sent += 1;
        let now = Time::from_nanos(self.now);
        let sent = self.tally.sent(planned_us);
        let arrival = Arrival {
            input: Arc::clone(&self.input),
            bytes: 0,
            key: GroupKey {
                domain: DomainId(0),
                kind: 0,
            },
            deadline: now + self.simulation.frontend.deadline,
            allow_approximate: self.simulation.load.allow_approximate,
            class: ClassId::DEFAULT,
        };
        match self.engine.arrive(now, arrival, &mut self.actions) {
            Ok(query) => {
                self.waiting.insert(query, sent);
            }
            Err(_) => {
                let latency_us = self.latency_us(sent);
                self.tally
                    .failed(sent, latency_us, target::Failure::Status(503));
            }
        }
    }

    fn latency_us(&mut self, sent: Sent) -> u64 {
        let nanos = self.now - sent.planned_us * 1000 + self.cluster.client_delay();
        (nanos + 500) / 1000
    }

    fn event(&mut self) {
        let Some(event) = self.queue.pop() else {
            return;
        };
        let (now, queue) = (self.now, &mut self.queue);
        let time = Time::from_nanos(now);
        match event {
            Event::Delivered { instance, job } => self.cluster.deliver(now, instance, job, queue),
            Event::BatchEnded { instance, life } => {
                self.cluster.end_batch(now, instance, life, queue)
            }
            Event::Crashed { instance } => self.cluster.crash(now, instance, queue),
            Event::Restarted { instance } => self.cluster.restart(now, instance, queue),
            Event::Killed { instance } => self.cluster.kill(now, instance, queue),
            Event::Revived { instance } => self.cluster.revive(instance),
            Event::Responded { job, failure } => {
                if !self.cluster.is_withdrawn(job) {
                    let outcome =
                        failure.map_or(Ok(()), |kind| Err(Failure::new(kind, "simulated")));
                    self.engine.finished(time, job, outcome, &mut self.actions);
                }
            }
            Event::Encoded { group, row } => {
                let parity = Some(Arc::clone(&self.input));
                self.engine
                    .encoded(time, group, row, parity, &mut self.actions);
            }
            Event::Decoded { query } => {
                self.engine
                    .reconstructed(time, query, Some(()), &mut self.actions);
            }
            Event::Checked { instance, round } => {
                if let Some(up) = self.cluster.check(now, instance, round, queue)
                    && let Some(id) = self.cluster.id(instance)
                {
                    self.engine.instance_up(time, id, up, &mut self.actions);
                }
            }
        }
    }

    fn act(&mut self) {
        if self.actions.is_empty() {
            return;
        }
        let mut actions = std::mem::replace(&mut self.actions, std::mem::take(&mut self.spare));
        let frontend = &self.simulation.frontend;
        let (encode, decode) = (to_nanos(frontend.encode), to_nanos(frontend.decode));
        for action in actions.drain(..) {
            let (now, queue) = (self.now, &mut self.queue);
            match action {
                Action::Send { job, instance, .. } => self.cluster.send(now, instance, job, queue),
                Action::Abort { job } => self.cluster.withdraw(job),
                Action::Probe { instance } => self.cluster.probe(now, instance, queue),
                Action::Encode { group, row, .. } => {
                    queue.push(now + encode, Event::Encoded { group, row });
                }
                Action::Reconstruct { query, .. } => {
                    queue.push(now + decode, Event::Decoded { query })
                }
                Action::Answer { query, answer } => self.answer(query, &answer),
                // No instance joins or leaves here.
                Action::Compare(_) | Action::Left { .. } => {}
            }
        }
        self.spare = actions;
    }

    fn answer(&mut self, query: QueryId, answer: &Answer<()>) {
        let Some(sent) = self.waiting.remove(&query) else {
            return;
        };
        let latency_us = self.latency_us(sent);
        let provenance = match answer {
            Answer::Exact(_) => Provenance::Exact,
            Answer::Hedged(_) => Provenance::Hedged,
            Answer::Backup(_) => Provenance::Backup,
            Answer::Reconstructed(_) => Provenance::Reconstructed,
            Answer::Failed(failure) => {
                let failure = seen_by_client(failure.kind);
                return self.tally.failed(sent, latency_us, failure);
            }
        };
        self.tally.answered(sent, latency_us, provenance);
    }

    fn finish(mut self) -> Simulated {
        let stats = self.engine.stats();
        let elapsed = self.now;
        let pools = self.simulation.pools.iter().zip(&self.queues).enumerate();
        let pools = pools.map(|(place, (pool, queue))| {
            let instances = || self.cluster.pool(place);
            let busy: u128 = instances()
                .map(|instance| u128::from(instance.busy(elapsed)))
                .sum();
            let batches = instances().map(|instance| instance.batches()).sum();
            let all = u128::from(elapsed.max(1));
            PoolUse {
                role: pool.role.to_string(),
                instances: pool.instances,
                utilisation: busy as f64 / (all * pool.instances.max(1) as u128) as f64,
                batches,
                mean_queue: queue.area as f64 / all as f64,
                max_queue: queue.longest,
            }
        });
        let pools = pools.collect();
        let counts = self.tally.counts();
        Simulated {
            partial: counts.unsent + counts.unanswered > 0,
            elapsed_s: elapsed as f64 / 1e9,
            counts,
            latency: self.tally.latency(),
            provenance: self.tally.provenance(),
            errors: self.tally.errors(),
            redundancy: Redundancy {
                issued: stats.redundant_issued,
                won: stats.redundant_won,
                wasted: stats.redundant_wasted,
                shed: stats.redundant_shed,
                failed: stats.redundant_failed,
                unrecoverable: stats.late_unrecoverable,
                groups: stats.groups_encoded + stats.groups_spared,
                upstream_requests: self.cluster.upstream_requests(),
            },
            retries: stats.retries,
            hold_back_ms: stats.hold_back_us as f64 / 1e3,
            pools,
            recording: self.tally.into_recording(Duration::from_nanos(elapsed)),
        }
    }
}

fn seen_by_client(failure: FailureKind) -> target::Failure {
    target::Failure::Status(match failure {
        FailureKind::DeadlineExceeded => 504,
        FailureKind::Unreachable | FailureKind::ConnectionLost | FailureKind::InstanceBusy => 503,
        FailureKind::InstanceError | FailureKind::InvalidOutput => 502,
        FailureKind::Refused => 400,
    })
}
