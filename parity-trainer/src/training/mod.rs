//! Training: the deployed model on labels, parity models and learned codes on its outputs.

mod communication;
mod deployed;
mod groups;
mod learned_code;
mod loss;
mod parity_model;
mod samples;
mod student;
mod trainer;
mod weights;

use rand_chacha::ChaCha8Rng;
use tch::Tensor;

use crate::Result;
use crate::network::{Network, Pass, SlotNetwork};

pub use communication::LayerTraffic;
pub use deployed::DeployedRun;
pub use groups::{Sampler, TransformChoice};
pub use learned_code::group_shape;
pub use loss::Loss;
pub use parity_model::{LearnedRun, ParityRun};
pub use samples::{TrainingSet, split_validation, training_inputs};
pub use student::{VALIDATION_SAMPLES, Variants};
pub use trainer::{Best, Trainer, TrainerState};

/// Groups whose queries say how a network scales its input.
const NORMALISATION_GROUPS: usize = 256;
/// Groups that go through a network at once in a validation.
const VALIDATION_CHUNK: usize = 64;

#[derive(Debug)]
pub enum Trained {
    Model(Network),
    Slots(SlotNetwork),
    LearnedCode { encoder: Network, decoder: Network },
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepReport {
    pub step: usize,
    pub steps: usize,
    pub loss: f64,
    /// The part of the step's rows that are right: of the label's class for a deployed model; for a
    /// parity model in agreement with the deployed one, after decoding.
    pub agreement: f64,
    /// Samples that went through the model so far.
    pub rows: usize,
    /// Passes over the training samples so far.
    pub epoch: f64,
    pub learning_rate: f64,
    pub gradient_norm: f64,
    pub validation: Option<Validation>,
}

#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Validation {
    /// The part of the queries, each missing in turn, whose reconstruction agrees with the model.
    pub agreement: f64,
    /// Mean squared error of the parity outputs; of a learned code, what its training lessens.
    pub loss: f64,
}

impl Validation {
    /// Returns true if it is better. ParM (section 4.1) selects by agreement; then by the loss. A
    /// slot is selected by its loss, which is less a matter of chance.
    fn beats(&self, other: &Self, by_loss: bool) -> bool {
        let is_lower = self.loss < other.loss;
        match by_loss {
            true => is_lower,
            false if self.agreement == other.agreement => is_lower,
            false => self.agreement > other.agreement,
        }
    }
}

/// Everything about a training but the weights' way to the backend and the choice of the best ones,
/// which are the same whatever is learned ([`Trainer`]).
trait Task: std::fmt::Debug {
    /// The networks that learn, each with the word that its variables' names begin with.
    fn networks(&self) -> Vec<(&'static str, &Network)>;

    /// Takes `members`, the samples of a step or of a part of it, forward to the loss.
    fn attempt(&mut self, step: u64, members: &[usize], rng: &mut ChaCha8Rng) -> Result<Attempt>;

    /// Judges the weights on validation samples: hands on each reconstruction with the deployed
    /// model's outputs, and returns the mean loss; `None` without such samples.
    fn validate(&self, _: &mut dyn FnMut(&[f32], &[f32])) -> Result<Option<f64>> {
        Ok(None)
    }

    fn freeze(self: Box<Self>) -> Trained;
}

struct Attempt {
    loss: Tensor,
    pass: Pass,
    /// The loss as it is told: what validations tell, too.
    told: f64,
    /// Reconstructions that agree with the deployed model; of a deployed model, right classes.
    agreeing: usize,
    queries: usize,
}

#[cfg(test)]
mod tests {
    use super::Validation;

    #[test]
    fn slots_are_compared_by_loss_and_others_by_agreement() {
        let of = |agreement, loss| Validation { agreement, loss };
        let (lucky, best) = (of(0.79, 0.33), of(0.78, 0.3));
        assert!(best.beats(&lucky, true) && !lucky.beats(&best, true));
        assert!(lucky.beats(&best, false) && !best.beats(&lucky, false));
        assert!(of(0.79, 0.3).beats(&lucky, false) && !lucky.beats(&lucky, false));
    }
}
