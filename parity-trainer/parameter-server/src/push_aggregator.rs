//! A head's pushes on their way into the log: duplicates and gaps are found, and the pushes of one
//! clock added up.

use crate::{
    Clock, ConsistencyPolicy, Key, KeyRange, Keys, Operation, Pool, RangedClocks, Refusal, Shared,
    Values, WorkerId, are_moderate,
};

/// A part of a push that is not in the log yet.
#[derive(Debug, Clone)]
struct Pending {
    worker: WorkerId,
    clock: Clock,
    range: KeyRange,
    keys: Keys,
    values: Values,
}

impl Pending {
    /// The part of it that is about `range`.
    fn part(&self, range: KeyRange, width: usize) -> Self {
        let (keys, places) = self.keys.cut(self.range, range);
        let numbers = places.start.saturating_mul(width)..places.end.saturating_mul(width);
        let values = self.values.slice(numbers);
        Self {
            worker: self.worker,
            clock: self.clock,
            range,
            keys,
            values,
        }
    }
}

/// Pushes that have been received and wait to be sequenced.
#[derive(Debug, Clone)]
pub struct PushAggregator {
    width: usize,
    /// Clocks of pushes that have been received: in the log, or pending.
    received: RangedClocks,
    pending: Vec<Pending>,
    /// Where something may have become due since it was last looked for.
    touched: Vec<KeyRange>,
}

/// Ranges in the list; more are taken for the whole.
const MAX_TOUCHED: usize = 64;

impl PushAggregator {
    /// Nothing pending; `applied` is what the log contains.
    pub const fn new(width: usize, applied: RangedClocks) -> Self {
        Self {
            width,
            received: applied,
            pending: Vec::new(),
            touched: Vec::new(),
        }
    }

    /// The list of workers as it is from here on.
    pub fn set_members(&mut self, workers: &[(WorkerId, Clock)]) {
        set_members(&mut self.received, workers);
        self.touched = vec![self.received.range()];
    }

    fn touch(&mut self, range: KeyRange) {
        if self.touched.len() >= MAX_TOUCHED {
            self.touched = vec![self.received.range()];
        } else {
            self.touched.push(range);
        }
    }

    /// Returns true if the worker is a member.
    pub fn knows(&self, worker: WorkerId) -> bool {
        self.received.contains(worker)
    }

    /// Returns the number of pending parts of the worker's pushes, and the bytes of
    /// their keys and values.
    pub fn pending_of(&self, worker: WorkerId) -> (usize, usize) {
        let own = self.pending.iter().filter(|push| push.worker == worker);
        own.fold((0, 0), |(parts, bytes), push| {
            (
                parts + 1,
                bytes + push.keys.bytes() + push.values.as_bytes().len(),
            )
        })
    }

    /// Takes over the parts of a push that are new. Whether there was one.
    ///
    /// For each key, the clock must be at most one above the worker's last: a later one would make
    /// the missing one look like a duplicate when it comes (PS-2). `keys` and `values` must fit
    /// `range`.
    pub fn take(
        &mut self,
        worker: WorkerId,
        clock: Clock,
        range: KeyRange,
        keys: &Keys,
        values: &Values,
    ) -> Result<bool, Refusal> {
        let lowest = self
            .received
            .lowest_of(worker, range)
            .ok_or(Refusal::UnknownWorker)?;
        if clock > lowest.next() {
            return Err(Refusal::Gap {
                expected: lowest.next(),
            });
        }
        let new: Vec<KeyRange> = self
            .received
            .parts(worker, range)
            .filter(|&(_, last)| last < clock)
            .map(|(part, _)| part)
            .collect();
        let push = Pending {
            worker,
            clock,
            range,
            keys: keys.clone(),
            values: values.clone(),
        };
        self.pending
            .extend(new.iter().map(|&part| push.part(part, self.width)));
        self.received.advance(worker, range, clock);
        if !new.is_empty() {
            self.touch(range);
        }
        Ok(!new.is_empty())
    }

    /// Forgets what was received of these workers on `range` beyond `applied`: an update of it is
    /// refused. They push it again.
    pub fn take_back(
        &mut self,
        workers: &[(WorkerId, Clock)],
        range: KeyRange,
        applied: &RangedClocks,
    ) {
        let is_in = |push: &mut Pending| {
            workers.iter().any(|&(worker, _)| worker == push.worker)
                && push.range.intersect(range).is_some()
        };
        let taken: Vec<Pending> = self.pending.extract_if(.., is_in).collect();
        for push in taken {
            let rest = [
                KeyRange::new(push.range.start, range.start.max(push.range.start)),
                KeyRange::new(range.end.min(push.range.end), push.range.end),
            ];
            self.pending.extend(
                rest.into_iter()
                    .filter(|rest| !rest.is_empty())
                    .map(|rest| push.part(rest, self.width)),
            );
        }
        for &(worker, _) in workers {
            self.received.copy_from(applied, worker, range);
        }
    }

    /// The next update to sequence, if one is due. `None` once there is none. A sum takes a vector
    /// of `pool`.
    ///
    /// Under a model that adds up, that is all pending pushes of the lowest clock on keys where
    /// every worker has sent that clock. A push that comes after its clock was applied (its worker
    /// joined late) goes alone.
    pub fn next_update(
        &mut self,
        policy: &dyn ConsistencyPolicy,
        pool: &mut Pool<f32>,
    ) -> Option<Operation> {
        if !policy.adds_up_clocks() {
            if self.pending.is_empty() {
                return None;
            }
            let push = self.pending.remove(0);
            let (range, clocks) = (push.range, vec![(push.worker, push.clock)]);
            return Some(Operation::Update {
                range,
                clocks,
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
    /// pending; and that part.
    fn due(&self, range: KeyRange) -> Option<(Clock, KeyRange)> {
        let pending = || {
            self.pending
                .iter()
                .filter(move |push| push.range.intersect(range).is_some())
        };
        let mut clocks: Vec<Clock> = pending().map(|push| push.clock).collect();
        clocks.sort_unstable();
        clocks.dedup();
        clocks.into_iter().find_map(|clock| {
            let finished = self.received.parts_finished(range, clock);
            let with_push = |part: &KeyRange| {
                pending().any(|push| push.clock == clock && part.intersect(push.range).is_some())
            };
            finished
                .into_iter()
                .find(with_push)
                .map(|part| (clock, part))
        })
    }

    /// The sum of the pending pushes of `clock` on `part`, which are then no longer pending.
    fn add_up(&mut self, clock: Clock, part: KeyRange, pool: &mut Pool<f32>) -> Operation {
        let mut chosen = Vec::new();
        let mut rest = Vec::new();
        let is_in =
            |push: &mut Pending| push.clock == clock && part.intersect(push.range).is_some();
        for push in self.pending.extract_if(.., is_in) {
            let Some(both) = part.intersect(push.range) else {
                continue;
            };
            let pieces = [
                KeyRange::new(push.range.start, both.start),
                both,
                KeyRange::new(both.end, push.range.end),
            ];
            for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
                let part = push.part(piece, self.width);
                if piece == both {
                    chosen.push(part)
                } else {
                    rest.push(part)
                }
            }
        }
        self.pending.append(&mut rest);
        // In the workers' order, so that the sum does not depend on who came first.
        chosen.sort_by_key(|push| (push.worker, push.range));
        let range = chosen
            .iter()
            .map(|push| push.range)
            .reduce(KeyRange::hull)
            .unwrap_or(part);
        let mut clocks: Vec<(WorkerId, Clock)> =
            chosen.iter().map(|push| (push.worker, clock)).collect();
        clocks.dedup();
        let (keys, values) = sum(range, &chosen, self.width, pool);
        Operation::Update {
            range,
            clocks,
            keys,
            values,
        }
    }
}

/// Makes `clocks` those of `workers`, keeping the clocks of the workers that stay.
pub(crate) fn set_members(clocks: &mut RangedClocks, workers: &[(WorkerId, Clock)]) {
    let left: Vec<WorkerId> = clocks
        .workers()
        .filter(|worker| workers.iter().all(|(w, _)| w != worker))
        .collect();
    for worker in left {
        clocks.leave(worker);
    }
    for &(worker, clock) in workers {
        clocks.join(worker, clock);
    }
}

/// The rows of all pushes, added up; each range lies in `range`.
fn sum(range: KeyRange, pushes: &[Pending], width: usize, pool: &mut Pool<f32>) -> (Keys, Values) {
    if let [only] = pushes
        && only.range == range
    {
        return (only.keys.clone(), only.values.clone());
    }
    if let Some((first, rest)) = pushes.split_first()
        && pushes
            .iter()
            .all(|push| push.keys == Keys::All && push.range == range)
    {
        let (first, rest) = (
            first.values.to_f32(),
            rest.iter().map(|push| push.values.to_f32()),
        );
        let rest: Vec<Shared<f32>> = rest.collect();
        let mut moderate = true;
        let total = pool.filled(first.len(), |total| {
            moderate = add_dense(&first, &rest, total)
        });
        return (
            Keys::All,
            Values::F32(if moderate {
                total.known_to_be_moderate()
            } else {
                total
            }),
        );
    }
    let numbers: Vec<Shared<f32>> = pushes.iter().map(|push| push.values.to_f32()).collect();
    let mut rows: Vec<(Key, &[f32])> = Vec::new();
    for (push, numbers) in pushes.iter().zip(&numbers) {
        rows.extend(push.keys.iter(push.range).zip(numbers.chunks_exact(width)));
    }
    add_sparse(rows)
}

/// The sums of the rows of each key, in their order. The sort is stable, and takes lists that are
/// sorted as they are: a merge, without memory of its own for each row.
fn add_sparse(mut rows: Vec<(Key, &[f32])>) -> (Keys, Values) {
    rows.sort_by_key(|&(key, _)| key);
    let mut keys: Vec<Key> = Vec::new();
    let mut sums: Vec<f32> = Vec::new();
    let mut moderate = true;
    for (key, row) in rows {
        if keys.last() == Some(&key) {
            let from = sums.len().saturating_sub(row.len());
            let sum = sums.get_mut(from..).unwrap_or_default();
            sum.iter_mut()
                .zip(row)
                .for_each(|(sum, value)| *sum += value);
            moderate &= are_moderate(sum);
        } else {
            keys.push(key);
            sums.extend_from_slice(row);
            moderate &= are_moderate(row);
        }
    }
    let sums = Shared::from(sums);
    (
        Keys::List(keys.into()),
        Values::F32(if moderate {
            sums.known_to_be_moderate()
        } else {
            sums
        }),
    )
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
            let values = values.get(from..).unwrap_or_default();
            sums.iter_mut()
                .zip(values)
                .for_each(|(sum, value)| *sum += value);
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
