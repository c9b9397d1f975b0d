//! Input range of a model of other origin.

use serde::{Deserialize, Serialize};

use crate::{Result, TrainError};

/// `input = (sample - mean) * scale`, the mean one for all values or one for each channel (the
/// first axis of three).
///
/// Clients send what the model wants, and the frontend encodes what clients send, so a parity model
/// is trained on scaled samples as well, and no server has to know of the scaling.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InputScaling {
    pub scale: f32,
    /// Mean that is subtracted first; empty for none.
    pub mean: Vec<f32>,
}

impl Default for InputScaling {
    fn default() -> Self {
        Self { scale: 1.0, mean: Vec::new() }
    }
}

impl InputScaling {
    pub fn is_identity(&self) -> bool {
        self.scale == 1.0 && self.mean.iter().all(|&mean| mean == 0.0)
    }

    pub fn check(&self, sample_shape: &[usize]) -> Result<()> {
        let (scale, means, channels) = (self.scale, self.mean.len(), channels(sample_shape));
        let problem = if !scale.is_finite() || scale == 0.0 {
            format!("scale: {scale} is no scale; give a finite number other than 0")
        } else if self.mean.iter().any(|mean| !mean.is_finite()) {
            "mean: must be finite".to_owned()
        } else if means > 1 && means != channels {
            format!("mean: {means} values; give 1, or {channels} (one for each channel)")
        } else {
            return Ok(());
        };
        Err(TrainError::Input(format!("--input-{problem}")))
    }

    pub fn apply(&self, sample_shape: &[usize], samples: &mut [f32]) {
        self.each(sample_shape, samples, |value, mean| (value - mean) * self.scale);
    }

    /// Undoes [`InputScaling::apply`], but for rounding.
    pub(crate) fn invert(&self, sample_shape: &[usize], samples: &mut [f32]) {
        self.each(sample_shape, samples, |value, mean| value / self.scale + mean);
    }

    fn each(&self, sample_shape: &[usize], samples: &mut [f32], new: impl Fn(f32, f32) -> f32) {
        if self.is_identity() {
            return;
        }
        let sample_len: usize = sample_shape.iter().product();
        let plane = (sample_len / channels(sample_shape)).max(1);
        for (channel, values) in samples.chunks_mut(plane).enumerate() {
            let mean = self.mean.get(channel % self.mean.len().max(1)).copied().unwrap_or_default();
            for value in values {
                *value = new(*value, mean);
            }
        }
    }
}

fn channels(sample_shape: &[usize]) -> usize {
    match sample_shape {
        &[channels, _, _] => channels.max(1),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_channel_has_its_mean() {
        let (scale, mean) = (2.0, vec![1.0, 2.0]);
        let scaling = InputScaling { scale, mean };
        let mut samples = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        scaling.apply(&[2, 1, 2], &mut samples);
        assert_eq!(samples, [0.0, 2.0, 2.0, 4.0, 8.0, 10.0, 10.0, 12.0]);
        scaling.invert(&[2, 1, 2], &mut samples);
        assert_eq!(samples, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        assert!(scaling.check(&[2, 1, 2]).is_ok());
        let message = scaling.check(&[3, 1, 2]).unwrap_err().to_string();
        assert!(message.contains("one for each channel"), "{message}");
        let (scale, mean) = (0.0, Vec::new());
        assert!(InputScaling { scale, mean }.check(&[4]).is_err());
    }
}
