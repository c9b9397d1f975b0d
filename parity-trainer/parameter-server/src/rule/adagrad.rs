//! AdaGrad.

use super::UpdateRule;

/// AdaGrad (Duchi et al., JMLR 2011, the diagonal form): `n += g^2`, `w -= rate g / (sqrt(n) + epsilon)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdaGrad {
    /// The learning rate.
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
            *w -= self.rate * g / (n.sqrt() + self.epsilon);
        }
    }
}
