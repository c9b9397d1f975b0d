//! From gradients to updates.

use serde::{Deserialize, Serialize};

use crate::optimiser::{OptimiserSpec, Schedule};

/// As in PyTorch: keeps a vanishing gradient's scale finite.
const CLIP_EPSILON: f64 = 1e-6;

/// Optimiser of a training and its learning rate over the steps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct OptimiserConfig {
    /// Optimiser.
    pub optimiser: OptimiserSpec,
    /// Peak learning rate.
    pub learning_rate: f64,
    /// Schedule of the learning rate.
    pub schedule: Schedule,
    /// Steps that the schedule spans.
    pub steps: u64,
    /// Longest gradient; longer ones are scaled down to it. `None` for any.
    pub clip: Option<f64>,
}

impl OptimiserConfig {
    /// The rate of the step after `done` steps.
    pub fn rate(&self, done: u64) -> f64 {
        self.schedule.rate(self.learning_rate, done, self.steps)
    }

    /// The length of the mean of gradients whose sum this is, and what to scale the sum by: to the
    /// mean, and to no more than the longest allowed.
    pub fn scale(&self, sum: &[f32], count: u32) -> (f64, f64) {
        let mean = 1.0 / f64::from(count);
        let norm = mean * norm(sum);
        let clipped = self
            .clip
            .map_or(1.0, |longest| (longest / (norm + CLIP_EPSILON)).min(1.0));
        (norm, mean * clipped)
    }
}

/// The length of a vector. Sums of a few thousand squares at a time lose nothing in `f32`, and go
/// at its speed.
pub fn norm(values: &[f32]) -> f64 {
    let lanes = |chunk: &[f32]| {
        let mut sums = [0.0f32; 8];
        let (whole, rest) = chunk.as_chunks::<8>();
        for values in whole {
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum += value * value;
            }
        }
        let rest: f32 = rest.iter().map(|value| value * value).sum();
        f64::from(sums.iter().sum::<f32>() + rest)
    };
    values.chunks(4096).map(lanes).sum::<f64>().sqrt()
}
