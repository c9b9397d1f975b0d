//! Calibration: agreement of confidence and accuracy, as the expected calibration error (Guo
//! et al. 2017).

use serde::Serialize;

/// Bins of equal width.
const BINS: usize = 15;

/// Confidence against the part that is right.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Calibration {
    /// ECE: the mean distance of the two over all reconstructions.
    pub expected_error: f64,
    /// The bins that hold any.
    pub bins: Vec<CalibrationBin>,
}

/// Reconstructions of about the same confidence.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CalibrationBin {
    pub confidence: f64,
    /// The part that is right (or agrees with the deployed model, where there are no labels).
    pub right: f64,
    pub count: usize,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Bins([(f64, usize, usize); BINS]);

impl Bins {
    pub(super) fn add(&mut self, confidence: f32, right: bool) {
        let confidence = f64::from(confidence).clamp(0.0, 1.0);
        let bin = ((confidence * BINS as f64) as usize).min(BINS - 1);
        if let Some((sum, rights, count)) = self.0.get_mut(bin) {
            *sum += confidence;
            *rights += usize::from(right);
            *count += 1;
        }
    }

    pub(super) fn finish(&self) -> Calibration {
        let all: usize = self.0.iter().map(|(_, _, count)| count).sum();
        let bins: Vec<CalibrationBin> = self
            .0
            .iter()
            .filter(|(_, _, count)| *count > 0)
            .map(|&(sum, rights, count)| CalibrationBin {
                confidence: sum / count as f64,
                right: rights as f64 / count as f64,
                count,
            })
            .collect();
        let error = |bin: &CalibrationBin| bin.count as f64 * (bin.confidence - bin.right).abs();
        Calibration {
            expected_error: bins.iter().map(error).sum::<f64>() / all.max(1) as f64,
            bins,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_is_the_gap_between_sure_and_right() {
        let mut bins = Bins::default();
        for index in 0..100 {
            bins.add(0.9, index % 2 == 0);
            bins.add(1.0, true);
        }
        let calibration = bins.finish();
        assert!(
            (calibration.expected_error - 0.2).abs() < 1e-6,
            "{calibration:?}"
        );
        assert_eq!(calibration.bins.len(), 2);
    }
}
