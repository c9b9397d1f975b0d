//! Rows like those of click logs: few of very many features in each, some of them in every other
//! row and most of them hardly ever, and a few that matter. Logistic regression on them: the loss
//! of a row is `-ln p` of its class, and its gradient `(p - y) x`, where x is 1 for each of the
//! row's features.

use std::fmt;

use anyhow::Result;
use parapet_parameter_server::{Key, KeyRange};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Normal, Zipf};

/// Frequency of features: the k-th most frequent in proportion to `k^-1.1`, as words do.
const EXPONENT: f64 = 1.1;

/// The share of features whose true weight is not 0, and the spread of those weights.
const RELEVANT: f64 = 0.1;
const SPREAD: f32 = 1.5;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    /// Features that the row has, each once; the last one is the intercept.
    pub(crate) features: Vec<u32>,
    pub(crate) label: bool,
}

impl Row {
    /// The probability of the class `true`: `1 / (1 + exp(-w x))`.
    pub(crate) fn probability(&self, weight: impl Fn(u32) -> f32) -> f32 {
        let margin: f32 = self.features.iter().map(|&feature| weight(feature)).sum();
        1.0 / (1.0 + (-margin).exp())
    }

    /// The loss in nats. A prediction that is certain and wrong counts as wrong by the least that
    /// 32-bit floats tell from certainty.
    pub(crate) fn loss(&self, probability: f32) -> f64 {
        let of_label = match self.label {
            true => probability,
            false => 1.0 - probability,
        };
        -f64::from(of_label.max(f32::MIN_POSITIVE)).ln()
    }
}

/// Some rows with their features numbered anew.
#[derive(Debug)]
pub(crate) struct Minibatch {
    /// The features that its rows have, ascending: the keys to pull and to push.
    pub(crate) keys: Vec<Key>,
    /// The rows; their features are places in `keys`.
    rows: Vec<Row>,
}

impl Minibatch {
    pub(crate) fn new(rows: &[Row], places: &[usize]) -> Self {
        let chosen = || places.iter().map(|&place| &rows[place]);
        let mut features: Vec<u32> = chosen().flat_map(|row| &row.features).copied().collect();
        features.sort_unstable();
        features.dedup();
        let place = |feature: &u32| features.partition_point(|other| other < feature) as u32;
        let renumbered = chosen().map(|row| Row {
            features: row.features.iter().map(place).collect(),
            label: row.label,
        });
        Self { rows: renumbered.collect(), keys: features.iter().copied().map(Key::from).collect() }
    }

    /// The sums of the rows' gradients at `weights`, one for each key.
    pub(crate) fn gradient(&self, weights: &[f32]) -> Vec<f32> {
        let mut sums = vec![0.0; self.keys.len()];
        for row in &self.rows {
            let p = row.probability(|place| weights[place as usize]);
            let slope = p - f32::from(u8::from(row.label));
            for &place in &row.features {
                sums[place as usize] += slope;
            }
        }
        sums
    }
}

/// The minibatches of one of several workers, as places of rows: in each pass, the rows in a new
/// order, dealt out in turn. All workers have the same number of iterations; where the last round
/// has too few minibatches, some are empty.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Batches {
    pub(crate) rows: usize,
    pub(crate) batch: usize,
    pub(crate) workers: usize,
    pub(crate) passes: usize,
    pub(crate) seed: u64,
}

impl Batches {
    /// Of a worker, by its number from 0.
    pub(crate) fn of(self, worker: usize) -> impl Iterator<Item = Vec<usize>> {
        let rounds = self.rows.div_ceil(self.batch).div_ceil(self.workers);
        (0..self.passes).flat_map(move |pass| {
            let mut order: Vec<usize> = (0..self.rows).collect();
            let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
            rng.set_stream(pass as u64);
            order.shuffle(&mut rng);
            (0..rounds).map(move |round| {
                let start = ((round * self.workers + worker) * self.batch).min(self.rows);
                order[start..(start + self.batch).min(self.rows)].to_vec()
            })
        })
    }
}

/// Rows for training and rows for evaluation.
#[derive(Debug)]
pub(crate) struct DataSet {
    /// The features and the intercept, as keys of an array.
    pub(crate) keys: KeyRange,
    pub(crate) train: Vec<Row>,
    pub(crate) held_out: Vec<Row>,
    /// The probabilities that the held-out labels were drawn with: no model does better.
    pub(crate) truth: Vec<f32>,
}

/// A set to generate. The same settings give the same bits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Generated {
    /// Number of features; at least 1.
    pub(crate) features: u32,
    pub(crate) rows: usize,
    pub(crate) held_out: usize,
    /// Features drawn for each row; those drawn twice count once.
    pub(crate) draws: usize,
    pub(crate) seed: u64,
}

impl Generated {
    /// Draws labels with the probability that logistic regression gives under true weights.
    pub(crate) fn generate(&self) -> Result<DataSet> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let normal = Normal::new(0.0, SPREAD)?;
        let draw_weight = |_| match rng.random_bool(RELEVANT) {
            true => normal.sample(&mut rng),
            false => 0.0,
        };
        let weights: Vec<f32> = (0..self.features).map(draw_weight).collect();
        let ranks = Zipf::new(f64::from(self.features), EXPONENT)?;
        // Frequent features do not all come first.
        let mut by_rank: Vec<u32> = (0..self.features).collect();
        by_rank.shuffle(&mut rng);
        let draw_row = |_| {
            let sampled = ranks.sample_iter(&mut rng).take(self.draws);
            // Ranks are whole numbers from 1.
            let mut features: Vec<u32> = sampled.map(|rank| by_rank[rank as usize - 1]).collect();
            features.sort_unstable();
            features.dedup();
            let label = false;
            let mut row = Row { features, label };
            let p = row.probability(|feature| weights[feature as usize]);
            row.label = rng.random::<f32>() < p;
            row.features.push(self.features);
            (row, p)
        };
        let mut drawn = (0..self.rows + self.held_out).map(draw_row);
        let train = drawn.by_ref().take(self.rows).map(|(row, _)| row).collect();
        let (held_out, truth) = drawn.unzip();
        Ok(DataSet { keys: KeyRange::new(0, Key::from(self.features) + 1), train, held_out, truth })
    }
}

/// The quality of predicted probabilities on labelled rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Score {
    /// The mean of the rows' losses, in nats.
    pub(crate) log_loss: f64,
    /// The area under the ROC curve: how often a row of the class is put before one that is not;
    /// 0.5 if either has none.
    pub(crate) auc: f64,
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "log loss {:.4}, AUC {:.4}", self.log_loss, self.auc)
    }
}

impl Score {
    pub(crate) fn new(rows: &[Row], probabilities: &[f32]) -> Self {
        let mut pairs: Vec<_> = rows.iter().zip(probabilities.iter().copied()).collect();
        let loss: f64 = pairs.iter().map(|(row, p)| row.loss(*p)).sum();
        pairs.sort_unstable_by(|a, b| a.1.total_cmp(&b.1));
        // By the sum of ranks (Mann and Whitney 1947); equal probabilities share their ranks.
        let (mut ranks, mut before, mut positive) = (0.0, 0, 0.0);
        for equal in pairs.chunk_by(|a, b| a.1 == b.1) {
            let in_class = equal.iter().filter(|(row, _)| row.label).count() as f64;
            ranks += in_class * (before as f64 + (equal.len() as f64 + 1.0) / 2.0);
            before += equal.len();
            positive += in_class;
        }
        let both = positive * (pairs.len() as f64 - positive);
        Self {
            log_loss: loss / pairs.len().max(1) as f64,
            auc: match both > 0.0 {
                true => (ranks - positive * (positive + 1.0) / 2.0) / both,
                false => 0.5,
            },
        }
    }
}
