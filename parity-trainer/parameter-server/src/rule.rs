//! Update rules: what a push does to the parameters, on the server.

mod adagrad;
mod adam;
mod ftrl;
mod sgd;
mod spec;

pub use adagrad::AdaGrad;
pub use adam::Adam;
pub use ftrl::Ftrl;
pub use sgd::{Add, Momentum, Sgd};
pub use spec::RuleSpec;

use crate::{Key, MODERATE};

/// Rule by which a gradient changes parameters.
///
/// Replicas apply the same operations each for itself, so a rule must be deterministic to the last
/// bit (PS-5): no clock, no random number, no interior state, no library function whose result
/// differs between platforms.
pub trait UpdateRule: std::fmt::Debug + Send + Sync {
    /// Number of values of state for each parameter. All start at 0.
    fn slots(&self) -> usize;

    /// Returns true if it needs to know how often a row was updated.
    fn counts_steps(&self) -> bool {
        false
    }

    /// Updates some parameters: `gradient`, `values` and each of the `slots` slices of `state` are
    /// of one length. They are one or more rows with the same `step`, 1 for their first update (0
    /// if steps are not counted).
    fn apply(&self, step: u32, gradient: &[f32], values: &mut [f32], state: &mut [&mut [f32]]);

    /// Returns true if an update of values, state and gradient up to [`MODERATE`] in magnitude is
    /// finite, whatever they are. The store tries all other updates on a copy first (PS-7).
    fn keeps_moderate_finite(&self) -> bool {
        false
    }

    /// The key from which on rows are something else and updated by
    /// [`apply_beyond`](Self::apply_beyond), if there is one.
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
    bounds
        .iter()
        .all(|bound| bound.abs() < f64::from(f32::MAX) / 16.0)
}
