//! Training: the deployed model on labels, the parity model on the deployed model's outputs.

mod deployed;
mod groups;
mod parity;
mod schedule;

pub use deployed::{DeployedRun, train_deployed};
pub use groups::training_inputs;
pub use parity::{ParityRun, TrainingSet, train_parity};

/// What a training loop tells after each step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepReport {
    /// Steps done.
    pub step: usize,
    /// Steps in all.
    pub steps: usize,
    /// The step's loss.
    pub loss: f64,
    /// The part of the step's rows whose class is right: the label's for a deployed model; for a parity model the
    /// deployed model's, after decoding.
    pub agreement: f64,
    /// Samples that went through the model so far.
    pub rows: usize,
}
