//! Input range of a model of other origin.

use serde::{Deserialize, Serialize};

use super::DeployedError;

/// `input = (sample - mean) * scale`, the mean one for all values or one for each channel (the
/// first axis of three).
///
/// The data's samples are `0..=1`; a model may have been trained on other ranges. Clients send what
/// the model wants, and the frontend encodes what clients send, so a parity model is trained on
/// scaled samples as well: the scaling is applied before all else, and no server has to know of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InputScaling {
    /// Factor of differences to the mean.
    pub scale: f32,
    /// Mean that is subtracted first; empty for none.
    pub mean: Vec<f32>,
}

impl Default for InputScaling {
    fn default() -> Self {
        Self {
            scale: 1.0,
            mean: Vec::new(),
        }
    }
}

impl InputScaling {
    /// Returns true if it leaves samples as they are.
    pub fn is_identity(&self) -> bool {
        self.scale == 1.0 && self.mean.iter().all(|&mean| mean == 0.0)
    }

    /// # Errors
    /// If a value is not finite or there are neither one nor as many means as channels.
    pub fn check(&self, sample_shape: &[usize]) -> Result<(), DeployedError> {
        let wrong = |flag, problem: String| Err(DeployedError::Scaling { flag, problem });
        if !self.scale.is_finite() || self.scale == 0.0 {
            return wrong(
                "scale",
                format!(
                    "{} is no scale; give a finite number other than 0",
                    self.scale
                ),
            );
        }
        if self.mean.iter().any(|mean| !mean.is_finite()) {
            return wrong("mean", "must be finite".to_owned());
        }
        let channels = channels(sample_shape);
        match self.mean.len() {
            0 | 1 => Ok(()),
            count if count == channels => Ok(()),
            count => wrong(
                "mean",
                format!("{count} values; give 1, or {channels} (one for each channel)"),
            ),
        }
    }

    /// Scales whole samples of `sample_shape` in place.
    pub fn apply(&self, sample_shape: &[usize], samples: &mut [f32]) {
        if self.is_identity() {
            return;
        }
        let sample_len: usize = sample_shape.iter().product();
        let plane = (sample_len / channels(sample_shape)).max(1);
        for (channel, values) in samples.chunks_mut(plane).enumerate() {
            let mean = match self.mean.as_slice() {
                [] => 0.0,
                means => means
                    .get(channel % means.len())
                    .copied()
                    .unwrap_or_default(),
            };
            for value in values {
                *value = (*value - mean) * self.scale;
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
        let scaling = InputScaling {
            scale: 2.0,
            mean: vec![1.0, 2.0],
        };
        let mut samples = vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        scaling.apply(&[2, 1, 2], &mut samples);
        assert_eq!(samples, [0.0, 2.0, 2.0, 4.0, 8.0, 10.0, 10.0, 12.0]);
        assert!(scaling.check(&[2, 1, 2]).is_ok());
        assert!(
            scaling
                .check(&[3, 1, 2])
                .unwrap_err()
                .to_string()
                .contains("one for each channel")
        );
        assert!(
            InputScaling {
                scale: 0.0,
                mean: vec![]
            }
            .check(&[4])
            .is_err()
        );
    }
}
