//! Ranged vector clocks (Li et al., OSDI 2014, section 4.1).
//!
//! A vector clock for each key would be larger than the parameters. Workers push ranges, so all
//! keys of a range have the same clock: one is kept for each (worker, range). A push splits a range
//! into at most three; equal neighbours become one again, so that a worker which pushes whole
//! shards costs one entry.

use std::collections::BTreeMap;

use crate::{Clock, Key, KeyRange, WorkerClock, WorkerId};

/// The clocks of all workers on the keys of one range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangedClocks {
    range: KeyRange,
    /// For each worker, where a clock begins to hold; it does up to the next entry. The first is at
    /// the range's start.
    workers: BTreeMap<WorkerId, Vec<(Key, Clock)>>,
}

impl RangedClocks {
    /// Of no workers.
    pub const fn new(range: KeyRange) -> Self {
        Self {
            range,
            workers: BTreeMap::new(),
        }
    }

    /// Returns the range of keys.
    pub const fn range(&self) -> KeyRange {
        self.range
    }

    /// Adds a worker that counts as having finished `clock`. Whether it was not there before.
    pub fn join(&mut self, worker: WorkerId, clock: Clock) -> bool {
        let new = !self.workers.contains_key(&worker);
        self.workers
            .entry(worker)
            .or_insert_with(|| vec![(self.range.start, clock)]);
        new
    }

    /// Removes a worker. Whether it was there.
    pub fn leave(&mut self, worker: WorkerId) -> bool {
        self.workers.remove(&worker).is_some()
    }

    /// Returns true if the worker is there.
    pub fn contains(&self, worker: WorkerId) -> bool {
        self.workers.contains_key(&worker)
    }

    /// Returns the workers.
    pub fn workers(&self) -> impl Iterator<Item = WorkerId> + '_ {
        self.workers.keys().copied()
    }

    /// Number of entries of all workers.
    pub fn entries(&self) -> usize {
        self.workers.values().map(Vec::len).sum()
    }

    /// Raises the worker's clock on `range` to `clock`, where it is lower.
    pub fn advance(&mut self, worker: WorkerId, range: KeyRange, clock: Clock) {
        let (own, Some(range)) = (self.range, self.range.intersect(range)) else {
            return;
        };
        let Some(entries) = self.workers.get_mut(&worker) else {
            return;
        };
        let first = entries
            .partition_point(|&(start, _)| start <= range.start)
            .saturating_sub(1);
        let last = entries.partition_point(|&(start, _)| start < range.end);
        let mut replaced: Vec<(Key, Clock)> = Vec::with_capacity(last - first + 2);
        let mut add = |start: Key, clock: Clock| {
            if replaced.last().is_none_or(|&(_, last)| last != clock) {
                replaced.push((start, clock));
            }
        };
        for at in first..last {
            let Some(&(start, old)) = entries.get(at) else {
                break;
            };
            let end = entries.get(at + 1).map_or(own.end, |&(next, _)| next);
            if start < range.start {
                add(start, old);
            }
            add(start.max(range.start), old.max(clock));
            if end > range.end {
                add(range.end, old);
            }
        }
        // The neighbours may have become equal to the borders.
        if let (Some(&(_, before)), Some(&(_, front))) = (
            first.checked_sub(1).and_then(|at| entries.get(at)),
            replaced.first(),
        ) && before == front
        {
            replaced.remove(0);
        }
        let before_next = replaced
            .last()
            .map(|&(_, clock)| clock)
            .or_else(|| entries.get(first.wrapping_sub(1)).map(|e| e.1));
        let last = if entries
            .get(last)
            .is_some_and(|&(_, next)| Some(next) == before_next)
        {
            last + 1
        } else {
            last
        };
        entries.splice(first..last, replaced);
    }

    /// Makes the worker's clocks on `range` those that it has in `other`.
    pub fn copy_from(&mut self, other: &Self, worker: WorkerId, range: KeyRange) {
        if !self.contains(worker) || !other.contains(worker) {
            return;
        }
        let before = KeyRange::new(self.range.start, range.start.max(self.range.start));
        let after = KeyRange::new(range.end.min(self.range.end), self.range.end);
        let parts = self.parts(worker, before).chain(other.parts(worker, range));
        let mut entries: Vec<(Key, Clock)> = Vec::new();
        for (part, clock) in parts.chain(self.parts(worker, after)) {
            if entries.last().is_none_or(|&(_, last)| last != clock) {
                entries.push((part.start, clock));
            }
        }
        self.workers.insert(worker, entries);
    }

    /// The worker's clocks on the parts of `range`, in order; nothing if it is not there.
    pub fn parts(
        &self,
        worker: WorkerId,
        range: KeyRange,
    ) -> impl Iterator<Item = (KeyRange, Clock)> + '_ {
        let entries = self
            .workers
            .get(&worker)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let first = entries
            .partition_point(|&(start, _)| start <= range.start)
            .saturating_sub(1);
        (first..entries.len()).map_while(move |at| {
            let &(start, clock) = entries.get(at)?;
            let end = entries
                .get(at + 1)
                .map_or(self.range.end, |&(next, _)| next);
            KeyRange::new(start, end)
                .intersect(range)
                .map(|part| (part, clock))
        })
    }

    /// The worker's lowest clock on `range`; `None` if it is not there.
    pub fn lowest_of(&self, worker: WorkerId, range: KeyRange) -> Option<Clock> {
        self.parts(worker, range).map(|(_, clock)| clock).min()
    }

    /// The clock that every worker has finished on all of `range`; `None` if there is no worker.
    pub fn finished(&self, range: KeyRange) -> Option<Clock> {
        self.workers
            .keys()
            .filter_map(|&worker| self.lowest_of(worker, range))
            .min()
    }

    /// The parts of `range` on which every worker has finished `clock`, in order; all of it if
    /// there is no worker.
    pub fn parts_finished(&self, range: KeyRange, clock: Clock) -> Vec<KeyRange> {
        let mut finished = if range.is_empty() {
            Vec::new()
        } else {
            vec![range]
        };
        for &worker in self.workers.keys() {
            let own: Vec<KeyRange> = self
                .parts(worker, range)
                .filter(|&(_, c)| c >= clock)
                .map(|(part, _)| part)
                .collect();
            finished = intersect(&finished, &own);
        }
        join_neighbours(finished)
    }

    /// All entries, for a copy on another server.
    pub fn to_entries(&self) -> Vec<WorkerClock> {
        let parts = |&worker: &WorkerId| {
            self.parts(worker, self.range)
                .map(move |(range, clock)| WorkerClock {
                    worker,
                    range,
                    clock,
                })
        };
        self.workers.keys().flat_map(parts).collect()
    }

    /// The clocks that [`RangedClocks::to_entries`] told of.
    pub fn from_entries(range: KeyRange, entries: &[WorkerClock]) -> Self {
        let mut clocks = Self::new(range);
        for entry in entries {
            clocks.join(entry.worker, Clock::default());
            clocks.advance(entry.worker, entry.range, entry.clock);
        }
        clocks
    }

    /// Cuts at `key`: keeps what is below, returns the rest.
    #[must_use]
    pub fn split_off(&mut self, key: Key) -> Self {
        let key = key.clamp(self.range.start, self.range.end);
        let upper = KeyRange::new(key, self.range.end);
        let entries = |worker| {
            (
                worker,
                self.parts(worker, upper)
                    .map(|(part, clock)| (part.start, clock))
                    .collect(),
            )
        };
        let workers = self.workers.keys().copied().map(entries).collect();
        self.range.end = key;
        for entries in self.workers.values_mut() {
            entries.retain(|&(start, _)| start < key);
        }
        Self {
            range: upper,
            workers,
        }
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

fn join_neighbours(ranges: Vec<KeyRange>) -> Vec<KeyRange> {
    let mut joined: Vec<KeyRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => joined.push(range),
        }
    }
    joined
}
