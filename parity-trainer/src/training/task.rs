//! What a training loop learns.

use std::path::Path;

use parapet_decoder::Score;
use tch::Tensor;

use super::Trained;
use super::validation::Validation;
use crate::TrainError;
use crate::network::Network;

/// Everything about a training but the weights' way to the backend and the choice of the best ones, which are the same
/// whatever is learned ([`ParityTrainer`](super::ParityTrainer)).
pub(super) trait Task: std::fmt::Debug {
    /// The networks that learn, each with the word that its variables' names begin with.
    fn networks(&self) -> Vec<(&'static str, &Network)>;

    /// Takes a step's coding groups, whose samples `next` writes one group at a time, forward to the loss.
    fn attempt(&mut self, step: u64, next: &mut dyn FnMut(&mut [usize])) -> Result<Attempt, TrainError>;

    /// How good the weights are.
    fn validate(&self) -> Result<Validation, TrainError>;

    /// The score of each reconstruction of validation samples, and whether it names the deployed model's class.
    fn scores(&self, score: Score) -> Result<Vec<(f32, bool)>, TrainError>;

    /// Writes the weights as a safetensors file.
    fn save(&self, path: &Path) -> Result<(), TrainError>;

    /// Ends the training.
    fn freeze(self: Box<Self>) -> Trained;
}

/// A step's loss, and what its reconstructions came to.
#[derive(Debug)]
pub(super) struct Attempt {
    /// What gradients are of.
    pub(super) loss: Tensor,
    /// The loss as it is told: what validations tell, too.
    pub(super) told: f64,
    /// Reconstructions that name the deployed model's class.
    pub(super) agreeing: usize,
    /// All reconstructions.
    pub(super) queries: usize,
}
