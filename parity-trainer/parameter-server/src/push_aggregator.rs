//! A head's pushes on the way to the log: duplicates and gaps are found, one clock's pushes summed.

use crate::{
    Clock, Consistency, Factors, Key, KeyRange, Keys, Pool, Push, RangedClocks, Refusal, Shared,
    Update, Values, WorkerId, are_moderate,
};

/// Ranges that are remembered; more are taken for the whole.
const MAX_TOUCHED: usize = 64;

/// Pushes that have been received and wait to be sequenced.
#[derive(Debug, Clone)]
pub struct PushAggregator {
    width: usize,
    /// Clocks of pushes that have been received: in the log, or pending.
    received: RangedClocks,
    /// Parts of pushes that are not in the log yet.
    pending: Vec<Push>,
    /// Where something may have become due since it was last looked for.
    touched: Vec<KeyRange>,
}

impl PushAggregator {
    /// Nothing pending; `applied` is what the log contains.
    pub const fn new(width: usize, applied: RangedClocks) -> Self {
        Self { width, received: applied, pending: Vec::new(), touched: Vec::new() }
    }

    pub fn set_members(&mut self, workers: &[(WorkerId, Clock)]) {
        set_members(&mut self.received, workers);
        self.touched = vec![self.received.range()];
    }

    pub fn knows(&self, worker: WorkerId) -> bool {
        self.received.contains(worker)
    }

    /// Number of pending parts of the worker's pushes, and the bytes of their keys and values.
    pub fn pending_of(&self, worker: WorkerId) -> (usize, usize) {
        let (mut parts, mut bytes) = (0, 0);
        for push in self.pending.iter().filter(|push| push.worker == worker) {
            parts += 1;
            bytes += push.keys.bytes() + push.values.as_bytes().len();
        }
        (parts, bytes)
    }

    /// Takes over the parts of a push that are new. Returns true if there was one.
    ///
    /// For each key, the clock must be at most one above the worker's last: a later one would make
    /// the missing one look like a duplicate on arrival (PS-2). Keys and values must fit the range.
    pub fn take(&mut self, push: &Push) -> Result<bool, Refusal> {
        let (worker, clock, range) = (push.worker, push.clock, push.at.range);
        let lowest = self.received.lowest_of(worker, range);
        let expected = lowest.ok_or(Refusal::UnknownWorker)?.next();
        if clock > expected {
            return Err(Refusal::Gap { expected });
        }
        let before = self.pending.len();
        let parts = self.received.parts(worker, range);
        for (part, _) in parts.filter(|&(_, last)| last < clock) {
            self.pending.push(push.part(part, self.width));
        }
        self.received.advance(worker, range, clock);
        let is_new = self.pending.len() > before;
        if is_new && self.touched.len() >= MAX_TOUCHED {
            self.touched = vec![self.received.range()];
        } else if is_new {
            self.touched.push(range);
        }
        Ok(is_new)
    }

    /// Forgets what was received of these workers on `range` beyond `applied`: an update of it is
    /// refused. They push it again.
    pub fn take_back(
        &mut self,
        workers: &[(WorkerId, Clock)],
        range: KeyRange,
        applied: &RangedClocks,
    ) {
        let is_theirs = |push: &Push| workers.iter().any(|&(worker, _)| worker == push.worker);
        self.take_out(range, is_theirs);
        for &(worker, _) in workers {
            self.received.copy_from(applied, worker, range);
        }
    }

    /// The parts on `range` of the pending pushes that `is_in` names; they are no longer pending.
    fn take_out(&mut self, range: KeyRange, is_in: impl Fn(&Push) -> bool) -> Vec<Push> {
        let is_in = |push: &mut Push| is_in(push) && push.at.range.intersect(range).is_some();
        let found: Vec<Push> = self.pending.extract_if(.., is_in).collect();
        let mut taken = Vec::with_capacity(found.len());
        for push in found {
            let [below, within, above] = push.at.range.around(range);
            for rest in [below, above] {
                if !rest.is_empty() {
                    self.pending.push(push.part(rest, self.width));
                }
            }
            taken.push(push.part(within, self.width));
        }
        taken
    }

    /// The next update to sequence; `None` if none is due. A sum takes a vector of `pool`.
    ///
    /// Under a model that adds up, that is all pending pushes of the lowest clock on keys where
    /// every worker has sent that clock. A push that comes after its clock was applied (its worker
    /// joined late) goes alone.
    pub fn next_update(
        &mut self,
        consistency: Consistency,
        pool: &mut Pool<f32>,
    ) -> Option<Update> {
        if !consistency.adds_up_clocks() {
            let push = (!self.pending.is_empty()).then(|| self.pending.remove(0))?;
            return Some(Update {
                range: push.at.range,
                clocks: vec![(push.worker, push.clock)],
                keys: push.keys,
                values: push.values,
            });
        }
        while let Some(&range) = self.touched.last() {
            if let Some((clock, part)) = self.due(range) {
                return Some(self.add_up(clock, part, pool));
            }
            self.touched.pop();
        }
        None
    }

    /// The lowest clock that every worker has sent on a part of `range` where a push of it is
    /// pending; and that part, as far as the push goes: pieces that workers push apart are added up
    /// apart, so that the sum's bits do not depend on when they came.
    fn due(&self, range: KeyRange) -> Option<(Clock, KeyRange)> {
        let is_in = |push: &&Push| push.at.range.intersect(range).is_some();
        let pending = || self.pending.iter().filter(is_in);
        let mut clocks: Vec<Clock> = pending().map(|push| push.clock).collect();
        clocks.sort_unstable();
        clocks.dedup();
        clocks.into_iter().find_map(|clock| {
            let of_clock = || pending().filter(move |push| push.clock == clock);
            let pushed = |part: KeyRange| of_clock().find_map(|push| push.at.range.intersect(part));
            let finished = self.received.parts_finished(range, clock);
            Some((clock, finished.into_iter().find_map(pushed)?))
        })
    }

    /// The sum of the pending pushes of `clock` on `part`, which are then no longer pending.
    fn add_up(&mut self, clock: Clock, part: KeyRange, pool: &mut Pool<f32>) -> Update {
        let mut chosen = self.take_out(part, |push| push.clock == clock);
        // In the workers' order, so that the sum does not depend on who came first.
        chosen.sort_by_key(|push| (push.worker, push.at.range));
        let ranges = chosen.iter().map(|push| push.at.range);
        let range = ranges.reduce(KeyRange::hull).unwrap_or(part);
        let mut clocks = Vec::from_iter(chosen.iter().map(|push| (push.worker, clock)));
        clocks.dedup();
        let (keys, values) = sum(range, &chosen, self.width, pool);
        Update { range, clocks, keys, values }
    }
}

/// Makes `clocks` those of `workers`, keeping the clocks of the workers that stay.
pub(crate) fn set_members(clocks: &mut RangedClocks, workers: &[(WorkerId, Clock)]) {
    let is_gone = |worker: &WorkerId| workers.iter().all(|(other, _)| other != worker);
    let gone: Vec<WorkerId> = clocks.workers().filter(is_gone).collect();
    for worker in gone {
        clocks.leave(worker);
    }
    for &(worker, clock) in workers {
        clocks.join(worker, clock);
    }
}

/// The rows of all pushes, added up; each range lies in `range`.
fn sum(range: KeyRange, pushes: &[Push], width: usize, pool: &mut Pool<f32>) -> (Keys, Values) {
    if let [only] = pushes
        && only.at.range == range
    {
        return (only.keys.clone(), only.values.clone());
    }
    if let Some(values) = sum_of_factors(range, pushes) {
        return (Keys::All, values);
    }
    let numbers: Vec<Shared<f32>> = pushes.iter().map(|push| push.values.to_f32()).collect();
    let is_whole = |push: &Push| push.keys == Keys::All && push.at.range == range;
    if let Some((first, rest)) = numbers.split_first()
        && pushes.iter().all(is_whole)
    {
        let mut moderate = true;
        let fill = |total: &mut Vec<f32>| moderate = add_dense(first, rest, total);
        let total = pool.filled(first.len(), fill);
        return (Keys::All, Values::F32(total.marked_moderate(moderate)));
    }
    let mut rows: Vec<(Key, &[f32])> = Vec::new();
    for (push, numbers) in pushes.iter().zip(&numbers) {
        let keys = push.keys.iter(push.at.range);
        rows.extend(keys.zip(numbers.chunks_exact(width)));
    }
    add_sparse(rows)
}

/// The sum of pushes of factors, as factors if these are fewer numbers. Its bits are the same.
fn sum_of_factors(range: KeyRange, pushes: &[Push]) -> Option<Values> {
    let factors = pushes.iter().map(|push| match (&push.keys, &push.values) {
        (Keys::All, Values::Factors(factors)) if push.at.range == range => Some(factors),
        _ => None,
    });
    let joined = Factors::join(&factors.collect::<Option<Vec<_>>>()?)?;
    let is_shorter = joined.are_fewer();
    let joined = Values::Factors(joined);
    Some(if is_shorter { joined } else { Values::F32(joined.to_f32()) })
}

#[inline]
fn add(sums: &mut [f32], values: &[f32]) {
    let sums = sums.iter_mut().zip(values);
    sums.for_each(|(sum, value)| *sum += value);
}

/// The sums of the rows of each key, in their order. The sort is stable, and takes lists that are
/// sorted as they are: a merge, without memory of its own for each row.
fn add_sparse(mut rows: Vec<(Key, &[f32])>) -> (Keys, Values) {
    rows.sort_by_key(|&(key, _)| key);
    let (mut keys, mut sums): (Vec<Key>, Vec<f32>) = (Vec::new(), Vec::new());
    let mut moderate = true;
    for (key, row) in rows {
        if keys.last() == Some(&key) {
            let from = sums.len().saturating_sub(row.len());
            let sum = sums.get_mut(from..).unwrap_or_default();
            add(sum, row);
            moderate &= are_moderate(sum);
        } else {
            keys.push(key);
            sums.extend_from_slice(row);
            moderate &= are_moderate(row);
        }
    }
    let sums = Shared::from(sums).marked_moderate(moderate);
    (Keys::List(keys.into()), Values::F32(sums))
}

/// Appends the sum to `total`: block by block, so that each is written to memory once. Returns
/// true if all of it is moderate.
fn add_dense(first: &[f32], rest: &[Shared<f32>], total: &mut Vec<f32>) -> bool {
    const BLOCK: usize = 4096;
    let mut moderate = true;
    for (at, block) in first.chunks(BLOCK).enumerate() {
        let from = at * BLOCK;
        total.extend_from_slice(block);
        let sums = total.get_mut(from..).unwrap_or_default();
        for values in rest {
            add(sums, values.get(from..).unwrap_or_default());
        }
        moderate = moderate && are_moderate(sums);
    }
    moderate
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// To the bit, so that it does not depend on how rows are put in order.
        #[test]
        fn sparse_sums_are_those_of_each_key_in_the_order_of_pushes(
            pushes in prop::collection::vec(prop::collection::btree_map(0u64..30,
                (-1e6f32..1e6, -1.0f32..1.0), 0..20), 0..6),
        ) {
            let rows: Vec<Vec<(Key, [f32; 2])>> = pushes
                .iter()
                .map(|push| push.iter().map(|(&key, &(a, b))| (key, [a, b])).collect())
                .collect();
            let mut expected: BTreeMap<Key, [f32; 2]> = BTreeMap::new();
            for &(key, row) in rows.iter().flatten() {
                expected
                    .entry(key)
                    .and_modify(|sum| {
                        sum.iter_mut()
                            .zip(row)
                            .for_each(|(sum, value)| *sum += value)
                    })
                    .or_insert(row);
            }
            let (keys, values) = add_sparse(
                rows.iter()
                    .flatten()
                    .map(|(key, row)| (*key, &row[..]))
                    .collect(),
            );
            prop_assert_eq!(
                keys,
                Keys::List(expected.keys().copied().collect::<Vec<_>>().into())
            );
            prop_assert_eq!(
                values,
                Values::from(expected.into_values().flatten().collect::<Vec<_>>())
            );
        }
    }
}
