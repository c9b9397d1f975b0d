//! Training: the deployed model on labels, the parity model on the deployed model's outputs.

mod deployed;
mod groups;
mod parity;
mod split;
mod transform;
mod validation;
mod weights;

pub use deployed::{DeployedRun, train_deployed};
pub use groups::{SamplerPosition, TrainingSet, training_inputs};
pub use parity::{Best, MakeBackend, ParityRun, ParityTrainer, RngPosition, Trained, TrainerState};
pub use split::split_validation;
pub use transform::{TransformChoice, TransformTrial, candidate_transforms, try_transform};
pub use validation::Validation;
pub use weights::{Buffer, Snapshot};

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
    /// Passes over the training samples so far.
    pub epoch: f64,
    /// The step's learning rate.
    pub learning_rate: f64,
    /// The gradient's length before clipping.
    pub gradient_norm: f64,
    /// The validation that followed the step, if one did.
    pub validation: Option<Validation>,
}
