//! Rows like those of click logs: few of very many features in each, some of them in every other
//! row and most of them hardly ever, and a few that matter.

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

/// Labelled sparse rows, one after the other. The last feature of each is the intercept.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Rows {
    /// Where each row ends.
    ends: Vec<usize>,
    features: Vec<u32>,
    labels: Vec<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Row<'a> {
    /// Features that the row has, each once.
    pub(crate) features: &'a [u32],
    pub(crate) label: bool,
}

impl Row<'_> {
    /// The probability of the class `true`.
    pub(crate) fn probability(self, weight: impl Fn(u32) -> f32) -> f32 {
        let margin: f32 = self.features.iter().map(|&feature| weight(feature)).sum();
        1.0 / (1.0 + (-margin).exp())
    }
}

impl Rows {
    pub(crate) fn push(&mut self, label: bool, features: impl IntoIterator<Item = u32>) {
        self.features.extend(features);
        self.ends.push(self.features.len());
        self.labels.push(label);
    }

    pub(crate) fn len(&self) -> usize {
        self.labels.len()
    }

    pub(crate) fn get(&self, place: usize) -> Row<'_> {
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        Row {
            features: &self.features[start..self.ends[place]],
            label: self.labels[place],
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Row<'_>> {
        (0..self.len()).map(|place| self.get(place))
    }

    pub(crate) fn labels(&self) -> &[bool] {
        &self.labels
    }
}

/// Some rows with their features numbered anew.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Minibatch {
    /// The features that its rows have, ascending: the keys to pull and to push.
    pub(crate) keys: Vec<Key>,
    /// The rows; their features are places in `keys`.
    pub(crate) rows: Rows,
}

impl Minibatch {
    pub(crate) fn new(rows: &Rows, places: &[usize]) -> Self {
        let chosen = || places.iter().map(|&place| rows.get(place));
        let mut features: Vec<u32> = chosen().flat_map(|row| row.features).copied().collect();
        features.sort_unstable();
        features.dedup();
        let mut renumbered = Rows::default();
        for row in chosen() {
            let place = |feature| features.partition_point(|other| other < feature) as u32;
            renumbered.push(row.label, row.features.iter().map(place));
        }
        Self {
            keys: features.into_iter().map(Key::from).collect(),
            rows: renumbered,
        }
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
#[derive(Debug, Clone)]
pub(crate) struct DataSet {
    /// Number of features; the intercept comes after them.
    pub(crate) features: u32,
    pub(crate) train: Rows,
    pub(crate) held_out: Rows,
    /// The probabilities that the held-out labels were drawn with.
    pub(crate) truth: Vec<f32>,
}

impl DataSet {
    /// The features and the intercept, as keys of an array.
    pub(crate) fn keys(&self) -> KeyRange {
        KeyRange::new(0, Key::from(self.features) + 1)
    }
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

/// Labels are drawn with the probability that logistic regression gives under the true weights: no
/// model can do better than [`DataSet::truth`].
pub(crate) fn generate(settings: &Generated) -> Result<DataSet> {
    let features = settings.features;
    let mut rng = ChaCha8Rng::seed_from_u64(settings.seed);
    let normal = Normal::new(0.0, SPREAD)?;
    let draw_weight = |_| match rng.random_bool(RELEVANT) {
        true => normal.sample(&mut rng),
        false => 0.0,
    };
    let weights: Vec<f32> = (0..features).map(draw_weight).collect();
    let ranks = Zipf::new(f64::from(features), EXPONENT)?;
    let factor = scattering(u64::from(features));
    let mut part = |count: usize| {
        let (mut rows, mut probabilities) = (Rows::default(), Vec::with_capacity(count));
        let mut drawn: Vec<u32> = Vec::with_capacity(settings.draws);
        for _ in 0..count {
            drawn.clear();
            // Ranks are whole numbers from 1.
            let scattered = |rank: f64| ((rank as u64 - 1) * factor % u64::from(features)) as u32;
            let sampled = ranks.sample_iter(&mut rng).take(settings.draws);
            drawn.extend(sampled.map(scattered));
            drawn.sort_unstable();
            drawn.dedup();
            let row = Row {
                features: &drawn,
                label: false,
            };
            let p = row.probability(|feature| weights[feature as usize]);
            let label = rng.random::<f32>() < p;
            rows.push(label, drawn.iter().copied().chain([features]));
            probabilities.push(p);
        }
        (rows, probabilities)
    };
    let (train, _) = part(settings.rows);
    let (held_out, truth) = part(settings.held_out);
    Ok(DataSet {
        features,
        train,
        held_out,
        truth,
    })
}

/// Factor by which `rank * factor mod features` scatters ranks over the keys, so that frequent
/// features do not all come first: near the golden section, with no divisor in common with the
/// number of features, so that no two ranks meet.
pub(crate) fn scattering(features: u64) -> u64 {
    let golden = (features as f64 * 0.618_033_988_749_895) as u64;
    let is_coprime = |&factor: &u64| divisor(factor, features) == 1;
    (golden.max(1)..).find(is_coprime).unwrap_or(1)
}

/// The greatest common divisor (Euclid).
fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}
