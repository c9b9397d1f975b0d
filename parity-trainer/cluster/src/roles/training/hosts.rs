//! A process's connections in a training, and what it pushes over them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::node::transport::Transport;
use crate::node::{ClientNode, ClientNodeConfig, Membership, Worker};
use crate::registry;
use parapet_parameter_server::{
    ArrayId, FilterError, KeyRange, Keys, PushFilter, Values, WorkerId,
};
use tokio_util::task::AbortOnDropHandle;

use super::job::Job;
use crate::array::ArraySpec;

/// The connections of a process: one worker for itself, which reads, and one for each executor that
/// it has worked for.
pub(super) struct Hosts<T: Transport> {
    cluster: String,
    transport: T,
    membership: Membership,
    _reports: AbortOnDropHandle<()>,
    array: ArrayId,
    spec: ArraySpec,
    numbers: Vec<u64>,
    executors: BTreeMap<usize, Worker>,
    pushes: Pushes,
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
    /// The same of executors that have gone to other processes: a step is the sum of all gradients,
    /// so that any other executor here can push it. Empty if there is nothing.
    left: Vec<f32>,
}

impl<T: Transport> Hosts<T> {
    pub(super) fn new(
        cluster: &str,
        transport: T,
        member: Arc<registry::Membership>,
        job: &Job,
    ) -> Self {
        let (membership, reports) = Membership::of(member);
        Self {
            cluster: cluster.to_owned(),
            transport,
            membership,
            _reports: reports,
            array: job.array(),
            spec: job.spec(),
            numbers: job.executors.clone(),
            executors: BTreeMap::new(),
            pushes: Pushes::new(job.array(), job.spec(), job.keys(), job.learned_keys()),
        }
    }

    fn worker(&self, number: WorkerId, membership: Membership) -> Worker {
        let arrays = vec![(self.array, self.spec.client())];
        let config = ClientNodeConfig {
            cluster: self.cluster.clone(),
            ..ClientNodeConfig::new(number, arrays)
        };
        ClientNode::start(config, self.transport.clone(), membership)
    }

    /// This process itself.
    pub(super) fn reader(&self, host: WorkerId) -> Worker {
        self.worker(host, self.membership.clone())
    }

    pub(super) fn executor(&mut self, place: usize) -> Worker {
        if let Some(worker) = self.executors.get(&place) {
            return worker.clone();
        }
        let number = self.numbers.get(place).copied().unwrap_or_default();
        // For a moment, the process that it comes from may be the same executor.
        let worker = self.worker(WorkerId(number), self.membership.silent());
        self.executors.insert(place, worker.clone());
        worker
    }

    /// Lets go of executors that have gone to other processes.
    pub(super) fn keep(&mut self, own: &BTreeSet<usize>) {
        self.executors.retain(|place, _| own.contains(place));
        self.pushes.keep(own);
    }

    /// Returns the push for the executor at this place, by ranges: its gradient, or what filters
    /// make of it.
    pub(super) fn filter(
        &mut self,
        place: usize,
        gradient: Vec<f32>,
    ) -> Result<Vec<(KeyRange, Keys, Values)>, FilterError> {
        self.pushes.filter(place, gradient)
    }
}

impl Pushes {
    fn new(array: ArrayId, spec: ArraySpec, keys: KeyRange, learned: KeyRange) -> Self {
        Self {
            array,
            spec,
            keys,
            learned,
            filters: BTreeMap::new(),
            left: Vec::new(),
        }
    }

    /// Numbers that are learned.
    fn length(&self) -> usize {
        usize::try_from(self.learned.len())
            .unwrap_or(usize::MAX)
            .saturating_mul(self.spec.width)
    }

    /// Others push for the executors that are not `own`. What was kept back of theirs goes
    /// with the next gradient from here; it is lost with the process, as is the gradient that
    /// it was computing.
    fn keep(&mut self, own: &BTreeSet<usize>) {
        let (learned, length) = (self.learned, self.length());
        for (_, mut gone) in self.filters.extract_if(.., |place, _| !own.contains(place)) {
            let (keys, values) = gone.flush(learned);
            if keys.len(learned) == 0 {
                continue;
            }
            self.left.resize(length, 0.0);
            let rows = values.to_f32();
            for (key, row) in keys
                .iter(learned)
                .zip(rows.chunks_exact(self.spec.width.max(1)))
            {
                let place = usize::try_from(key - learned.start).unwrap_or(usize::MAX);
                let at = self
                    .left
                    .iter_mut()
                    .skip(place.saturating_mul(self.spec.width));
                at.zip(row).for_each(|(left, number)| *left += number);
            }
        }
    }

    fn filter(
        &mut self,
        place: usize,
        mut gradient: Vec<f32>,
    ) -> Result<Vec<(KeyRange, Keys, Values)>, FilterError> {
        if !self.spec.filters.is_lossy() {
            return Ok(vec![(self.keys, Keys::All, Values::from(gradient))]);
        }
        let (array, ArraySpec { width, filters, .. }) = (self.array, self.spec);
        let learned = self.length();
        gradient
            .iter_mut()
            .zip(self.left.drain(..))
            .for_each(|(number, left)| *number += left);
        let filter = self.filters.entry(place);
        let filter = filter.or_insert_with(|| PushFilter::new(array, width, filters.into()));
        let measured = gradient.split_off(learned.min(gradient.len()));
        let (keys, values) =
            filter.filter(self.learned, &Keys::All, &Values::from(gradient), None)?;
        let mut parts = vec![(self.learned, keys, values)];
        if !measured.is_empty() {
            let rest = KeyRange::new(self.learned.end, self.keys.end);
            parts.push((rest, Keys::All, Values::from(measured)));
        }
        Ok(parts)
    }
}

/// Filled up with zeroes to `length`.
pub(super) fn padded(values: impl Iterator<Item = f32>, length: usize) -> Vec<f32> {
    let mut all: Vec<f32> = Vec::with_capacity(length);
    all.extend(values.take(length));
    all.resize(length, 0.0);
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::array::FilterSpec;
    use parapet_parameter_server::{Consistency, RuleSpec};

    #[test]
    fn what_rounding_left_of_an_executor_that_moves_is_pushed_by_another() {
        let filters: FilterSpec = "bf16".parse().unwrap();
        let (rule, consistency) = (RuleSpec::Add, Consistency::Bsp);
        let spec = ArraySpec {
            width: 2,
            sparse: false,
            rule,
            consistency,
            filters,
        };
        let (keys, learned) = (KeyRange::new(10, 14), KeyRange::new(10, 13));
        let mut pushes = Pushes::new(ArrayId(1), spec, keys, learned);
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
