//! An instance: a queue, and batches that run one after the other, as in `parapet-instance`.

use std::collections::VecDeque;
use std::time::Duration;

use parapet_config::faults::{Fault, FaultPlan, Freezes};
use parapet_frontend_core::JobId;
use smallvec::SmallVec;

use super::{Jobs, Simulation};

/// The life in which a batch began: what belongs to an earlier one no longer happens.
pub(super) type Batch = u32;
/// Time at which a batch that began ends, and its life.
pub(super) type Begun = Option<(u64, Batch)>;
type BatchJobs = SmallVec<[JobId; 2]>;

#[derive(Debug, Clone, Copy)]
pub(super) enum Taken {
    Accepted(Begun),
    Full,
    Away,
}

/// Times are nanoseconds since the start.
#[derive(Debug)]
pub(super) struct Instance {
    max_batch_size: usize,
    queue_capacity: usize,
    plan: FaultPlan,
    freezes: Freezes,
    stops: SmallVec<[(u64, u64); 1]>,
    waiting: VecDeque<JobId>,
    running: BatchJobs,
    fails: bool,
    began: u64,
    life: u32,
    pub(super) away: bool,
    busy: u64,
    pub(super) batches: u64,
}

impl Instance {
    pub(super) fn new(simulation: &Simulation, number: u64, model: &str) -> Self {
        let experiment = &simulation.experiment;
        let (profile, surroundings) = (&experiment.faults, &experiment.simulation);
        Self {
            max_batch_size: surroundings.max_batch_size,
            queue_capacity: surroundings.instance_queue,
            plan: FaultPlan::new(profile, number, model),
            freezes: Freezes::new(profile, number),
            stops: SmallVec::new(),
            waiting: VecDeque::new(),
            running: SmallVec::new(),
            fails: false,
            began: 0,
            life: 0,
            away: false,
            busy: 0,
            batches: 0,
        }
    }

    pub(super) fn stop(&mut self, from: u64, until: u64) {
        self.stops.push((from, until));
        self.stops.sort_unstable();
    }

    /// When a stop that `time` falls into is over, or `time`.
    pub(super) fn stopped_until(&self, time: u64) -> u64 {
        self.stops.iter().fold(time, |time, &(from, until)| match (from..until).contains(&time) {
            true => until,
            false => time,
        })
    }

    pub(super) fn busy(&self, now: u64) -> u64 {
        if self.running.is_empty() { self.busy } else { self.busy + now.saturating_sub(self.began) }
    }

    pub(super) fn take(&mut self, now: u64, job: JobId, withdrawn: &mut Jobs) -> Taken {
        if self.away {
            return Taken::Away;
        }
        if self.waiting.len() >= self.queue_capacity {
            return Taken::Full;
        }
        self.waiting.push_back(job);
        Taken::Accepted(self.running.is_empty().then(|| self.begin(now, withdrawn)).flatten())
    }

    pub(super) fn end(
        &mut self,
        now: u64,
        batch: Batch,
        withdrawn: &mut Jobs,
    ) -> Option<(BatchJobs, bool, Begun)> {
        if batch != self.life {
            return None;
        }
        self.busy = self.busy(now);
        Some((std::mem::take(&mut self.running), self.fails, self.begin(now, withdrawn)))
    }

    /// Starts what waits. Requests that were withdrawn meanwhile leave the queue.
    fn begin(&mut self, now: u64, withdrawn: &mut Jobs) -> Begun {
        while self.running.len() < self.max_batch_size
            && let Some(job) = self.waiting.pop_front()
        {
            if withdrawn.is_empty() || !withdrawn.remove(&job) {
                self.running.push(job);
            }
        }
        if self.running.is_empty() {
            return None;
        }
        let Fault { delay, fails } = self.plan.next(Duration::from_nanos(now));
        let computed = Duration::from_nanos(now).saturating_add(delay);
        // A freeze that begins meanwhile holds the answers back.
        let ends = computed.saturating_add(self.freezes.remaining(computed));
        (self.fails, self.began) = (fails, now);
        self.batches += 1;
        Some((self.stopped_until(u64::try_from(ends.as_nanos()).unwrap_or(u64::MAX)), self.life))
    }

    pub(super) fn crash(&mut self, now: u64) -> Vec<JobId> {
        self.busy = self.busy(now);
        (self.life, self.away) = (self.life.wrapping_add(1), true);
        self.running.drain(..).chain(self.waiting.drain(..)).collect()
    }
}
