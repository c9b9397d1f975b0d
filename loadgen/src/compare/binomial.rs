//! Confidence in a percentile of `n` samples, from `n` alone.
//!
//! The number of samples at or below the true quantile `q` is binomial with `n` trials of
//! probability `q`, whatever the distribution of the samples. So the order statistics of ranks `l <
//! u` enclose it with probability `P(l <= X < u)`, `X ~ Bin(n, q)` (Hahn and Meeker, *Statistical
//! Intervals*, section 5.2). Each side is given half of what may go wrong: `l` is the largest rank
//! with `P(X < l) <= (1 - C) / 2`, and `u` the smallest with `P(X < u) >= (1 + C) / 2`.
//!
//! Even the largest sample is an upper bound only if `1 - q^n >= (1 + C) / 2`, and the smallest a
//! lower one only if `1 - (1 - q)^n >= (1 + C) / 2`; before that, a percentile is a guess and not
//! to be quoted. At `C` = 95 % this asks for 6 samples for p50, 368 for p99 and 3,688 for p99.9.

pub const CONFIDENCE: f64 = 0.95;

/// Weights this much less than the largest one make no difference to a sum of doubles.
const NEGLIGIBLE: f64 = 1e-19;

/// Ranks, from 1, of the order statistics around a quantile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrderInterval {
    pub low: u64,
    pub high: u64,
}

fn miss() -> f64 {
    (1.0 - CONFIDENCE) / 2.0
}

impl OrderInterval {
    /// Around the quantile `0 < quantile < 1` of `samples` samples; `None` if they are too few.
    pub fn of(samples: u64, quantile: f64) -> Option<Self> {
        if samples < samples_needed(quantile) {
            return None;
        }
        let below = Binomial::new(samples, quantile);
        Some(Self {
            low: below.quantile(miss()).max(1),
            high: below.quantile(1.0 - miss()) + 1,
        })
    }
}

/// The least number of samples with which the quantile `0 < quantile < 1` may be quoted.
pub fn samples_needed(quantile: f64) -> u64 {
    let rarer = quantile.max(1.0 - quantile);
    (miss().ln() / rarer.ln()).ceil() as u64
}

/// A binomial distribution by its probabilities around the mode, which is where all but 1e-16
/// of them is.
struct Binomial {
    first: u64,
    weights: Vec<f64>,
    total: f64,
}

impl Binomial {
    fn new(trials: u64, probability: f64) -> Self {
        let mode = (((trials + 1) as f64 * probability).floor() as u64).min(trials);
        let odds = probability / (1.0 - probability);
        let ratio = |successes: u64| (trials - successes) as f64 / (successes + 1) as f64 * odds;
        let (mut weight, mut first) = (1.0, mode);
        let mut weights = vec![weight];
        while first > 0 && weight > NEGLIGIBLE {
            first -= 1;
            weight /= ratio(first);
            weights.push(weight);
        }
        weights.reverse();
        weight = 1.0;
        for successes in mode..trials {
            weight *= ratio(successes);
            weights.push(weight);
            if weight <= NEGLIGIBLE {
                break;
            }
        }
        let total = weights.iter().sum();
        Self {
            first,
            weights,
            total,
        }
    }

    fn quantile(&self, share: f64) -> u64 {
        let mut below = 0.0;
        let place = self.weights.iter().position(|weight| {
            below += weight;
            below >= share * self.total
        });
        self.first + place.unwrap_or(self.weights.len() - 1) as u64
    }
}
