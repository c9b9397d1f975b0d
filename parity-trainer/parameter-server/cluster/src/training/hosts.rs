//! A process's connections in a training, and what it pushes over them.

use std::collections::{BTreeMap, BTreeSet};

use parapet_parameter_server::{ArrayId, FilterError, KeyRange, Keys, PushFilter, Values, WorkerId};
use parapet_parameter_server_node::transport::Transport;
use parapet_parameter_server_node::{ClientNode, ClientNodeConfig, Worker, membership as node};

use super::job::Job;
use crate::{ArraySpec, Bridge};

/// The connections of a process: one worker for itself, which reads, and one for each executor that it has worked for.
pub(super) struct Hosts<T: Transport> {
    cluster: String,
    transport: T,
    bridge: Bridge,
    array: ArrayId,
    spec: ArraySpec,
    keys: KeyRange,
    /// Those that are learned: others carry what is measured, which no filter may change.
    learned: KeyRange,
    numbers: Vec<u64>,
    executors: BTreeMap<usize, Worker>,
    /// What has not been pushed yet of what the executors here were given.
    filters: BTreeMap<usize, PushFilter>,
}

impl<T: Transport> Hosts<T> {
    pub(super) fn new(cluster: &str, transport: T, bridge: Bridge, job: &Job) -> Self {
        Self {
            cluster: cluster.to_owned(),
            transport,
            bridge,
            array: job.array(),
            spec: job.spec(),
            keys: job.keys(),
            learned: job.learned_keys(),
            numbers: job.executors.clone(),
            executors: BTreeMap::new(),
            filters: BTreeMap::new(),
        }
    }

    fn worker(&self, number: WorkerId, membership: node::Membership) -> Worker {
        let arrays = vec![(self.array, self.spec.client())];
        let config =
            ClientNodeConfig { cluster: self.cluster.clone(), ..ClientNodeConfig::new(number, arrays) };
        ClientNode::start(config, self.transport.clone(), membership)
    }

    /// This process itself.
    pub(super) fn reader(&self, host: WorkerId) -> Worker {
        self.worker(host, self.bridge.membership())
    }

    /// The executor at this place.
    pub(super) fn executor(&mut self, place: usize) -> Worker {
        if let Some(worker) = self.executors.get(&place) {
            return worker.clone();
        }
        let number = self.numbers.get(place).copied().unwrap_or_default();
        // For a moment, the process that it comes from may be the same executor.
        let worker = self.worker(WorkerId(number), self.bridge.silent());
        self.executors.insert(place, worker.clone());
        worker
    }

    /// Lets go of executors that have gone to other processes.
    pub(super) fn keep(&mut self, own: &BTreeSet<usize>) {
        self.executors.retain(|place, _| own.contains(place));
        self.filters.retain(|place, _| own.contains(place));
    }

    /// What to push for the executor at this place, by ranges: its gradient, or what filters make of it.
    pub(super) fn filter(
        &mut self,
        place: usize,
        mut gradient: Vec<f32>,
    ) -> Result<Vec<(KeyRange, Keys, Values)>, FilterError> {
        if !self.spec.filters.is_lossy() {
            return Ok(vec![(self.keys, Keys::All, Values::from(gradient))]);
        }
        let (array, ArraySpec { width, filters, .. }) = (self.array, self.spec);
        let filter = self.filters.entry(place);
        let filter = filter.or_insert_with(|| PushFilter::new(array, width, filters.into()));
        let learned = usize::try_from(self.learned.len()).unwrap_or(usize::MAX).saturating_mul(width);
        let measured = gradient.split_off(learned.min(gradient.len()));
        let (keys, values) = filter.filter(self.learned, &Keys::All, &Values::from(gradient), None)?;
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
