//! Settings for training a parity model, or a learned code.

use std::path::PathBuf;
use std::rc::Rc;

use parapet_encoder::CodeSpec;

use super::learned_code::loss::Loss;
use crate::backend::OptimiserConfig;
use crate::deployed::Differentiable;
use crate::network::NetworkSpec;

/// Settings for training a parity model, or a learned code.
#[derive(Debug, Clone)]
pub struct ParityRun {
    /// The network; a learned code's encoder.
    pub network: NetworkSpec,
    /// The code, with its output transform.
    pub code: CodeSpec,
    /// Index of the parity row that the model is for.
    pub row: usize,
    /// Coding groups a step.
    pub groups: usize,
    /// Update rule, and the number of steps.
    pub rule: OptimiserConfig,
    /// Steps from one validation to the next; the last step is always followed by one.
    pub validate_every: u64,
    /// Part of the groups that are completed with fillers, `0.0..=1.0` (invariant CG-5).
    pub filler_share: f64,
    /// True if the network scales what it takes by its mean and deviation.
    pub normalise: bool,
    /// True if a network of cells learns each cell's part of the target, and not only their sum.
    pub cell_targets: bool,
    /// Weights to begin with: those of a network of this trainer, of the same layers or of those
    /// of one cell.
    pub start: Option<PathBuf>,
    /// The rest of a learned code; none for a parity model.
    pub learned: Option<LearnedRun>,
    /// Seed of everything random.
    pub seed: u64,
}

/// Settings of a learned code's training besides a parity model's.
#[derive(Debug, Clone)]
pub struct LearnedRun {
    pub decoder: NetworkSpec,
    pub loss: Loss,
    pub through: Rc<dyn Differentiable>,
}
