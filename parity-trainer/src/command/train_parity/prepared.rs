//! Inputs of a training, ready for its first step.

use std::sync::Arc;

use parity_trainer::data::DataSet;
use parity_trainer::deployed::Deployed;
use parity_trainer::{ParityRun, TrainingSet};

/// Everything that the training goes by.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) data: DataSet,
    pub(super) deployed: Deployed,
    pub(super) train: Arc<TrainingSet>,
    pub(super) validation: Arc<TrainingSet>,
    /// For row 0, with the code adding raw outputs.
    pub(super) run: ParityRun,
    pub(super) digest: String,
}
