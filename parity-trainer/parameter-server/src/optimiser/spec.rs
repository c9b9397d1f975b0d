//! Optimisers over flat slices, with libtorch's arithmetic.

use crate::MODERATE;
use serde::{Deserialize, Serialize};

/// Optimiser and its constants; the learning rate comes with each step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum OptimiserSpec {
    /// Kingma and Ba 2015; weight decay is added to the gradient.
    Adam {
        /// Factor of the weight decay.
        weight_decay: f64,
    },
    /// Loshchilov and Hutter 2019; weight decay shrinks the weights themselves.
    AdamW {
        /// Factor of the weight decay.
        weight_decay: f64,
    },
    /// Gradient descent with (heavy-ball) momentum; weight decay is added to the gradient.
    Sgd {
        /// Part of the last update that goes on.
        momentum: f64,
        /// Factor of the weight decay.
        weight_decay: f64,
    },
}

/// Adam's decay of the first and second moment, and what keeps its divisor off zero.
const BETAS: (f64, f64) = (0.9, 0.999);
const EPSILON: f64 = 1e-8;

impl OptimiserSpec {
    /// Numbers that are kept for each weight.
    pub const fn slots(self) -> usize {
        match self {
            Self::Adam { .. } | Self::AdamW { .. } => 2,
            Self::Sgd { .. } => 1,
        }
    }

    /// Returns true if a step of moderate numbers at rates up to `rate` is finite,
    /// whatever they are.
    pub(crate) fn keeps_moderate_finite(self, rate: f64) -> bool {
        let (bound, rate) = (f64::from(MODERATE), rate.abs());
        let fit = |bounds: &[f64]| {
            bounds
                .iter()
                .all(|bound| bound.abs() < f64::from(f32::MAX) / 16.0)
        };
        let adam = |decay: f64, shrink: f64| {
            let gradient = bound + decay.abs() * bound;
            // The corrections are largest at the first step.
            let step = rate / (1.0 - BETAS.0) * (bound + gradient);
            let second = bound + gradient * gradient;
            let root = second.sqrt() / (1.0 - BETAS.1).sqrt();
            fit(&[second, root, step, (1.0 + shrink) * bound + step / EPSILON])
        };
        match self {
            Self::Adam { weight_decay } => adam(weight_decay, 0.0),
            Self::AdamW { weight_decay } => adam(0.0, rate * weight_decay.abs()),
            Self::Sgd {
                momentum,
                weight_decay,
            } => {
                let moving = (1.0 + weight_decay.abs() + momentum.abs()) * bound;
                fit(&[moving, bound + rate * moving])
            }
        }
    }

    /// Makes step `step` (from 1) with slices of one length; `second` is not looked at
    /// with one slot.
    #[expect(
        clippy::too_many_arguments,
        reason = "the one place of the arithmetic, over plain slices"
    )]
    pub fn update(
        self,
        step: u64,
        rate: f64,
        scale: f64,
        weights: &mut [f32],
        gradients: &[f32],
        first: &mut [f32],
        second: &mut [f32],
    ) {
        let scale = scale as f32;
        match self {
            Self::Adam { weight_decay } => {
                let (decay, shrink) = (weight_decay as f32, 1.0);
                Adam::at(step, rate, scale, decay, shrink)
                    .update(weights, gradients, first, second);
            }
            Self::AdamW { weight_decay } => {
                let (decay, shrink) = (0.0, (1.0 - rate * weight_decay) as f32);
                Adam::at(step, rate, scale, decay, shrink)
                    .update(weights, gradients, first, second);
            }
            Self::Sgd {
                momentum,
                weight_decay,
            } => {
                let (rate, decay) = (rate as f32, weight_decay as f32);
                // The first step's momentum is the gradient itself.
                let momentum = if step <= 1 { 0.0 } else { momentum as f32 };
                for ((weight, gradient), moving) in weights.iter_mut().zip(gradients).zip(first) {
                    *moving = momentum * *moving + (gradient * scale + decay * *weight);
                    *weight -= rate * *moving;
                }
            }
        }
    }
}

/// Adam's constants at one step.
struct Adam {
    pace: f32,
    root: f32,
    scale: f32,
    decay: f32,
    shrink: f32,
}

impl Adam {
    fn at(step: u64, rate: f64, scale: f32, decay: f32, shrink: f32) -> Self {
        let step = i32::try_from(step).unwrap_or(i32::MAX);
        let corrections = (1.0 - BETAS.0.powi(step), (1.0 - BETAS.1.powi(step)).sqrt());
        Self {
            pace: (rate / corrections.0) as f32,
            root: corrections.1 as f32,
            scale,
            decay,
            shrink,
        }
    }

    fn update(
        &self,
        weights: &mut [f32],
        gradients: &[f32],
        first: &mut [f32],
        second: &mut [f32],
    ) {
        let (keep_first, keep_second) = (BETAS.0 as f32, BETAS.1 as f32);
        let (take_first, take_second) = ((1.0 - BETAS.0) as f32, (1.0 - BETAS.1) as f32);
        let epsilon = EPSILON as f32;
        let values = weights.iter_mut().zip(gradients).zip(first).zip(second);
        for (((weight, gradient), first), second) in values {
            let gradient = gradient * self.scale + self.decay * *weight;
            *first = keep_first * *first + take_first * gradient;
            *second = keep_second * *second + take_second * gradient * gradient;
            *weight = self.shrink * *weight
                - self.pace * *first / (second.max(0.0).sqrt() / self.root + epsilon);
        }
    }
}
