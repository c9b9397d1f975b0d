//! Logistic regression: `p = 1 / (1 + exp(-w x))`, the loss of a row is `-ln p` of its class, and
//! the gradient of the loss is `(p - y) x`, where x is 1 for each of the row's features.

use std::fmt;

use crate::data::Minibatch;

/// The loss of a prediction, in nats. One that is certain and wrong counts as wrong by the least
/// that 32-bit floats tell from certainty.
pub(crate) fn log_loss(probability: f32, label: bool) -> f64 {
    let of_label = if label {
        probability
    } else {
        1.0 - probability
    };
    -f64::from(of_label.max(f32::MIN_POSITIVE)).ln()
}

/// The sums of the rows' gradients at `weights`, one for each key, and the sum of their losses.
pub(crate) fn gradient(batch: &Minibatch, weights: &[f32]) -> (Vec<f32>, f64) {
    let mut sums = vec![0.0; batch.keys.len()];
    let mut loss = 0.0;
    for row in batch.rows.iter() {
        let p = row.probability(|place| weights[place as usize]);
        loss += log_loss(p, row.label);
        let slope = p - f32::from(u8::from(row.label));
        for &place in row.features {
            sums[place as usize] += slope;
        }
    }
    (sums, loss)
}

/// The quality of predicted probabilities on labelled rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Score {
    /// The mean of the rows' losses, in nats.
    pub(crate) log_loss: f64,
    /// The area under the ROC curve: how often a row of the class is put before one that is not;
    /// 0.5 if either has none.
    pub(crate) auc: f64,
    /// The share of rows whose class has the larger probability.
    pub(crate) accuracy: f64,
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (loss, auc, percent) = (self.log_loss, self.auc, 100.0 * self.accuracy);
        write!(
            f,
            "log loss {loss:.4}, AUC {auc:.4}, accuracy {percent:.2} %"
        )
    }
}

impl Score {
    /// Of one probability for each label.
    pub(crate) fn new(probabilities: &[f32], labels: &[bool]) -> Self {
        let labels = labels.iter().copied();
        let mut pairs: Vec<(f32, bool)> = probabilities.iter().copied().zip(labels).collect();
        let count = pairs.len().max(1) as f64;
        let loss: f64 = pairs.iter().map(|&(p, label)| log_loss(p, label)).sum();
        let right = pairs.iter().filter(|&&(p, label)| (p > 0.5) == label);
        let accuracy = right.count() as f64 / count;
        pairs.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        Self {
            log_loss: loss / count,
            auc: area(&pairs),
            accuracy,
        }
    }
}

/// By the sum of ranks (Mann and Whitney 1947); equal probabilities share their ranks.
fn area(ascending: &[(f32, bool)]) -> f64 {
    let (mut ranks, mut before, mut positive) = (0.0, 0, 0.0);
    for equal in ascending.chunk_by(|a, b| a.0 == b.0) {
        let in_class = equal.iter().filter(|(_, label)| *label).count() as f64;
        ranks += in_class * (before as f64 + (equal.len() as f64 + 1.0) / 2.0);
        before += equal.len();
        positive += in_class;
    }
    let negative = ascending.len() as f64 - positive;
    if positive == 0.0 || negative == 0.0 {
        return 0.5;
    }
    (ranks - positive * (positive + 1.0) / 2.0) / (positive * negative)
}
