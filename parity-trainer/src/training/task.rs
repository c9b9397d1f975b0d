//! Learner that a training loop drives.

use parapet_decoder::Score;
use rand_chacha::ChaCha8Rng;
use tch::Tensor;

use super::Trained;
use super::groups::GroupSampler;
use super::validation::Validation;
use crate::TrainError;
use crate::network::Network;

/// Everything about a training but the weights' way to the backend and the choice of the best ones,
/// which are the same whatever is learned ([`Trainer`](super::Trainer)).
pub(super) trait Task: std::fmt::Debug {
    /// The networks that learn, each with the word that its variables' names begin with.
    fn networks(&self) -> Vec<(&'static str, &Network)>;

    /// Takes a step's samples, which `draw` names, forward to the loss.
    fn attempt(
        &mut self,
        step: u64,
        randomness: &mut StepRandomness<'_>,
    ) -> Result<Attempt, TrainError>;

    /// Returns the quality of the weights; `None` without validation samples.
    fn validate(&self) -> Result<Option<Validation>, TrainError> {
        Ok(None)
    }

    /// The score of each reconstruction of validation samples, and whether it names the
    /// deployed model's class.
    fn scores(&self, _: Score) -> Result<Vec<(f32, bool)>, TrainError> {
        Ok(Vec::new())
    }

    /// Ends the training.
    fn freeze(self: Box<Self>) -> Trained;
}

/// Random choices of a step, so that a checkpoint has them all.
#[derive(Debug)]
pub(super) struct StepRandomness<'a> {
    pub(super) sampler: &'a mut GroupSampler,
    pub(super) rng: &'a mut ChaCha8Rng,
    /// The samples, where they are drawn already: of one part of a step.
    pub(super) drawn: Option<std::slice::Iter<'a, usize>>,
}

impl StepRandomness<'_> {
    /// Writes the samples of the next group.
    pub(super) fn group(&mut self, group: &mut [usize]) {
        match &mut self.drawn {
            Some(drawn) => group
                .iter_mut()
                .zip(drawn)
                .for_each(|(slot, &sample)| *slot = sample),
            None => self.sampler.next(group, self.rng),
        }
    }
}

/// A step's loss, and what its reconstructions came to.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) loss: Tensor,
    /// The loss as it is told: what validations tell, too.
    pub(super) told: f64,
    /// Reconstructions that name the deployed model's class; of a deployed model, outputs that
    /// name the label's.
    pub(super) agreeing: usize,
    /// All of them.
    pub(super) queries: usize,
}
