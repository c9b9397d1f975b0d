//! Logistic regression: `p = 1 / (1 + exp(-w x))`, the loss of a row is `-ln p` of its class, and
//! the gradient of the loss is `(p - y) x`.

use crate::{Minibatch, Row};

/// The probability of the class `true`, where `weight` gives a feature's weight.
pub(crate) fn probability(row: Row<'_>, weight: impl Fn(u32) -> f32) -> f32 {
    let margin: f32 = row
        .features
        .iter()
        .zip(row.values)
        .map(|(&feature, value)| weight(feature) * value)
        .sum();
    1.0 / (1.0 + (-margin).exp())
}

/// The loss of a prediction, in nats. One that is certain and wrong counts as wrong by the least
/// that 32-bit floats tell from certainty.
pub(crate) fn log_loss(probability: f32, label: bool) -> f64 {
    let of_label = f64::from(if label {
        probability
    } else {
        1.0 - probability
    });
    -of_label.max(f64::from(f32::MIN_POSITIVE)).ln()
}

/// Weights that a minibatch needs, and its gradient.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Gradient {
    /// The sums over its rows, one for each of its keys.
    pub(crate) sums: Vec<f32>,
    /// The sum of its rows' losses before any update.
    pub(crate) loss: f64,
}

/// The gradient at `weights`, one for each key of the minibatch.
pub(crate) fn gradient(batch: &Minibatch, weights: &[f32]) -> Gradient {
    let at = |place: u32| usize::try_from(place).unwrap_or(usize::MAX);
    let mut sums = vec![0.0; batch.keys().len()];
    let mut loss = 0.0;
    for row in batch.rows().iter() {
        let p = probability(row, |place| {
            weights.get(at(place)).copied().unwrap_or_default()
        });
        loss += log_loss(p, row.label);
        let slope = p - f32::from(u8::from(row.label));
        for (&place, value) in row.features.iter().zip(row.values) {
            if let Some(sum) = sums.get_mut(at(place)) {
                *sum += slope * value;
            }
        }
    }
    Gradient { sums, loss }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rows;

    /// The gradient is the slope of the loss.
    #[test]
    fn gradients_are_differences_of_losses() {
        let mut rows = Rows::default();
        rows.push(true, [(3, 1.0), (8, -0.5)]);
        rows.push(false, [(8, 2.0), (9, 1.0)]);
        let batch = Minibatch::new(&rows, &[0, 1]);
        let weights = [0.3, -0.2, 0.1];
        let found = gradient(&batch, &weights);
        for (place, sum) in found.sums.iter().enumerate() {
            let shifted = |by: f32| {
                let mut weights = weights;
                weights[place] += by;
                gradient(&batch, &weights).loss
            };
            let slope = (shifted(1e-2) - shifted(-1e-2)) / 2e-2;
            assert!(
                (slope - f64::from(*sum)).abs() < 1e-3,
                "{place}: {slope} and {sum}"
            );
        }
        assert!(log_loss(0.0, true).is_finite() && log_loss(1.0, true) == 0.0);
    }
}
