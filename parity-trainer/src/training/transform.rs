//! Choice of the output transform that the code adds in: where a deployed model's outputs are badly
//! scaled it decides everything.

use std::sync::Arc;

use parapet_encoder::OutputTransform;
use serde::{Deserialize, Serialize};

use super::groups::{TrainingSet, moments};
use super::parity::ParityRun;
use super::trainer::{MakeBackend, Trainer};
use super::validation::Validation;
use crate::TrainError;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum TransformChoice {
    /// By short trials of each that fits, on validation data.
    Auto,
    /// Outputs as they are, as in ParM.
    #[default]
    Raw,
    /// Less their mean, over their standard deviation.
    Standardised,
    /// Log-probabilities, clamped from below.
    LogSoftmax,
}

/// Result of one transform's trial.
#[derive(Debug, Clone, PartialEq)]
pub struct TransformTrial {
    pub transform: OutputTransform,
    pub validation: Validation,
}

/// The transforms that `choice` allows for the outputs of `set`, raw first.
pub fn candidate_transforms(choice: TransformChoice, set: &TrainingSet) -> Vec<OutputTransform> {
    let standardised = || {
        let (mean, deviation) = moments(&set.answers);
        OutputTransform::Standardised {
            mean: vec![mean as f32],
            deviation: vec![(deviation as f32).max(1e-6)],
        }
    };
    let log_softmax = || OutputTransform::LogSoftmax {
        floor: parapet_encoder::DEFAULT_FLOOR,
    };
    match choice {
        TransformChoice::Raw => vec![OutputTransform::Raw],
        TransformChoice::Standardised => vec![standardised()],
        TransformChoice::LogSoftmax => vec![log_softmax()],
        TransformChoice::Auto => {
            let all = [OutputTransform::Raw, standardised(), log_softmax()];
            all.into_iter()
                .filter(|transform| transform.validate(set.outputs()).is_ok())
                .collect()
        }
    }
}

/// Trains a model for `steps` steps, the schedule drawn together to that length, with the outputs
/// added in `transform`.
///
/// # Errors
/// As [`Trainer`]'s; a training that diverges is no error but a trial with no agreement.
pub fn try_transform(
    run: &ParityRun,
    transform: OutputTransform,
    steps: u64,
    sets: (&Arc<TrainingSet>, &Arc<TrainingSet>),
    make_backend: MakeBackend<'_>,
    mut report: impl FnMut(u64),
) -> Result<TransformTrial, TrainError> {
    let mut run = run.clone();
    run.code.transform = transform.clone();
    run.rule.steps = steps;
    // Only the end of a cooled-down run is compared.
    run.validate_every = u64::MAX;
    let mut trainer = Trainer::parity(run, Arc::clone(sets.0), Arc::clone(sets.1), make_backend)?;
    let mut validation = Validation {
        agreement: 0.0,
        loss: f64::INFINITY,
    };
    while !trainer.is_done() {
        match trainer.step() {
            Ok(step) => validation = step.validation.unwrap_or(validation),
            Err(TrainError::Diverged { .. }) => break,
            Err(error) => return Err(error),
        }
        report(trainer.steps_done());
    }
    Ok(TransformTrial {
        transform,
        validation,
    })
}
