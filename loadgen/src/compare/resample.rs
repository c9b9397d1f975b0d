//! The block bootstrap.
//!
//! Requests that queue behind one another are slow together, so they are no independent samples and
//! intervals drawn from them alone are too narrow. Whole rounds are drawn with replacement instead
//! (blocks that do not overlap; Carlstein, *Annals of Statistics* 14, 1986), the same ones for
//! every strategy because they shared a schedule, and the figures are made anew from the pooled
//! samples. An interval is the middle 95 % of what comes out (Efron and Tibshirani, *An
//! Introduction to the Bootstrap*, 13.3).

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;

use super::pool::rank;
use super::{Bootstrap, CONFIDENCE, Interval};

/// Returns the number of times that each round occurs in each draw.
pub(super) fn draws(rounds: usize, bootstrap: Bootstrap) -> Vec<Vec<u32>> {
    if rounds < 2 {
        return Vec::new();
    }
    let mut random = ChaCha12Rng::seed_from_u64(bootstrap.seed);
    let mut draw = || {
        let mut times = vec![0; rounds];
        (0..rounds).for_each(|_| times[random.random_range(0..rounds)] += 1);
        times
    };
    (0..bootstrap.resamples).map(|_| draw()).collect()
}

/// The middle of the drawn figures; `None` if there are none, or one has no number.
pub(super) fn middle(figures: impl Iterator<Item = Option<f64>>) -> Option<Interval> {
    let mut figures: Vec<f64> = figures
        .collect::<Option<Vec<f64>>>()?
        .into_iter()
        .filter(|figure| !figure.is_nan())
        .collect();
    figures.sort_unstable_by(f64::total_cmp);
    let tail = (1.0 - CONFIDENCE) / 2.0;
    let at = |share| {
        let place = usize::try_from(rank(figures.len() as u64, share) - 1).ok()?;
        figures
            .get(place)
            .copied()
            .filter(|figure| figure.is_finite())
    };
    Some(Interval {
        low: at(tail)?,
        high: at(1.0 - tail)?,
    })
}
