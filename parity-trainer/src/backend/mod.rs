//! Where parameters live and how they are updated.
//!
//! A training loop computes gradients; all else about parameters goes through [`ParameterBackend`]: it pulls the weights,
//! pushes gradients and ends a step with a clock tick. Where the update happens is not the loop's business: every run goes
//! through a parameter server, by default one inside the process ([`EmbeddedBackend`]). [`LocalBackend`] is the plain
//! arithmetic to compare with.

mod embedded;
mod local;
mod optimiser;
mod parameters;
mod schedule;

pub use embedded::EmbeddedBackend;
pub use local::{LocalBackend, UpdateRule};
pub use optimiser::{Optimiser, OptimiserSpec};
pub use parameters::{ParameterSet, ParameterShape};
pub use schedule::Schedule;

/// Holds a model's parameters and applies gradients to them.
pub trait ParameterBackend: std::fmt::Debug {
    /// Copies the current weights into `into`.
    ///
    /// # Errors
    /// If `into` has another layout, or the weights cannot be had.
    fn pull(&mut self, into: &mut ParameterSet) -> Result<(), BackendError>;

    /// Hands in the gradients of one batch. Several before a tick are averaged.
    ///
    /// # Errors
    /// If they have another layout than the weights, or cannot be delivered.
    fn push(&mut self, gradients: &ParameterSet) -> Result<(), BackendError>;

    /// Ends a step: gradients pushed before it are in the weights that are pulled after it. Without any it is no step.
    ///
    /// # Errors
    /// If the update cannot be made.
    fn clock(&mut self) -> Result<Tick, BackendError>;

    /// Everything that the backend would need to go on from here, for a checkpoint.
    ///
    /// # Errors
    /// If it cannot be had.
    fn state(&mut self) -> Result<BackendState, BackendError>;

    /// Goes on from `state`.
    ///
    /// # Errors
    /// If it is another model's or another optimiser's.
    fn restore(&mut self, state: &BackendState) -> Result<(), BackendError>;
}

/// What a step was.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tick {
    /// Steps done.
    pub clock: u64,
    /// The learning rate of this one.
    pub learning_rate: f64,
    /// The gradient's length before clipping.
    pub gradient_norm: f64,
}

/// A backend's state: flat arrays, each as long as all parameters together, in the parameters' order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BackendState {
    /// Steps done.
    pub clock: u64,
    /// `weights`, and what the optimiser keeps, by name.
    pub arrays: Vec<(String, Vec<f32>)>,
}

impl BackendState {
    /// The array of that name.
    pub fn array(&self, name: &str) -> Option<&[f32]> {
        self.arrays.iter().find(|(own, _)| own == name).map(|(_, values)| values.as_slice())
    }
}

/// A backend that cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// Parameters of another model.
    #[error("{what} hold {got} values, the model has {expected}; they are another model's")]
    Layout {
        /// Which parameters.
        what: String,
        /// Values of the model.
        expected: usize,
        /// Values that came.
        got: usize,
    },
    /// A state without something that this optimiser keeps.
    #[error("the state has no `{array}`; it was written by another optimiser")]
    State {
        /// What is missing.
        array: String,
    },
    /// The parameter server does not take a request: the gradient is not finite, or a bug.
    #[error("the parameter server refuses the {what} of step {step}: {reason}")]
    Refused {
        /// Push or pull.
        what: &'static str,
        /// The step.
        step: u64,
        /// Why.
        reason: String,
    },
    /// The parameters are elsewhere and cannot be reached.
    #[error("the parameters cannot be reached: {0}")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
}
