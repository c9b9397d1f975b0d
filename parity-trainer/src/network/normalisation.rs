//! Mean and deviation of training data, by which a network scales what it takes.
//!
//! It is part of the exported model: clients and encoders know nothing of it.

/// Deviations are at least this part of the data's deviation as a whole: a feature that hardly ever
/// differs from its mean would otherwise drown the others when it does.
const FLOOR: f64 = 0.1;

/// Scaling of samples: `(x - mean) / deviation` for each channel of an image, or each feature.
#[derive(Debug, Clone, PartialEq)]
pub struct Normalisation {
    pub mean: Vec<f32>,
    pub deviation: Vec<f32>,
}

impl Normalisation {
    /// Mean and deviation of whole samples of `shape`, row-major; a parity model's are queries.
    pub(super) fn of(samples: &[f32], shape: &[usize]) -> Self {
        let channels = shape.first().copied().unwrap_or_default();
        let plane = shape.iter().skip(1).product::<usize>().max(1);
        let count = (samples.len() / (channels * plane).max(1) * plane).max(1) as f64;
        let mut sums = vec![(0.0_f64, 0.0_f64); channels];
        for sample in samples.chunks_exact((channels * plane).max(1)) {
            for (values, (sum, squares)) in sample.chunks_exact(plane).zip(&mut sums) {
                for value in values.iter().copied().map(f64::from) {
                    *sum += value;
                    *squares += value * value;
                }
            }
        }
        let variance =
            |(sum, squares): &(f64, f64)| (squares / count - (sum / count).powi(2)).max(0.0);
        let variances: Vec<f64> = sums.iter().map(variance).collect();
        let whole = (variances.iter().sum::<f64>() / channels.max(1) as f64).sqrt();
        let deviation = |variance: &f64| match variance.sqrt().max(FLOOR * whole) as f32 {
            deviation if deviation > 0.0 => deviation,
            _ => 1.0,
        };
        let mean = sums.iter().map(|(sum, _)| (sum / count) as f32);
        Self { mean: mean.collect(), deviation: variances.iter().map(deviation).collect() }
    }

    pub(super) fn is_identity(&self) -> bool {
        self.mean.iter().all(|&mean| mean == 0.0)
            && self.deviation.iter().all(|&deviation| deviation == 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_and_features_have_their_own_moments() {
        let images = [1.0, 3.0, 10.0, 10.0, 5.0, 7.0, 10.0, 30.0];
        let normalisation = Normalisation::of(&images, &[2, 1, 2]);
        assert_eq!(normalisation.mean, [4.0, 15.0]);
        for (found, variance) in normalisation.deviation.iter().zip([5.0f32, 75.0]) {
            assert!((found - variance.sqrt()).abs() < 1e-5, "{found}");
        }

        let normalisation = Normalisation::of(&[1.0, 5.0, 3.0, 5.0], &[2]);
        assert_eq!(normalisation.mean, [2.0, 5.0]);
        let floor = (0.5_f64.sqrt() * FLOOR) as f32;
        assert_eq!(normalisation.deviation, [1.0, floor]);
    }

    #[test]
    fn constant_data_are_only_centred() {
        assert_eq!(Normalisation::of(&[2.0; 6], &[3]).deviation, [1.0; 3]);
        assert!(Normalisation::of(&[], &[3]).is_identity());
    }
}
