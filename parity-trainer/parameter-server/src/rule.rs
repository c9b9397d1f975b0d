//! Update rules: the effect of a push on the parameters, on the server.

mod adam;
mod ftrl;

pub use adam::Adam;
pub use ftrl::Ftrl;
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
    /// Learning rate.
    pub rate: f32,
    /// Weight of the L2 penalty.
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
    /// Learning rate.
    pub rate: f32,
    /// Share of the velocity that is kept, 0 to 1.
    pub momentum: f32,
    /// Weight of the L2 penalty.
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
