//! An instance: a queue, and batches that run one after the other, as in `parapet-instance`.

use std::collections::VecDeque;
use std::time::Duration;

use parapet_config::faults::{Fault, FaultPlan, FaultProfile, Freezes};
use parapet_frontend_core::JobId;
use smallvec::SmallVec;

use super::delay::to_nanos;
use super::{InstanceModel, Jobs};

#[derive(Debug, Clone, Copy)]
pub(super) struct Begun {
    /// When it ends, in nanoseconds since the start.
    pub(super) ends: u64,
    /// The life in which it began.
    pub(super) life: u32,
}

/// Fate of a request at an instance.
#[derive(Debug, Clone, Copy)]
pub(super) enum Taken {
    /// It waits or runs; a batch began if there is one.
    Accepted(Option<Begun>),
    Full,
    Away,
}

#[derive(Debug)]
pub(super) struct Instance {
    model: InstanceModel,
    plan: FaultPlan,
    freezes: Freezes,
    /// From and until when it stands still besides.
    stops: SmallVec<[(u64, u64); 1]>,
    waiting: VecDeque<JobId>,
    running: SmallVec<[JobId; 2]>,
    fails: bool,
    began: u64,
    /// Grows with each restart: what belongs to an earlier life no longer happens.
    life: u32,
    away: bool,
    busy: u64,
    batches: u64,
}

impl Instance {
    pub(super) fn new(
        model: InstanceModel,
        profile: &FaultProfile,
        number: u64,
        name: &str,
    ) -> Self {
        Self {
            model,
            plan: FaultPlan::new(profile, number, name),
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

    pub(super) fn is_away(&self) -> bool {
        self.away
    }

    /// Nanoseconds in which batches ran, up to `now`.
    pub(super) fn busy(&self, now: u64) -> u64 {
        let running = if self.running.is_empty() {
            0
        } else {
            now.saturating_sub(self.began)
        };
        self.busy + running
    }

    pub(super) fn batches(&self) -> u64 {
        self.batches
    }

    pub(super) fn take(&mut self, now: u64, job: JobId, withdrawn: &mut Jobs) -> Taken {
        if self.away {
            return Taken::Away;
        }
        if self.waiting.len() >= self.model.queue_capacity {
            return Taken::Full;
        }
        self.waiting.push_back(job);
        Taken::Accepted(if self.running.is_empty() {
            self.begin(now, withdrawn)
        } else {
            None
        })
    }

    /// The batch ends: its requests, whether they failed, and the next batch.
    pub(super) fn end(
        &mut self,
        now: u64,
        life: u32,
        withdrawn: &mut Jobs,
    ) -> Option<(SmallVec<[JobId; 2]>, bool, Option<Begun>)> {
        if life != self.life {
            return None;
        }
        self.busy += now.saturating_sub(self.began);
        let (done, fails) = (std::mem::take(&mut self.running), self.fails);
        Some((done, fails, self.begin(now, withdrawn)))
    }

    /// Starts what waits. Requests that were withdrawn meanwhile leave the queue.
    fn begin(&mut self, now: u64, withdrawn: &mut Jobs) -> Option<Begun> {
        while self.running.len() < self.model.max_batch_size
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
        let computed = now + to_nanos(delay);
        // A freeze that begins meanwhile holds the answers back.
        let mut ends = computed + to_nanos(self.freezes.remaining(Duration::from_nanos(computed)));
        for (from, until) in &self.stops {
            ends = if (*from..*until).contains(&ends) {
                *until
            } else {
                ends
            };
        }
        (self.fails, self.began) = (fails, now);
        self.batches += 1;
        Some(Begun {
            ends,
            life: self.life,
        })
    }

    /// The process ends. Returns the requests that it had.
    pub(super) fn crash(&mut self, now: u64) -> Vec<JobId> {
        if !self.running.is_empty() {
            self.busy += now.saturating_sub(self.began);
        }
        (self.life, self.away) = (self.life.wrapping_add(1), true);
        self.running
            .drain(..)
            .chain(self.waiting.drain(..))
            .collect()
    }

    pub(super) fn restart(&mut self) {
        self.away = false;
    }
}
