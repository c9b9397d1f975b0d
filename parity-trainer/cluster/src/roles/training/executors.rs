//! Executors that a process works for, and their gradients on the way to the servers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parapet_parameter_server::{
    Factors, FilterError, Key, KeyRange, Keys, PushFilter, Values, WorkerId,
};

use super::{Job, ROW, Training, mirrored};
use crate::node::{Membership, NodeConfig, TaskError, TaskSpec, Worker};
use crate::registry;
use crate::roles::Result;

/// Connections of a process: one to read, and one for each executor that it has worked for.
pub(super) struct Executors {
    config: NodeConfig,
    membership: Membership,
    job: Job,
    workers: BTreeMap<usize, Worker>,
    /// Remainders of the executors' gradients, which are lost with an executor that goes.
    filters: BTreeMap<usize, PushFilter>,
}

impl Executors {
    pub(super) fn new(config: NodeConfig, member: &Arc<registry::Membership>, job: &Job) -> Self {
        Self {
            config,
            membership: Membership::of(member),
            job: job.clone(),
            workers: BTreeMap::new(),
            filters: BTreeMap::new(),
        }
    }

    fn start(&self, number: WorkerId, membership: Membership) -> Worker {
        let arrays = vec![(self.job.array(), self.job.spec().client())];
        Worker::start(number, arrays, self.config.clone(), membership)
    }

    pub(super) fn reader(&self, host: WorkerId) -> Worker {
        self.start(host, self.membership.clone())
    }

    pub(super) fn worker(&mut self, place: usize) -> Worker {
        if let Some(worker) = self.workers.get(&place) {
            return worker.clone();
        }
        let number = self.job.executors.get(place).copied().unwrap_or_default();
        // For a moment, the process that it comes from may be the same executor.
        let silent = Membership::silent(self.membership.view.clone());
        let worker = self.start(WorkerId(number), silent);
        self.workers.insert(place, worker.clone());
        worker
    }

    /// Lets go of executors that have gone to other processes. Pushes go on: these may not have the
    /// parameters from which they come. If they do, and hand in the part again, the pushes end as
    /// one of them connects as the executor.
    pub(super) fn keep(&mut self, own: &BTreeSet<usize>, is_handed_in_again: bool) {
        let is_gone = |place: &usize, _: &mut Worker| !own.contains(place);
        for (_, worker) in self.workers.extract_if(.., is_gone) {
            if is_handed_in_again {
                worker.finish();
            }
        }
        self.filters.retain(|place, _| own.contains(place));
    }

    /// Returns the push of these keys for the executor at this place, filtered, by ranges.
    fn filter(
        &mut self,
        place: usize,
        keys: KeyRange,
        gradient: Values,
    ) -> Result<Vec<(KeyRange, Keys, Values)>, FilterError> {
        let (array, filters) = (self.job.array(), self.job.filters);
        if !filters.is_lossy() || matches!(gradient, Values::Factors(_)) {
            return Ok(vec![(keys, Keys::All, gradient)]);
        }
        // The other keys carry measurements, which no filter may change.
        let learned = KeyRange::new(keys.start, self.job.learned_keys().end.min(keys.end));
        let border = learned.len() as usize * ROW;
        let (gradient, measured) = (gradient.slice(0..border), gradient.slice(border..usize::MAX));
        let filter = self.filters.entry(place);
        let filter = filter.or_insert_with(|| PushFilter::new(array, ROW, filters.into()));
        let (sent, values) = filter.filter(learned, &Keys::All, &gradient, None)?;
        let mut parts = vec![(learned, sent, values)];
        if !measured.is_empty() {
            let rest = KeyRange::new(learned.end, keys.end);
            parts.push((rest, Keys::All, measured));
        }
        Ok(parts)
    }
}

impl Training {
    /// Hands in the gradient of one executor's part of the next step: scaled so that all add up to
    /// what is to be applied, or, under models other than BSP, to be applied as it is. It may come
    /// in pieces, the last rows first: each begins at row `from`, and 0 ends the part.
    pub async fn push(
        &mut self,
        executor: usize,
        from: Key,
        gradient: impl Iterator<Item = f32>,
    ) -> Result<()> {
        self.push_factors(executor, from, gradient, Vec::new()).await
    }

    /// The same with gradients of layers as factors, beside their places in the array. Rows that
    /// have numbers of other layers, too, are taken from `gradient`.
    pub async fn push_factors(
        &mut self,
        executor: usize,
        from: Key,
        gradient: impl Iterator<Item = f32>,
        factors: Vec<(usize, Factors)>,
    ) -> Result<()> {
        self.begin_step();
        let is_last = from == 0;
        self.pace.computed(self.since.elapsed(), is_last);
        // Whole rows, and no row of a piece that was handed in before.
        let rest = self.job.length.saturating_sub(from as usize * ROW);
        let mut gradient = Vec::from_iter(gradient.take(rest));
        gradient.resize(gradient.len().next_multiple_of(ROW), 0.0);
        let keys = KeyRange::new(from, from + (gradient.len() / ROW) as u64);
        let mut parts = Vec::new();
        for (range, values) in mirrored::cut(&mut self.mirrored, from, gradient, factors) {
            let filtered = self.executors.filter(executor, range, values);
            parts.extend(filtered.map_err(|error| self.failed("the gradient", error))?);
        }
        let worker = self.executors.worker(executor);
        for (range, keys, values) in parts {
            let spec = TaskSpec::new(self.job.array(), range, self.clock()).keys(keys);
            let push = tokio::select! {
                push = worker.push(spec, values) => push,
                error = self.orphaned() => return Err(error),
            };
            let push = push.map_err(|error| self.failed("the gradient", error))?;
            if !self.adds_up() {
                self.stale.pushed.push(push);
                continue;
            }
            // It is acknowledged when all executors have handed in theirs.
            let failures = self.failures.0.clone();
            tokio::spawn(async move {
                match push.await {
                    // The executor has gone to another process.
                    Ok(()) | Err(TaskError::Stopped) => {}
                    Err(error) => drop(failures.try_send(error.to_string())),
                }
            });
        }
        self.ask_ahead(executor, keys).await?;
        if is_last {
            self.handed_in.insert(executor);
            self.stale.steps.insert(executor, self.step + 1);
        }
        self.pace.begin(self.since.elapsed());
        Ok(())
    }
}

/// Filled up with zeroes to whole rows for so many numbers.
pub(super) fn padded(values: impl Iterator<Item = f32>, length: usize) -> Vec<f32> {
    let length = length.next_multiple_of(ROW);
    let mut all: Vec<f32> = Vec::with_capacity(length);
    all.extend(values.take(length));
    all.resize(length, 0.0);
    all
}
