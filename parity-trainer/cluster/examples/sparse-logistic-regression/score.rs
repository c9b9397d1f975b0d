//! Quality of predictions.

use serde::Serialize;

use crate::logistic::log_loss;

/// The quality of predicted probabilities on labelled rows.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Score {
    /// The mean of the rows' losses, in nats.
    pub(crate) log_loss: f64,
    /// The area under the ROC curve: how often a row of the class is put before one that is not;
    /// 0.5 if either has none.
    pub(crate) auc: f64,
    /// The share of rows whose class has the larger probability.
    pub(crate) accuracy: f64,
}

impl Score {
    /// Of one probability for each label.
    pub(crate) fn new(probabilities: &[f32], labels: &[bool]) -> Self {
        let mut pairs: Vec<(f32, bool)> = probabilities
            .iter()
            .copied()
            .zip(labels.iter().copied())
            .collect();
        let count = pairs.len().max(1) as f64;
        let loss: f64 = pairs.iter().map(|&(p, label)| log_loss(p, label)).sum();
        let right = pairs
            .iter()
            .filter(|&&(p, label)| (p > 0.5) == label)
            .count();
        pairs.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        Self {
            log_loss: loss / count,
            auc: area(&pairs),
            accuracy: right as f64 / count,
        }
    }
}

/// By the sum of ranks (Mann and Whitney 1947); equal probabilities share their ranks.
fn area(ascending: &[(f32, bool)]) -> f64 {
    let mut ranks = 0.0;
    let mut before = 0;
    for equal in ascending.chunk_by(|a, b| a.0 == b.0) {
        let positive = equal.iter().filter(|(_, label)| *label).count();
        ranks += positive as f64 * (before as f64 + (equal.len() as f64 + 1.0) / 2.0);
        before += equal.len();
    }
    let positive = ascending.iter().filter(|(_, label)| *label).count() as f64;
    let negative = ascending.len() as f64 - positive;
    if positive == 0.0 || negative == 0.0 {
        return 0.5;
    }
    (ranks - positive * (positive + 1.0) / 2.0) / (positive * negative)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_area_is_the_share_of_pairs_in_the_right_order() {
        let probabilities = [0.1_f32, 0.4, 0.4, 0.8, 0.3, 0.9, 0.2];
        let labels = [false, true, false, true, true, false, false];
        let pairs = || {
            (0..7)
                .flat_map(|i| (0..7).map(move |j| (i, j)))
                .filter(|&(i, j)| labels[i] && !labels[j])
        };
        let right: f64 = pairs()
            .map(
                |(i, j)| match probabilities[i].total_cmp(&probabilities[j]) {
                    std::cmp::Ordering::Greater => 1.0,
                    std::cmp::Ordering::Equal => 0.5,
                    std::cmp::Ordering::Less => 0.0,
                },
            )
            .sum();
        let score = Score::new(&probabilities, &labels);
        assert!(
            (score.auc - right / pairs().count() as f64).abs() < 1e-12,
            "{score:?}"
        );
        assert!((score.accuracy - 4.0 / 7.0).abs() < 1e-12, "{score:?}");
        assert_eq!(Score::new(&[0.2], &[true]).auc, 0.5);
        assert!(Score::new(&[], &[]).log_loss == 0.0);
    }
}
