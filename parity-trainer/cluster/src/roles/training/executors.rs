//! Executors that a process works for, and their gradients on the way to the servers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parapet_parameter_server::{
    ArrayId, FilterError, KeyRange, Keys, PushFilter, Values, WorkerId,
};

use super::Training;
use super::job::Job;
use crate::array::ArraySpec;
use crate::node::{Membership, NodeConfig, TaskSpec, Worker};
use crate::registry;
use crate::roles::Result;

/// Connections of a process: one to read, and one for each executor that it has worked for.
pub(super) struct Executors {
    config: NodeConfig,
    membership: Membership,
    numbers: Vec<u64>,
    workers: BTreeMap<usize, Worker>,
    pushes: Pushes,
}

impl Executors {
    pub(super) fn new(config: NodeConfig, member: &Arc<registry::Membership>, job: &Job) -> Self {
        Self {
            config,
            membership: Membership::of(member),
            numbers: job.executors.clone(),
            workers: BTreeMap::new(),
            pushes: Pushes {
                array: job.array(),
                spec: job.spec(),
                keys: job.keys(),
                learned: job.learned_keys(),
                filters: BTreeMap::new(),
                left: Vec::new(),
            },
        }
    }

    fn start(&self, number: WorkerId, membership: Membership) -> Worker {
        let arrays = vec![(self.pushes.array, self.pushes.spec.client())];
        Worker::start(number, arrays, self.config.clone(), membership)
    }

    /// This process itself.
    pub(super) fn reader(&self, host: WorkerId) -> Worker {
        self.start(host, self.membership.clone())
    }

    /// The worker of the executor at this place.
    pub(super) fn worker(&mut self, place: usize) -> Worker {
        if let Some(worker) = self.workers.get(&place) {
            return worker.clone();
        }
        let number = self.numbers.get(place).copied().unwrap_or_default();
        // For a moment, the process that it comes from may be the same executor.
        let worker = self.start(WorkerId(number), self.membership.silent());
        self.workers.insert(place, worker.clone());
        worker
    }

    /// Lets go of executors that have gone to other processes.
    pub(super) fn keep(&mut self, own: &BTreeSet<usize>) {
        self.workers.retain(|place, _| own.contains(place));
        self.pushes.keep(own);
    }
}

impl Training {
    /// Hands in the gradient of one executor's part of the next step: scaled so that all add up to
    /// what is to be applied, or, under models other than BSP, to be applied as it is.
    pub async fn push(
        &mut self,
        executor: usize,
        gradient: impl Iterator<Item = f32>,
    ) -> Result<()> {
        self.begin_step();
        let gradient = padded(gradient, self.job.length);
        let parts = self.executors.pushes.filter(executor, gradient);
        let parts = parts.map_err(|error| self.failed("the gradient", error))?;
        let worker = self.executors.worker(executor);
        for (range, keys, values) in parts {
            let spec = TaskSpec::new(self.job.array(), range, self.clock()).keys(keys);
            let push = worker.push(spec, values).await;
            let push = push.map_err(|error| self.failed("the gradient", error))?;
            if !self.adds_up() {
                self.stale.pushed.push(push);
                continue;
            }
            // It is acknowledged when all executors have handed in theirs.
            let failures = self.failures.0.clone();
            tokio::spawn(async move {
                if let Err(error) = push.await {
                    let _ = failures.try_send(error.to_string());
                }
            });
        }
        self.handed_in.insert(executor);
        self.stale.steps.insert(executor, self.step + 1);
        Ok(())
    }
}

/// Pushes of a process for its executors.
#[derive(Debug)]
struct Pushes {
    array: ArrayId,
    spec: ArraySpec,
    keys: KeyRange,
    /// Keys that are learned: others carry measurements, which no filter may change.
    learned: KeyRange,
    /// Remainders of the executors' gradients that have not been pushed yet.
    filters: BTreeMap<usize, PushFilter>,
    /// The same of executors that have gone to other processes; empty if there is nothing.
    left: Vec<f32>,
}

impl Pushes {
    /// Place of a row's first number among those that are learned.
    fn place(&self, key: u64) -> usize {
        let row = usize::try_from(key - self.learned.start).unwrap_or(usize::MAX);
        row.saturating_mul(self.spec.width)
    }

    /// Keeps what executors that are not `own` had not pushed yet, for the next gradient from here.
    fn keep(&mut self, own: &BTreeSet<usize>) {
        let learned = self.learned;
        let gone = self.filters.extract_if(.., |place, _| !own.contains(place));
        for mut filter in Vec::from_iter(gone.map(|(_, filter)| filter)) {
            let (keys, values) = filter.flush(learned);
            if keys.len(learned) == 0 {
                continue;
            }
            self.left.resize(self.place(learned.end), 0.0);
            let rows = values.to_f32();
            let rows = rows.chunks_exact(self.spec.width.max(1));
            for (key, row) in keys.iter(learned).zip(rows) {
                let place = self.place(key);
                let left = self.left.iter_mut().skip(place);
                left.zip(row).for_each(|(left, number)| *left += number);
            }
        }
    }

    /// Returns the push for the executor at this place, filtered, by ranges.
    fn filter(
        &mut self,
        place: usize,
        mut gradient: Vec<f32>,
    ) -> Result<Vec<(KeyRange, Keys, Values)>, FilterError> {
        if !self.spec.filters.is_lossy() {
            return Ok(vec![(self.keys, Keys::All, Values::from(gradient))]);
        }
        let left = self.left.drain(..);
        let numbers = gradient.iter_mut().zip(left);
        numbers.for_each(|(number, left)| *number += left);
        let measured = gradient.split_off(self.place(self.learned.end).min(gradient.len()));
        let (array, ArraySpec { width, filters, .. }) = (self.array, self.spec);
        let filter = self.filters.entry(place);
        let filter = filter.or_insert_with(|| PushFilter::new(array, width, filters.into()));
        let gradient = Values::from(gradient);
        let (keys, values) = filter.filter(self.learned, &Keys::All, &gradient, None)?;
        let mut parts = vec![(self.learned, keys, values)];
        if !measured.is_empty() {
            let rest = KeyRange::new(self.learned.end, self.keys.end);
            parts.push((rest, Keys::All, Values::from(measured)));
        }
        Ok(parts)
    }
}

/// Filled up with zeroes to whole rows for so many numbers.
pub(super) fn padded(values: impl Iterator<Item = f32>, length: usize) -> Vec<f32> {
    let length = length.next_multiple_of(super::ROW);
    let mut all: Vec<f32> = Vec::with_capacity(length);
    all.extend(values.take(length));
    all.resize(length, 0.0);
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use parapet_parameter_server::{Consistency, RuleSpec};

    use super::*;

    #[test]
    fn remainder_of_an_executor_that_moves_is_pushed_by_another() {
        let mut pushes = Pushes {
            array: ArrayId(1),
            spec: ArraySpec {
                width: 2,
                sparse: false,
                rule: RuleSpec::Add,
                consistency: Consistency::Bsp,
                filters: "bf16".parse().unwrap(),
            },
            keys: KeyRange::new(10, 14),
            learned: KeyRange::new(10, 13),
            filters: BTreeMap::new(),
            left: Vec::new(),
        };
        let mut pushed = [0.0_f64; 8];
        let mut push = |pushes: &mut Pushes, place, gradient: [f32; 8]| {
            for (range, keys, values) in pushes.filter(place, gradient.to_vec()).unwrap() {
                for (key, row) in keys.iter(range).zip(values.to_f32().chunks_exact(2)) {
                    let at = (key - 10) as usize * 2;
                    pushed[at] += f64::from(row[0]);
                    pushed[at + 1] += f64::from(row[1]);
                }
            }
        };
        // A third is none of bfloat16's numbers, whose last digit is a 512th there.
        push(&mut pushes, 0, [1.0 / 3.0; 8]);
        push(&mut pushes, 1, [1.0 / 3.0; 8]);
        pushes.keep(&BTreeSet::from([1]));
        for _ in 0..8 {
            push(&mut pushes, 1, [0.0; 8]);
        }
        for (at, sum) in pushed.iter().enumerate() {
            assert!((sum - 2.0 / 3.0).abs() < 1e-6, "number {at}: {sum}");
        }
    }
}
