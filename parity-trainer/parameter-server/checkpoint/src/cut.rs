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
    /// Keys that no shard holds, or two do, or that are no array's.
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

/// Makes sure that the shards are these arrays: every key in exactly one.
pub(crate) fn check_gaps(
    whole: &[(ArrayId, KeyRange)],
    mut shards: Vec<(ArrayId, KeyRange)>,
) -> Result<(), CutError> {
    shards.sort_unstable();
    for &(array, keys) in whole {
        let mut next = keys.start;
        for &(_, range) in shards.iter().filter(|(of, _)| *of == array) {
            if range.start != next {
                let (start, end) = (next.min(range.start), next.max(range.start));
                return Err(CutError::Gap { array, range: KeyRange::new(start, end) });
            }
            next = range.end;
        }
        if next != keys.end {
            let (start, end) = (next.min(keys.end), next.max(keys.end));
            return Err(CutError::Gap { array, range: KeyRange::new(start, end) });
        }
    }
    let known = |array: &ArrayId| whole.iter().any(|(of, _)| of == array);
    match shards.into_iter().find(|(array, _)| !known(array)) {
        Some((array, range)) => Err(CutError::Gap { array, range }),
        None => Ok(()),
    }
}
