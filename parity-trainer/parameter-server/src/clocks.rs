//! Ranged vector clocks (Li et al., OSDI 2014, section 4.1).
//!
//! A vector clock for each key would be larger than the parameters. Workers push ranges, so one
//! clock is kept for each (worker, range). A push splits a range into at most three; equal
//! neighbours become one again, so that a worker which pushes whole shards costs one entry.

use std::collections::BTreeMap;

use crate::{Clock, Key, KeyRange, WorkerId};

/// The clocks of all workers on the keys of one range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangedClocks {
    range: KeyRange,
    /// For each worker, the keys from which clocks hold, up to the next; the first is the range's.
    workers: BTreeMap<WorkerId, Vec<(Key, Clock)>>,
}

impl RangedClocks {
    /// Of no workers.
    pub const fn new(range: KeyRange) -> Self {
        Self { range, workers: BTreeMap::new() }
    }

    pub const fn range(&self) -> KeyRange {
        self.range
    }

    /// Adds a worker that counts as having finished `clock`. Whether it was not there before.
    pub fn join(&mut self, worker: WorkerId, clock: Clock) -> bool {
        let is_new = !self.contains(worker);
        if is_new {
            self.workers.insert(worker, vec![(self.range.start, clock)]);
        }
        is_new
    }

    /// Removes a worker. Whether it was there.
    pub fn leave(&mut self, worker: WorkerId) -> bool {
        self.workers.remove(&worker).is_some()
    }

    pub fn contains(&self, worker: WorkerId) -> bool {
        self.workers.contains_key(&worker)
    }

    pub fn workers(&self) -> impl Iterator<Item = WorkerId> + '_ {
        self.workers.keys().copied()
    }

    /// Raises the worker's clock on `range` to `clock`, where it is lower.
    pub fn advance(&mut self, worker: WorkerId, range: KeyRange, clock: Clock) {
        let own = self.range;
        let Some(entries) = self.workers.get_mut(&worker) else {
            return;
        };
        // The neighbours on both sides may become equal to what is between them.
        let first = entries.partition_point(|&(start, _)| start < range.start);
        let last = entries.partition_point(|&(start, _)| start <= range.end);
        let first = first.saturating_sub(1);
        let mut replaced: Vec<(Key, Clock)> = Vec::with_capacity(last - first + 2);
        for at in first..last {
            let Some(&(start, old)) = entries.get(at) else {
                break;
            };
            let end = entries.get(at + 1).map_or(own.end, |&(next, _)| next);
            let [below, within, above] = KeyRange::new(start, end).around(range);
            for (part, clock) in [(below, old), (within, old.max(clock)), (above, old)] {
                append(&mut replaced, part, clock);
            }
        }
        entries.splice(first..last, replaced);
    }

    /// Makes the worker's clocks on `range` those that it has in `other`.
    pub fn copy_from(&mut self, other: &Self, worker: WorkerId, range: KeyRange) {
        if !self.contains(worker) || !other.contains(worker) {
            return;
        }
        let [below, within, above] = self.range.around(range);
        let parts = self.parts(worker, below).chain(other.parts(worker, within));
        let mut entries = Vec::new();
        for (part, clock) in parts.chain(self.parts(worker, above)) {
            append(&mut entries, part, clock);
        }
        self.workers.insert(worker, entries);
    }

    /// The worker's clocks on the parts of `range`, in order; nothing if it is not there.
    pub fn parts(
        &self,
        worker: WorkerId,
        range: KeyRange,
    ) -> impl Iterator<Item = (KeyRange, Clock)> + '_ {
        let entries = self.workers.get(&worker).map_or(&[][..], Vec::as_slice);
        let first = entries.partition_point(|&(start, _)| start <= range.start);
        (first.saturating_sub(1)..entries.len()).map_while(move |at| {
            let &(start, clock) = entries.get(at)?;
            let next = entries.get(at + 1);
            let end = next.map_or(self.range.end, |&(next, _)| next);
            let part = KeyRange::new(start, end).intersect(range)?;
            Some((part, clock))
        })
    }

    /// The worker's lowest clock on `range`; `None` if it is not there.
    pub fn lowest_of(&self, worker: WorkerId, range: KeyRange) -> Option<Clock> {
        self.parts(worker, range).map(|(_, clock)| clock).min()
    }

    /// The clock that every worker has finished on all of `range`; `None` if there is no worker.
    pub fn finished(&self, range: KeyRange) -> Option<Clock> {
        let workers = self.workers();
        let lowest = workers.filter_map(|worker| self.lowest_of(worker, range));
        lowest.min()
    }

    /// The parts of `range` on which every worker has finished `clock`, in order; all of it if
    /// there is no worker.
    pub fn parts_finished(&self, range: KeyRange, clock: Clock) -> Vec<KeyRange> {
        let mut finished = Vec::from_iter(Some(range).filter(|range| !range.is_empty()));
        for &worker in self.workers.keys() {
            let parts = self.parts(worker, range).filter(|&(_, own)| own >= clock);
            let own: Vec<KeyRange> = parts.map(|(part, _)| part).collect();
            finished = intersect(&finished, &own);
        }
        finished.dedup_by(|next, last| {
            let touch = last.end == next.start;
            if touch {
                last.end = next.end;
            }
            touch
        });
        finished
    }

    /// All entries, for a copy on another server.
    pub fn to_entries(&self) -> Vec<(WorkerId, KeyRange, Clock)> {
        let of_worker = |&worker: &WorkerId| {
            let parts = self.parts(worker, self.range);
            parts.map(move |(range, clock)| (worker, range, clock))
        };
        self.workers.keys().flat_map(of_worker).collect()
    }

    /// The clocks that [`RangedClocks::to_entries`] told of.
    pub fn from_entries(range: KeyRange, entries: &[(WorkerId, KeyRange, Clock)]) -> Self {
        let mut clocks = Self::new(range);
        for &(worker, part, clock) in entries {
            clocks.join(worker, Clock::default());
            clocks.advance(worker, part, clock);
        }
        clocks
    }

    /// Cuts at `key`: keeps what is below, returns the rest.
    #[must_use]
    pub fn split_off(&mut self, key: Key) -> Self {
        let key = key.clamp(self.range.start, self.range.end);
        let mut upper = Self::new(KeyRange::new(key, self.range.end));
        for &worker in self.workers.keys() {
            let parts = self.parts(worker, upper.range);
            let entries = parts.map(|(part, clock)| (part.start, clock)).collect();
            upper.workers.insert(worker, entries);
        }
        self.range.end = key;
        for entries in self.workers.values_mut() {
            entries.retain(|&(start, _)| start < key);
        }
        upper
    }
}

/// Adds a part to ascending entries, unless it is empty or goes on with the last one's clock.
fn append(entries: &mut Vec<(Key, Clock)>, part: KeyRange, clock: Clock) {
    let goes_on = entries.last().is_some_and(|&(_, last)| last == clock);
    if !part.is_empty() && !goes_on {
        entries.push((part.start, clock));
    }
}

/// The keys in both; both ascending and without overlap.
fn intersect(a: &[KeyRange], b: &[KeyRange]) -> Vec<KeyRange> {
    let (mut i, mut j) = (0, 0);
    let mut both = Vec::new();
    while let (Some(&x), Some(&y)) = (a.get(i), b.get(j)) {
        both.extend(x.intersect(y));
        if x.end <= y.end { i += 1 } else { j += 1 }
    }
    both
}
