//! Confidence of reconstructions.

use serde::{Deserialize, Serialize};

use crate::top_class;

/// Measure of one sample's certainty about its top class, between 0 and 1. Of logits or
/// log-probabilities, whose softmax is taken. None is calibrated.
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
    /// The score of one sample, of two or more classes; 0 if one of its scores is a NaN.
    pub fn of(self, outputs: &[f32]) -> f32 {
        let top = top_class(outputs);
        let highest = outputs.get(top).copied().unwrap_or_default();
        let sum: f32 = outputs.iter().map(|y| (y - highest).exp()).sum();
        if !(sum.is_finite() && sum > 0.0) {
            return 0.0;
        }
        match self {
            Self::TopProbability => 1.0 / sum,
            Self::Margin => {
                let others =
                    outputs.iter().enumerate().filter(|(class, _)| *class != top).map(|(_, y)| *y);
                (1.0 - (others.fold(f32::NEG_INFINITY, f32::max) - highest).exp()) / sum
            }
            Self::Entropy => {
                // H = ln(sum) - sum of p * (y - highest).
                let mean: f32 =
                    outputs.iter().map(|y| (y - highest).exp() * (y - highest)).sum::<f32>() / sum;
                (1.0 - (sum.ln() - mean) / (outputs.len() as f32).ln()).clamp(0.0, 1.0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(score: Score, outputs: &[f32]) -> f32 {
        score.of(outputs)
    }

    #[test]
    fn is_the_top_softmax_probability() {
        let confidence = |outputs: &[f32]| score(Score::TopProbability, outputs);
        assert!((confidence(&[0.0, 0.0]) - 0.5).abs() < 1e-6);
        assert!(confidence(&[1000.0, 0.0]) > 0.999);
        assert!((confidence(&[f32::ln(3.0), 0.0]) - 0.75).abs() < 1e-6);
    }

    #[test]
    fn scores_of_known_outputs() {
        let thirds = [f32::ln(3.0), 0.0]; // probabilities 3/4 and 1/4
        assert!((score(Score::Margin, &thirds) - 0.5).abs() < 1e-6);
        assert!((score(Score::Entropy, &thirds) - (1.0 - 0.811_278)).abs() < 1e-5);
        for kind in [Score::TopProbability, Score::Margin, Score::Entropy] {
            assert!(score(kind, &[90.0, 0.0, -90.0]) > 0.999, "{kind:?}");
            assert_eq!(score(kind, &[f32::NAN, 1.0]), 0.0, "{kind:?}");
            assert_eq!(score(kind, &[1.0, f32::NAN]), 0.0, "{kind:?}");
        }
        assert_eq!(score(Score::Margin, &[2.0, 2.0, 1.0]), 0.0);
        assert!(score(Score::Entropy, &[2.0; 4]) < 1e-6);
    }
}
