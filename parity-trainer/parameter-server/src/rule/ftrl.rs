//! FTRL-proximal.

use super::{BOUND, UpdateRule, fit};

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
    /// Weight of the L2 penalty.
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
            *w = if z.abs() <= self.l1 {
                0.0
            } else {
                -(*z - z.signum() * self.l1) / divisor
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
