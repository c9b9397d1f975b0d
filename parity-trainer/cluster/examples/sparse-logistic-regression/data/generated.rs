//! Rows like those of click logs: few of very many features in each, some of them in every other
//! row and most of them hardly ever, and a few that matter.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Normal, Zipf};

use super::DataSet;
use crate::{Row, Rows, logistic};

/// Frequency of features: the k-th most frequent in proportion to `k^-1.1`, as words do.
const EXPONENT: f64 = 1.1;

/// The share of features whose true weight is not 0.
const RELEVANT: f64 = 0.1;

/// The spread of the true weights that are not 0.
const SPREAD: f32 = 1.5;

/// A set to generate. The same settings give the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Generated {
    /// Number of features; at least 1.
    pub(crate) features: u32,
    /// Rows to learn from.
    pub(crate) rows: usize,
    /// Rows to judge by.
    pub(crate) held_out: usize,
    /// Features drawn for each row; those drawn twice count once.
    pub(crate) draws: usize,
    /// Gives every random number.
    pub(crate) seed: u64,
}

/// Labels are drawn with the probability that logistic regression gives under the true weights: no
/// model can do better than [`DataSet::truth`].
pub(crate) fn generate(settings: &Generated) -> DataSet {
    let Generated {
        features,
        rows,
        held_out,
        draws,
        seed,
    } = *settings;
    let features = features.max(1);
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let truth = true_weights(features, &mut rng);
    let keys = Scattering::new(features);
    // Both are above what these ask for: at least one feature, an exponent of 0 or more.
    let ranks = Zipf::new(f64::from(features), EXPONENT).ok();
    let ones = vec![1.0; draws];
    let mut part = |count: usize| {
        let (mut made, mut probabilities) = (Rows::default(), Vec::with_capacity(count));
        let mut drawn = Vec::with_capacity(draws);
        for _ in 0..count {
            drawn.clear();
            if let Some(ranks) = &ranks {
                // Ranks are whole numbers from 1.
                drawn.extend(
                    ranks
                        .sample_iter(&mut rng)
                        .take(draws)
                        .map(|rank| keys.key(rank as u32 - 1)),
                );
            }
            drawn.sort_unstable();
            drawn.dedup();
            let row = Row {
                features: &drawn,
                values: &ones,
                label: false,
            };
            let probability = logistic::probability(row, |key| weight(&truth, key));
            made.push(
                rng.random::<f32>() < probability,
                with_intercept(&drawn, features),
            );
            probabilities.push(probability);
        }
        (made, probabilities)
    };
    let (train, _) = part(rows);
    let (held_out, probabilities) = part(held_out);
    DataSet {
        name: format!("generated, seed {seed}"),
        features,
        train,
        held_out,
        truth: Some(probabilities),
    }
}

fn with_intercept(features: &[u32], intercept: u32) -> impl Iterator<Item = (u32, f32)> + '_ {
    features
        .iter()
        .copied()
        .chain([intercept])
        .map(|feature| (feature, 1.0))
}

fn weight(weights: &[f32], key: u32) -> f32 {
    weights
        .get(usize::try_from(key).unwrap_or(usize::MAX))
        .copied()
        .unwrap_or_default()
}

/// One for each key; that of the intercept, after them, is 0.
fn true_weights(features: u32, rng: &mut ChaCha8Rng) -> Vec<f32> {
    // A spread that is finite is never refused.
    let normal = Normal::new(0.0, SPREAD).ok();
    (0..features)
        .map(|_| match &normal {
            Some(normal) if rng.random_bool(RELEVANT) => normal.sample(rng),
            _ => 0.0,
        })
        .collect()
}

/// Ranks scattered over the keys, so that frequent features do not all come first: `rank * factor
/// mod features`, with a factor that has no divisor in common with the number of features, so that
/// no two ranks meet.
#[derive(Debug, Clone, Copy)]
struct Scattering {
    features: u64,
    factor: u64,
}

impl Scattering {
    fn new(features: u32) -> Self {
        let features = u64::from(features);
        let golden = (features as f64 * 0.618_033_988_749_895) as u64;
        let factor = (golden.max(1)..)
            .find(|&factor| divisor(factor, features) == 1)
            .unwrap_or(1);
        Self { features, factor }
    }

    fn key(self, rank: u32) -> u32 {
        u32::try_from(u64::from(rank) * self.factor % self.features).unwrap_or_default()
    }
}

/// The greatest common one (Euclid).
fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Score;

    #[test]
    fn no_two_ranks_have_one_key() {
        for features in [1, 2, 10, 97, 1000, 4096] {
            let scattering = Scattering::new(features);
            let mut keys: Vec<u32> = (0..features).map(|rank| scattering.key(rank)).collect();
            keys.sort_unstable();
            assert_eq!(keys, (0..features).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_set_is_the_same_for_the_same_seed_and_its_truth_fits_its_labels() {
        let settings = Generated {
            features: 5_000,
            rows: 200,
            held_out: 2_000,
            draws: 20,
            seed: 3,
        };
        let (set, again) = (generate(&settings), generate(&settings));
        assert_eq!((&set.train, &set.held_out), (&again.train, &again.held_out));
        assert_ne!(
            set.train,
            generate(&Generated {
                seed: 4,
                ..settings
            })
            .train
        );
        assert_eq!(
            (set.train.len(), set.held_out.len(), set.keys().len()),
            (200, 2_000, 5_001)
        );
        let ordered =
            |row: crate::Row<'_>| row.features.is_sorted() && row.features.last() == Some(&5_000);
        assert!(set.train.iter().all(ordered));
        let score = Score::new(&set.truth.unwrap(), set.held_out.labels());
        assert!(score.auc > 0.75 && score.log_loss < 0.6, "{score:?}");
    }
}
