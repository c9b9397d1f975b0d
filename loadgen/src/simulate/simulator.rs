//! The loop: the engine's events in, its actions out, in virtual time.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use parapet_frontend_core::{
    Action, Answer, Arrival, ClassId, DomainId, Engine, Failure, FailureKind, GroupKey, PoolId,
    QueryId, Time,
};
use rustc_hash::FxHashMap;

use super::cluster::{Event, SimulatedCluster};
use super::surroundings::nanoseconds;
use super::{Answered, PoolUse, Simulated, Simulation};
use crate::compare::Redundancy;
use crate::report::{Counts, Tally};
use crate::run::{Record, Recording, RequestOutcome};
use crate::schedule;
use crate::target::{self, Provenance};

const LOOK_EVERY: usize = 8192;

pub struct Simulator {
    simulation: Simulation,
    engine: Engine<(), ()>,
    cluster: SimulatedCluster,
    arrivals: Box<dyn Iterator<Item = u64> + Send>,
    next: Option<u64>,
    waiting: FxHashMap<QueryId, Sent>,
    actions: Vec<Action<(), ()>>,
    input: Arc<()>,
    queues: Vec<QueueUse>,
    sent: usize,
    /// Of queries that have ended. It does not grow with their number, as records do.
    tally: Tally,
    records: Option<Vec<Record>>,
}

#[derive(Debug, Clone, Copy)]
struct Sent {
    index: usize,
    planned_us: u64,
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
    pub fn new(simulation: Simulation) -> anyhow::Result<Self> {
        simulation.check()?;
        let experiment = &simulation.experiment;
        let times = schedule::endless(experiment.arrivals, experiment.rate, experiment.seed)?;
        let mut arrivals = times.take(experiment.requests);
        Ok(Self {
            engine: Engine::new(&simulation.core, simulation.arm.config.build()),
            cluster: SimulatedCluster::new(&simulation),
            next: arrivals.next(),
            arrivals: Box::new(arrivals),
            waiting: FxHashMap::default(),
            actions: Vec::new(),
            input: Arc::new(()),
            queues: vec![QueueUse::default(); simulation.arm.pools.len()],
            sent: 0,
            tally: Tally::default(),
            records: simulation.keep_records.then(Vec::new),
            simulation,
        })
    }

    /// Runs until every query has its answer, or until `observe`, which is told now and then how
    /// many were sent, breaks off.
    pub fn run(mut self, mut observe: impl FnMut(usize) -> ControlFlow<()>) -> Simulated {
        while let Some(next) = self.next_step() {
            match next {
                Next::Event => self.event(),
                Next::Timer => self.engine.tick(self.time(), &mut self.actions),
                Next::Arrival(planned_us) => {
                    self.arrive(planned_us);
                    if self.sent.is_multiple_of(LOOK_EVERY) && observe(self.sent).is_break() {
                        break;
                    }
                }
            }
            self.act();
        }
        self.finish()
    }

    fn time(&self) -> Time {
        Time::from_nanos(self.cluster.now)
    }

    /// Moves the time to what happens next; `None` once every query has its answer. At one time
    /// what has happened elsewhere comes before the frontend's timers, and both before arrivals.
    fn next_step(&mut self) -> Option<Next> {
        if self.next.is_none() && self.waiting.is_empty() {
            return None;
        }
        let event = self.cluster.next_at().unwrap_or(u64::MAX);
        let timer = self.engine.next_timer().map_or(u64::MAX, Time::as_nanos);
        let arrival = self.next.map_or(u64::MAX, |planned_us| planned_us.saturating_mul(1000));
        let at = event.min(timer).min(arrival);
        if at == u64::MAX {
            return None;
        }
        self.pass_time(at.max(self.cluster.now));
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
        let passed = u128::from(to - self.cluster.now);
        for (queue, id) in self.queues.iter_mut().zip(0..) {
            let pool = self.engine.core().pool(PoolId(id));
            let queued = pool.map_or(0, |pool| pool.queued());
            queue.area += passed * queued as u128;
            queue.longest = queue.longest.max(queued);
        }
        self.cluster.now = to;
    }

    fn arrive(&mut self, planned_us: u64) {
        let sent = Sent { index: self.sent, planned_us };
        self.sent += 1;
        if let Some(records) = &mut self.records {
            records.push(Record { planned_us, sent_us: Some(planned_us), ..Record::default() });
        }
        let now = self.time();
        let (domain, kind, experiment) = (DomainId(0), 0, &self.simulation.experiment);
        let arrival = Arrival {
            input: Arc::clone(&self.input),
            bytes: 0,
            key: GroupKey { domain, kind },
            deadline: now + Duration::from_millis(experiment.timeout_ms),
            allow_approximate: experiment.simulation.allow_approximate,
            may_join: true,
            class: ClassId::DEFAULT,
        };
        match self.engine.arrive(now, arrival, &mut self.actions) {
            Ok(query) => drop(self.waiting.insert(query, sent)),
            Err(_) => self.done(sent, RequestOutcome::Failed(target::Failure::Status(503))),
        }
    }

    fn event(&mut self) {
        let Some(event) = self.cluster.pop() else { return };
        let (time, cluster, actions) = (self.time(), &mut self.cluster, &mut self.actions);
        match event {
            Event::Delivered(instance, job) => cluster.deliver(instance, job),
            Event::BatchEnded(instance, batch) => cluster.end_batch(instance, batch),
            Event::Killed(instance) => cluster.kill(instance),
            Event::Revived(instance) => cluster.revive(instance),
            Event::Responded(job, _) if cluster.is_withdrawn(job) => {}
            Event::Responded(job, failure) => {
                let outcome = failure.map_or(Ok(()), |kind| Err(Failure::new(kind, "simulated")));
                self.engine.finished(time, job, outcome, actions);
            }
            Event::Encoded(group, row) => {
                self.engine.encoded(time, group, row, Some(Arc::clone(&self.input)), actions);
            }
            Event::Decoded(query) => self.engine.reconstructed(time, query, Some(()), actions),
            Event::Checked(instance, round) => {
                if let Some(up) = cluster.check(instance, round)
                    && let Some(id) = cluster.id(instance)
                {
                    self.engine.instance_up(time, id, up, actions);
                }
            }
        }
    }

    fn act(&mut self) {
        if self.actions.is_empty() {
            return;
        }
        let mut actions = std::mem::take(&mut self.actions);
        let surroundings = &self.simulation.experiment.simulation;
        let encode = nanoseconds(surroundings.encode_ms);
        let decode = nanoseconds(surroundings.decode_ms);
        for action in actions.drain(..) {
            let cluster = &mut self.cluster;
            match action {
                Action::Send { job, instance, .. } => cluster.send(instance, job),
                Action::Abort { job } => cluster.withdraw(job),
                Action::Probe { instance } => cluster.probe(instance),
                Action::Encode { group, row, .. } => {
                    cluster.after(encode, Event::Encoded(group, row));
                }
                Action::Reconstruct { query, .. } => cluster.after(decode, Event::Decoded(query)),
                Action::Answer { query, answer } => self.answer(query, &answer),
                // No instance joins or leaves here.
                Action::Compare(_) | Action::Left { .. } => {}
            }
        }
        self.actions = actions;
    }

    fn answer(&mut self, query: QueryId, answer: &Answer<()>) {
        let Some(sent) = self.waiting.remove(&query) else { return };
        let provenance = match answer {
            Answer::Exact(_) => Provenance::Exact,
            Answer::Hedged(_) => Provenance::Hedged,
            Answer::Backup(_) => Provenance::Backup,
            Answer::Reconstructed(_) => Provenance::Reconstructed,
            Answer::Failed(failure) => {
                return self.done(sent, RequestOutcome::Failed(seen_by_client(failure.kind)));
            }
        };
        let answer = target::Answer { provenance, confidence: None, class: None };
        self.done(sent, RequestOutcome::Answered(answer));
    }

    fn done(&mut self, Sent { index, planned_us }: Sent, outcome: RequestOutcome) {
        let passed = self.cluster.now - planned_us * 1000;
        let latency_us = (passed + self.cluster.client_delay() + 500) / 1000;
        let record = Record {
            planned_us,
            sent_us: Some(planned_us),
            done_us: Some(planned_us + latency_us),
            outcome: Some(outcome),
            ..Record::default()
        };
        let deadline_us = self.simulation.experiment.timeout_ms.saturating_mul(1000);
        let charged_us = match outcome {
            RequestOutcome::Answered(_) => latency_us,
            _ => latency_us.max(deadline_us),
        };
        self.tally.add(&record, Some(charged_us));
        let kept = self.records.as_mut();
        if let Some(kept) = kept.and_then(|records| records.get_mut(index)) {
            *kept = record;
        }
    }

    fn finish(mut self) -> Simulated {
        let (stats, elapsed) = (self.engine.stats(), self.cluster.now);
        let pools: Vec<PoolUse> = (0..self.queues.len()).map(|pool| self.pool_use(pool)).collect();
        let (ended, planned) = (self.tally.counts, self.simulation.experiment.requests);
        let counts = Counts {
            planned,
            sent: self.sent,
            unanswered: self.sent - ended.sent,
            unsent: planned - self.sent,
            ..ended
        };
        let partial = ended.sent < planned;
        let answers = self.tally.provenance().into_iter().map(|(kind, answers)| {
            let answered = Answered {
                count: answers.count as u64,
                share: answers.share,
                latency: answers.latency,
            };
            (kind, answered)
        });
        let recording = self.records.take().map(|records| Recording {
            sending_ended: Duration::from_micros(records.last().map_or(0, |it| it.planned_us)),
            records,
            ended: Duration::from_nanos(elapsed),
            partial,
        });
        Simulated {
            name: self.simulation.name,
            description: self.simulation.arm.description,
            instances: pools.iter().map(|pool| pool.instances).sum(),
            partial,
            elapsed_s: elapsed as f64 / 1e9,
            counts,
            latency: self.tally.latency(),
            provenance: answers.collect(),
            errors: self.tally.errors,
            redundancy: Redundancy {
                issued: stats.redundant.issued,
                won: stats.redundant.won,
                wasted: stats.redundant.wasted,
                shed: stats.redundant.shed,
                failed: stats.redundant.failed,
                unrecoverable: stats.late_unrecoverable,
                groups: stats.groups_encoded + stats.groups_spared,
                upstream_requests: self.cluster.upstream_requests,
            },
            retries: stats.retries,
            hold_back_ms: stats.hold_back_us as f64 / 1e3,
            pools,
            recording,
        }
    }

    fn pool_use(&self, pool: usize) -> PoolUse {
        let (elapsed, queue) = (self.cluster.now, self.queues[pool]);
        let busy = self.cluster.pool(pool).map(|instance| u128::from(instance.busy(elapsed)));
        let (busy, all): (u128, _) = (busy.sum(), u128::from(elapsed.max(1)));
        let instances = self.simulation.core.pools[pool].instances;
        PoolUse {
            role: self.simulation.arm.pools[pool].0.to_string(),
            instances,
            utilisation: busy as f64 / (all * instances.max(1) as u128) as f64,
            batches: self.cluster.pool(pool).map(|instance| instance.batches).sum(),
            mean_queue: queue.area as f64 / all as f64,
            max_queue: queue.longest,
        }
    }
}

fn seen_by_client(failure: FailureKind) -> target::Failure {
    target::Failure::Status(match failure {
        FailureKind::DeadlineExceeded => 504,
        FailureKind::Unreachable
        | FailureKind::ConnectionLost
        | FailureKind::InstanceBusy
        | FailureKind::Shed => 503,
        FailureKind::InstanceError | FailureKind::InvalidOutput => 502,
        FailureKind::Refused => 400,
    })
}
