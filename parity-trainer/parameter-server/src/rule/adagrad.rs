//! AdaGrad.

use serde::{Deserialize, Serialize};

use super::{BOUND, UpdateRule, fit};

/// AdaGrad (Duchi et al., JMLR 2011, the diagonal form): `n += g^2`, `w -= rate g / (sqrt(n) +
/// epsilon)`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AdaGrad {
    /// Learning rate.
    pub rate: f32,
    /// Added to the denominator.
    pub epsilon: f32,
}

impl UpdateRule for AdaGrad {
    fn slots(&self) -> usize {
        1
    }

    fn apply(&self, _step: u32, gradient: &[f32], values: &mut [f32], state: &mut [&mut [f32]]) {
        let [squares] = state else { return };
        for ((w, n), g) in values.iter_mut().zip(squares.iter_mut()).zip(gradient) {
            *n += g * g;
            *w -= self.rate * g / (n.max(0.0).sqrt() + self.epsilon);
        }
    }

    fn keeps_moderate_finite(&self) -> bool {
        let step = f64::from(self.rate).abs() * BOUND;
        self.epsilon > 0.0
            && fit(&[
                BOUND + BOUND * BOUND,
                step,
                BOUND + step / f64::from(self.epsilon),
            ])
    }
}
