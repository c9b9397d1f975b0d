//! Adam and AdamW.

use super::{BOUND, UpdateRule, fit};

/// Adam (Kingma & Ba, ICLR 2015, algorithm 1): `m = b1 m + (1 - b1) g`, `v = b2 v + (1 - b2) g^2`,
/// `w -= rate (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon)`.
///
/// `t` counts the row's own updates: a sparse row that is seldom updated is corrected as if it had
/// been there alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adam {
    /// Learning rate.
    pub rate: f32,
    /// Share of the first moment that is kept.
    pub beta1: f32,
    /// Share of the second moment that is kept.
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
        Self {
            rate: 1e-3,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            decay: 0.0,
            decoupled: false,
        }
    }
}

/// `base^exponent` by squaring: the standard library's `powi` may round differently on another
/// platform.
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
