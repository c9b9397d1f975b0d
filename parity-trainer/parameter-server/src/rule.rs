//! Update rules: the effect of a push on the parameters, on the server.

use serde::{Deserialize, Serialize};

use crate::{Key, MODERATE};

/// Rule by which a gradient changes parameters.
///
/// Each replica applies the operations for itself, so a rule is deterministic to the last bit
/// (PS-5): no clock, no random number, no library function whose result differs between platforms.
pub trait UpdateRule: std::fmt::Debug + Send + Sync {
    /// Number of values of state for each parameter. All start at 0.
    fn slots(&self) -> usize {
        0
    }

    /// Returns true if the rule needs to know how often a row was updated.
    fn counts_steps(&self) -> bool {
        false
    }

    /// Updates one or more rows with the same `step`, 1 for their first update (0 if steps are not
    /// counted). `gradient`, `values` and each of the `slots` slices of `state` are of one length.
    fn apply(&self, step: u32, gradient: &[f32], values: &mut [f32], state: &mut [&mut [f32]]);

    /// Returns true if every update of values, state and gradient up to [`MODERATE`] in magnitude
    /// is finite. The store tries all other updates on a copy first (PS-7).
    fn keeps_moderate_finite(&self) -> bool {
        false
    }

    /// First key of the rows that [`apply_beyond`](Self::apply_beyond) updates, if there are some.
    fn border(&self) -> Option<Key> {
        None
    }

    /// As [`apply`](Self::apply), for the rows from the border on.
    fn apply_beyond(
        &self,
        step: u32,
        gradient: &[f32],
        values: &mut [f32],
        state: &mut [&mut [f32]],
    ) {
        self.apply(step, gradient, values, state);
    }
}

/// [`MODERATE`], to compute bounds with.
const BOUND: f64 = MODERATE as f64;

/// Returns true if numbers up to these bounds are finite, with room for rounding.
fn fit(bounds: &[f64]) -> bool {
    let limit = f64::from(f32::MAX) / 16.0;
    bounds.iter().all(|bound| bound.abs() < limit)
}

/// `w += u`: the worker computes the update itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Add;

impl UpdateRule for Add {
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
    pub rate: f32,
    #[serde(default)]
    pub decay: f32,
}

impl UpdateRule for Sgd {
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

/// `v = momentum v + g + decay w`; `w -= rate v`, as PyTorch has it (Sutskever et al., ICML 2013,
/// with the rate outside of the velocity).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Momentum {
    pub rate: f32,
    /// Share of the velocity that is kept, 0 to 1.
    pub momentum: f32,
    pub decay: f32,
}

impl UpdateRule for Momentum {
    fn slots(&self) -> usize {
        1
    }

    fn apply(&self, _step: u32, gradient: &[f32], values: &mut [f32], state: &mut [&mut [f32]]) {
        let [velocity] = state else { return };
        for ((w, v), g) in values.iter_mut().zip(velocity.iter_mut()).zip(gradient) {
            *v = self.momentum * *v + (g + self.decay * *w);
            *w -= self.rate * *v;
        }
    }

    fn keeps_moderate_finite(&self) -> bool {
        let gradient = BOUND + f64::from(self.decay).abs() * BOUND;
        let velocity = f64::from(self.momentum).abs() * BOUND + gradient;
        fit(&[velocity, BOUND + f64::from(self.rate).abs() * velocity])
    }
}

/// Adam (Kingma & Ba, ICLR 2015, algorithm 1): `m = b1 m + (1 - b1) g`, `v = b2 v + (1 - b2) g^2`,
/// `w -= rate (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon)`.
///
/// `t` counts the row's own updates: a sparse row that is seldom updated is corrected as if it had
/// been there alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adam {
    pub rate: f32,
    pub beta1: f32,
    pub beta2: f32,
    /// Added to the denominator.
    pub epsilon: f32,
    /// Factor of the weight decay: `g += decay w`, an L2 penalty.
    pub decay: f32,
    /// AdamW: the decay is `w -= rate decay w`, apart from the moments (Loshchilov & Hutter, ICLR
    /// 2019, algorithm 2).
    pub decoupled: bool,
}

impl Default for Adam {
    fn default() -> Self {
        Self { rate: 1e-3, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, decay: 0.0, decoupled: false }
    }
}

/// `base^exponent` by squaring: the standard library's `powi` may round differently by platform.
fn power(base: f32, mut exponent: u32) -> f64 {
    let (mut base, mut result) = (f64::from(base), 1.0);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
}

impl UpdateRule for Adam {
    fn slots(&self) -> usize {
        2
    }

    fn counts_steps(&self) -> bool {
        true
    }

    fn apply(&self, step: u32, gradient: &[f32], values: &mut [f32], state: &mut [&mut [f32]]) {
        let [first, second] = state else { return };
        let (penalty, shrink) = match self.decoupled {
            false => (self.decay, 1.0),
            true => (0.0, 1.0 - f64::from(self.rate) * f64::from(self.decay)),
        };
        let shrink = shrink as f32;
        let step_size = (f64::from(self.rate) / (1.0 - power(self.beta1, step))) as f32;
        let correction = (1.0 / (1.0 - power(self.beta2, step)).sqrt()) as f32;
        let moments = first.iter_mut().zip(second.iter_mut());
        for ((w, (m, v)), g) in values.iter_mut().zip(moments).zip(gradient) {
            let g = g + penalty * *w;
            *m = self.beta1 * *m + (1.0 - self.beta1) * g;
            *v = self.beta2 * *v + (1.0 - self.beta2) * g * g;
            let step = step_size * *m / (v.max(0.0).sqrt() * correction + self.epsilon);
            *w = shrink * *w - step;
        }
    }

    fn keeps_moderate_finite(&self) -> bool {
        let [rate, beta1, beta2] = [self.rate, self.beta1, self.beta2].map(f64::from);
        let (decay, epsilon) = (f64::from(self.decay).abs(), f64::from(self.epsilon));
        let (penalty, decoupled) = match self.decoupled {
            false => (decay, 0.0),
            true => (0.0, rate.abs() * decay),
        };
        let gradient = BOUND + penalty * BOUND;
        let second = BOUND + gradient * gradient;
        // The corrections are largest at the first step.
        let step = rate.abs() / (1.0 - beta1) * (BOUND + gradient);
        let root = second.sqrt() / (1.0 - beta2).sqrt();
        let value = BOUND + decoupled * BOUND + step / epsilon;
        let are_shares = (0.0..1.0).contains(&beta1) && (0.0..1.0).contains(&beta2);
        are_shares && epsilon > 0.0 && fit(&[second, root, step, value])
    }
}

/// Follow the regularised leader, proximal, per coordinate (McMahan et al., "Ad Click Prediction",
/// KDD 2013, algorithm 1): `s = (sqrt(n + g^2) - sqrt(n)) / alpha`, `z += g - s w`, `n += g^2`, and
/// the weight follows from z and n: `w = 0` if `|z| <= l1`, else `-(z - sign(z) l1) / ((beta +
/// sqrt(n)) / alpha + l2)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ftrl {
    /// Scale of the learning rate, above 0.
    pub alpha: f32,
    /// Smooths the first steps.
    pub beta: f32,
    /// Weight of the L1 penalty: makes weights exactly 0.
    pub l1: f32,
    pub l2: f32,
}

impl UpdateRule for Ftrl {
    fn slots(&self) -> usize {
        2
    }

    fn apply(&self, _step: u32, gradient: &[f32], values: &mut [f32], state: &mut [&mut [f32]]) {
        let [sums, squares] = state else { return };
        let state = sums.iter_mut().zip(squares.iter_mut());
        for ((w, (z, n)), g) in values.iter_mut().zip(state).zip(gradient) {
            let grown = *n + g * g;
            let sigma = (grown.max(0.0).sqrt() - n.max(0.0).sqrt()) / self.alpha;
            *z += g - sigma * *w;
            *n = grown;
            let divisor = (self.beta + n.max(0.0).sqrt()) / self.alpha + self.l2;
            *w = match z.abs() <= self.l1 {
                true => 0.0,
                false => -(*z - z.signum() * self.l1) / divisor,
            };
        }
    }

    fn keeps_moderate_finite(&self) -> bool {
        let [alpha, beta, l1, l2] = [self.alpha, self.beta, self.l1, self.l2].map(f64::from);
        let squares = BOUND + BOUND * BOUND;
        let sigma = squares.sqrt() / alpha;
        let sum = 2.0 * BOUND + sigma * BOUND + l1;
        let (least, divisor) = (beta / alpha + l2, (beta + squares.sqrt()) / alpha + l2);
        let is_usual = alpha > 0.0 && beta >= 0.0 && l1 >= 0.0 && l2 >= 0.0 && least > 0.0;
        is_usual && fit(&[squares, sigma, sum, divisor, sum / least])
    }
}
