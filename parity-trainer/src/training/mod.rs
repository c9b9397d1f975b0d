//! Training: the deployed model on labels, parity models and learned codes on the deployed model's
//! outputs.

mod deployed;
mod groups;
mod learned_code;
mod parity;
mod parity_model;
mod split;
mod task;
mod trainer;
mod transform;
mod validation;
mod weights;

pub use deployed::DeployedRun;
pub use groups::{SamplerPosition, TrainingSet, training_inputs};
pub use learned_code::{Loss, group_shape};
pub use parity::LearnedRun;
pub use parity::ParityRun;
pub use split::split_validation;
pub use trainer::{Best, MakeBackend, RngPosition, Trainer, TrainerState};
pub use transform::{TransformChoice, TransformTrial, candidate_transforms, try_transform};
pub use validation::Validation;
pub use weights::{Buffer, Snapshot};

use crate::network::Network;

/// Groups whose queries say how a network scales its input.
const NORMALISATION_GROUPS: usize = 256;

#[derive(Debug)]
pub enum Trained {
    /// A parity model, or a deployed one.
    Model(Network),
    /// A learned code's networks.
    LearnedCode {
        /// From k queries to r parity queries.
        encoder: Network,
        /// From k + r predictions to k.
        decoder: Network,
    },
}

/// Report of a training loop after each step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepReport {
    pub step: usize,
    /// Steps in all.
    pub steps: usize,
    pub loss: f64,
    /// The part of the step's rows whose class is right: the label's for a deployed model; for a
    /// parity model the deployed model's, after decoding.
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
