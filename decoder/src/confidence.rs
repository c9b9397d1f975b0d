//! How far a reconstruction can be trusted, and whether it agrees with the deployed model's answer.

use serde::{Deserialize, Serialize};

/// How sure one sample's outputs are of their top class: between 0 and 1, more is surer. Of logits or log-probabilities,
/// whose softmax is taken. None is calibrated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Score {
    /// The top class's probability.
    #[default]
    TopProbability,
    /// The top class's probability less that of the next one.
    Margin,
    /// `1 - H / ln(classes)`, H being the entropy of the probabilities.
    Entropy,
}

impl Score {
    /// The score of one sample's `outputs`; 0 for no outputs or a NaN.
    pub fn of(self, outputs: &[f32]) -> f32 {
        let Some(top) = top_class(outputs) else { return 0.0 };
        let highest = outputs.get(top).copied().unwrap_or_default();
        let sum: f32 = outputs.iter().map(|y| (y - highest).exp()).sum();
        if !(sum.is_finite() && sum > 0.0) {
            return 0.0;
        }
        match self {
            Self::TopProbability => 1.0 / sum,
            Self::Margin => {
                let others = outputs.iter().enumerate().filter(|(class, _)| *class != top).map(|(_, y)| *y);
                (1.0 - (others.fold(f32::NEG_INFINITY, f32::max) - highest).exp()) / sum
            }
            Self::Entropy if outputs.len() < 2 => 1.0,
            Self::Entropy => {
                // H = ln(sum) - sum of p * (y - highest).
                let mean: f32 =
                    outputs.iter().map(|y| (y - highest).exp() * (y - highest)).sum::<f32>() / sum;
                (1.0 - (sum.ln() - mean) / (outputs.len() as f32).ln()).clamp(0.0, 1.0)
            }
        }
    }
}

/// The probability that softmax gives the top class, `max_c exp(y_c) / sum_c exp(y_c)`: [`Score::TopProbability`].
///
/// `outputs` is one sample's logits (or log-probabilities). For several samples take the least.
pub fn confidence(outputs: &[f32]) -> f32 {
    Score::TopProbability.of(outputs)
}

/// Index of the largest output, the first among equals; `None` for no outputs.
pub fn top_class(outputs: &[f32]) -> Option<usize> {
    let mut best: Option<(usize, f32)> = None;
    for (class, &value) in outputs.iter().enumerate() {
        if best.is_none_or(|(_, top)| value > top) {
            best = Some((class, value));
        }
    }
    best.map(|(class, _)| class)
}

/// Whether two outputs of `rows` samples each name the same top class for every sample.
///
/// This is the agreement that ParM's accuracy of reconstructions is about; a single output per sample (a regression)
/// has no class and always agrees, so callers should not read this for such models.
pub fn agrees(a: &[f32], b: &[f32], rows: usize) -> bool {
    if rows == 0 || a.len() != b.len() || !a.len().is_multiple_of(rows) || a.is_empty() {
        return false;
    }
    let classes = a.len() / rows;
    a.chunks(classes).zip(b.chunks(classes)).all(|(a, b)| top_class(a) == top_class(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_top_softmax_probability() {
        assert!((confidence(&[0.0, 0.0]) - 0.5).abs() < 1e-6);
        assert!(confidence(&[1000.0, 0.0]) > 0.999);
        assert!((confidence(&[f32::ln(3.0), 0.0]) - 0.75).abs() < 1e-6);
        assert_eq!(confidence(&[]), 0.0);
    }

    #[test]
    fn scores_of_known_outputs() {
        let thirds = [f32::ln(3.0), 0.0]; // probabilities 3/4 and 1/4
        assert!((Score::Margin.of(&thirds) - 0.5).abs() < 1e-6);
        assert!((Score::Entropy.of(&thirds) - (1.0 - 0.811_278)).abs() < 1e-5);
        for score in [Score::TopProbability, Score::Margin, Score::Entropy] {
            assert!(score.of(&[90.0, 0.0, -90.0]) > 0.999, "{score:?}");
            assert!(score.of(&[5.0]) > 0.999, "{score:?}: nothing else to choose");
            assert_eq!(score.of(&[]), 0.0);
            assert_eq!(score.of(&[f32::NAN, 1.0]), 0.0);
        }
        assert_eq!(Score::Margin.of(&[2.0, 2.0, 1.0]), 0.0);
        assert!(Score::Entropy.of(&[2.0; 4]) < 1e-6);
    }

    #[test]
    fn top_class_takes_the_first_among_equals() {
        assert_eq!(top_class(&[1.0, 3.0, 3.0]), Some(1));
        assert_eq!(top_class(&[]), None);
    }

    #[test]
    fn agreement_is_per_sample() {
        assert!(agrees(&[0.0, 1.0, 5.0, 2.0], &[3.0, 4.0, 1.0, 0.0], 2));
        assert!(!agrees(&[0.0, 1.0, 5.0, 2.0], &[3.0, 4.0, 0.0, 1.0], 2));
        assert!(!agrees(&[0.0, 1.0], &[0.0, 1.0, 2.0], 1));
    }
}
