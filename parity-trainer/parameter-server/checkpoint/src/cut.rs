//! Whether states of shards belong to one moment.

use std::collections::BTreeMap;

use parapet_parameter_server::{ArrayId, Clock, KeyRange, WorkerClock, WorkerId};

/// The clock of each worker up to which a state contains its updates, the same for all keys of all arrays.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cut(pub BTreeMap<WorkerId, Clock>);

/// Why states are no cut.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CutError {
    /// A worker's updates go further in some keys than in others.
    #[error(
        "{array}, keys {range}, contains {worker} up to {found}, other keys up to {expected}: hold the servers at one \
         clock, and try again when all have reached it"
    )]
    Uneven {
        /// An array.
        array: ArrayId,
        /// Its keys.
        range: KeyRange,
        /// The worker.
        worker: WorkerId,
        /// Its clock there.
        found: Clock,
        /// Its clock elsewhere.
        expected: Clock,
    },
    /// A worker that others know is not known there, or the other way round.
    #[error(
        "{array}, keys {range}, and other keys know different workers ({worker}): try again when all have heard"
    )]
    OtherWorkers {
        /// An array.
        array: ArrayId,
        /// Its keys.
        range: KeyRange,
        /// A worker that one of them does not know.
        worker: WorkerId,
    },
    /// Keys that no shard holds, or two do.
    #[error("{array}: keys {range} are missing, or there twice: every key must be in exactly one shard")]
    Gap {
        /// The array.
        array: ArrayId,
        /// The keys.
        range: KeyRange,
    },
}

impl Cut {
    /// The cut that these shards are of, each with its clocks.
    ///
    /// # Errors
    /// If they are not of one moment.
    pub fn of<'a>(
        shards: impl IntoIterator<Item = (ArrayId, KeyRange, &'a [WorkerClock])>,
    ) -> Result<Self, CutError> {
        let mut cut: Option<BTreeMap<WorkerId, Clock>> = None;
        for (array, range, clocks) in shards {
            let mut own: BTreeMap<WorkerId, Clock> = BTreeMap::new();
            for &WorkerClock { worker, range, clock: found } in clocks {
                let expected = *own.entry(worker).or_insert(found);
                if expected != found {
                    return Err(CutError::Uneven { array, range, worker, found, expected });
                }
            }
            let Some(cut) = &mut cut else {
                cut = Some(own);
                continue;
            };
            let unknown = |a: &BTreeMap<WorkerId, Clock>, b: &BTreeMap<WorkerId, Clock>| {
                a.keys().copied().find(|worker| !b.contains_key(worker))
            };
            if let Some(worker) = unknown(cut, &own).or_else(|| unknown(&own, cut)) {
                return Err(CutError::OtherWorkers { array, range, worker });
            }
            for (&worker, &found) in &own {
                match cut.get(&worker) {
                    Some(&expected) if expected != found => {
                        return Err(CutError::Uneven { array, range, worker, found, expected });
                    }
                    _ => {}
                }
            }
        }
        Ok(Self(cut.unwrap_or_default()))
    }

    /// The last clock that every worker has finished.
    pub fn finished(&self) -> Option<Clock> {
        self.0.values().copied().min()
    }
}

/// Makes sure that the ranges of each array follow one another.
pub(crate) fn check_gaps(mut shards: Vec<(ArrayId, KeyRange)>) -> Result<(), CutError> {
    shards.sort_unstable();
    for (&(array, before), &(next, after)) in shards.iter().zip(shards.iter().skip(1)) {
        if array == next && before.end != after.start {
            let (start, end) = (before.end.min(after.start), before.end.max(after.start));
            return Err(CutError::Gap { array, range: KeyRange::new(start, end) });
        }
    }
    Ok(())
}
