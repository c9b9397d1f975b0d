//! Rows of each worker in each iteration, and the keys to pull for them.

use parapet_parameter_server::Key;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use crate::{Row, Rows};

/// Rows with their features numbered anew: the place of a feature is that of its key in a pull.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Minibatch {
    keys: Vec<Key>,
    /// Each feature of the rows as a place in `keys`.
    rows: Rows,
}

impl Minibatch {
    /// The rows at these places; places without a row are left out.
    pub(crate) fn new(rows: &Rows, places: &[u32]) -> Self {
        let chosen = || {
            places
                .iter()
                .filter_map(|&place| rows.get(usize::try_from(place).ok()?))
        };
        let mut features: Vec<u32> = chosen().flat_map(|row| row.features).copied().collect();
        features.sort_unstable();
        features.dedup();
        let mut own = Rows::default();
        for Row {
            features: all,
            values,
            label,
        } in chosen()
        {
            let places = all.iter().map(|feature| {
                u32::try_from(features.partition_point(|other| other < feature)).unwrap_or(u32::MAX)
            });
            own.push(label, places.zip(values.iter().copied()));
        }
        Self {
            keys: features.into_iter().map(Key::from).collect(),
            rows: own,
        }
    }

    /// The features that its rows have, ascending: the keys to pull and to push.
    pub(crate) fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// The rows; their features are places in [`Minibatch::keys`].
    pub(crate) const fn rows(&self) -> &Rows {
        &self.rows
    }
}

/// The minibatches of one of several workers: in each pass, the rows in a new order, dealt out in
/// turn. All workers have the same number of iterations; where the last round has too few
/// minibatches, some are empty.
#[derive(Debug)]
pub(crate) struct Batches {
    rows: usize,
    batch: usize,
    workers: usize,
    worker: usize,
    passes: usize,
    seed: u64,
    /// The current pass, from 1.
    pass: usize,
    order: Vec<u32>,
    round: usize,
}

impl Batches {
    /// Of worker `worker`, from 0, of `workers`; a minibatch has `batch` rows.
    pub(crate) const fn new(
        rows: usize,
        batch: usize,
        workers: usize,
        worker: usize,
        passes: usize,
        seed: u64,
    ) -> Self {
        Self {
            rows,
            batch,
            workers,
            worker,
            passes,
            seed,
            pass: 0,
            order: Vec::new(),
            round: usize::MAX,
        }
    }

    /// Iterations of each worker in a pass.
    pub(crate) const fn rounds(&self) -> usize {
        self.rows.div_ceil(self.batch).div_ceil(self.workers)
    }
}

impl Iterator for Batches {
    type Item = Vec<u32>;

    fn next(&mut self) -> Option<Vec<u32>> {
        if self.round >= self.rounds() {
            if self.pass >= self.passes || self.rows == 0 {
                return None;
            }
            self.pass += 1;
            self.round = 0;
            self.order = (0..u32::try_from(self.rows).unwrap_or(u32::MAX)).collect();
            let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
            rng.set_stream(self.pass as u64);
            self.order.shuffle(&mut rng);
        }
        let start = (self.round * self.workers + self.worker).saturating_mul(self.batch);
        self.round += 1;
        let end = start.saturating_add(self.batch).min(self.order.len());
        Some(self.order.get(start..end).unwrap_or_default().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minibatch_has_the_features_of_its_rows_and_no_others() {
        let mut rows = Rows::default();
        rows.push(true, [(70, 1.0), (5, 2.0)]);
        rows.push(false, [(9, 3.0)]);
        rows.push(false, [(70, 4.0), (6, 5.0)]);
        let batch = Minibatch::new(&rows, &[2, 0, 77]);
        assert_eq!(batch.keys(), [5, 6, 70]);
        let expected = [([2, 1], [4.0, 5.0], false), ([2, 0], [1.0, 2.0], true)]
            .map(|(f, v, l)| (f.to_vec(), v.to_vec(), l));
        let found: Vec<_> = batch
            .rows()
            .iter()
            .map(|row| (row.features.to_vec(), row.values.to_vec(), row.label))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn every_pass_deals_out_every_row_once() {
        let of = |worker| Batches::new(23, 4, 4, worker, 2, 7).collect::<Vec<_>>();
        let all: Vec<Vec<Vec<u32>>> = (0..4).map(of).collect();
        assert!(all.iter().all(|batches| batches.len() == 4), "{all:?}");
        for pass in 0..2 {
            let mut rows: Vec<u32> = all
                .iter()
                .flat_map(|batches| batches[2 * pass..2 * pass + 2].concat())
                .collect();
            rows.sort_unstable();
            assert_eq!(rows, (0..23).collect::<Vec<_>>());
        }
        assert_ne!(all[0][0], all[0][2]);
        assert!(all[3][1].is_empty());
        assert_eq!(Batches::new(0, 4, 1, 0, 3, 7).count(), 0);
    }
}
