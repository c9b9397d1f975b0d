//! Stochastic gradient descent, with and without momentum.

use serde::{Deserialize, Serialize};

use super::{BOUND, UpdateRule, fit};

/// `w += u`: the worker computes the update itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Add;

impl UpdateRule for Add {
    fn slots(&self) -> usize {
        0
    }

    fn apply(&self, _step: u32, gradient: &[f32], values: &mut [f32], _state: &mut [&mut [f32]]) {
        for (w, u) in values.iter_mut().zip(gradient) {
            *w += u;
        }
    }

    fn keeps_moderate_finite(&self) -> bool {
        true
    }
}

/// `w -= rate (g + decay w)`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sgd {
    /// Learning rate.
    pub rate: f32,
    /// The weight of the L2 penalty.
    #[serde(default)]
    pub decay: f32,
}

impl UpdateRule for Sgd {
    fn slots(&self) -> usize {
        0
    }

    fn apply(&self, _step: u32, gradient: &[f32], values: &mut [f32], _state: &mut [&mut [f32]]) {
        for (w, g) in values.iter_mut().zip(gradient) {
            *w -= self.rate * (g + self.decay * *w);
        }
    }

    fn keeps_moderate_finite(&self) -> bool {
        let gradient = BOUND + f64::from(self.decay).abs() * BOUND;
        fit(&[gradient, BOUND + f64::from(self.rate).abs() * gradient])
    }
}

/// `v = momentum v + g + decay w`; `w -= rate v`, or `rate (g + decay w + momentum v)` after
/// Nesterov, as PyTorch has it (Sutskever et al., ICML 2013, with the rate outside of the
/// velocity).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Momentum {
    /// Learning rate.
    pub rate: f32,
    /// Share of the velocity that is kept, 0 to 1.
    pub momentum: f32,
    /// Nesterov's look-ahead.
    #[serde(default)]
    pub nesterov: bool,
    /// The weight of the L2 penalty.
    #[serde(default)]
    pub decay: f32,
}

impl UpdateRule for Momentum {
    fn slots(&self) -> usize {
        1
    }

    fn apply(&self, _step: u32, gradient: &[f32], values: &mut [f32], state: &mut [&mut [f32]]) {
        let [velocity] = state else { return };
        for ((w, v), g) in values.iter_mut().zip(velocity.iter_mut()).zip(gradient) {
            let g = g + self.decay * *w;
            *v = self.momentum * *v + g;
            *w -= self.rate
                * if self.nesterov {
                    g + self.momentum * *v
                } else {
                    *v
                };
        }
    }

    fn keeps_moderate_finite(&self) -> bool {
        let momentum = f64::from(self.momentum).abs();
        let gradient = BOUND + f64::from(self.decay).abs() * BOUND;
        let velocity = momentum * BOUND + gradient;
        let ahead = gradient + momentum * velocity;
        fit(&[
            velocity,
            ahead,
            BOUND + f64::from(self.rate).abs() * velocity.max(ahead),
        ])
    }
}
