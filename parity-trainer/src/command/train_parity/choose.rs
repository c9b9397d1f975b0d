//! The choice of the output transform, and of a learned code's loss.

use parapet_encoder::OutputTransform;
use parity_trainer::run::{RunError, RunFolder};
use parity_trainer::{
    Loss, TrainError, Trainer, TransformTrial, candidate_transforms, try_transform,
};
use serde::{Deserialize, Serialize};

use super::learned;
use super::prepared::Prepared;
use super::settings::Settings;
use crate::progress::Counter;

/// By how much another transform has to be better than raw outputs in its trial.
const MARGIN: f64 = 0.005;

/// The choice of an output transform, in the run's folder.
pub(super) const CHOICE: &str = "transform.toml";

/// Settings chosen on validation data.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Choice {
    /// Digest of the run.
    run: String,
    /// Loss of a learned code's training.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) loss: Option<Loss>,
    pub(super) transform: OutputTransform,
    trials: Vec<Trial>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Trial {
    transform: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    loss: Option<Loss>,
    steps: i64,
    agreement: f64,
}

/// Chooses the output transform, and a learned code's loss, on validation data, by trials if there
/// is a choice; a resumed run keeps its choice.
pub(super) fn choose(
    settings: &Settings,
    prepared: &Prepared,
    folder: &RunFolder,
    resume: bool,
) -> Result<Choice, TrainError> {
    let transforms = candidate_transforms(settings.transform, &prepared.train);
    let candidates = learned::candidates(settings, transforms);
    let run = prepared.digest.clone();
    if let [(transform, loss)] = candidates.as_slice() {
        return Ok(Choice {
            run,
            loss: *loss,
            transform: transform.clone(),
            trials: Vec::new(),
        });
    }
    if resume && let Some(choice) = folder.read::<Choice>(CHOICE)? {
        if choice.run == prepared.digest {
            return Ok(choice);
        }
        return Err(RunError::OtherRun {
            path: folder.path().join(CHOICE),
        }
        .into());
    }
    let share = settings.trial_share / candidates.len().max(1) as f64;
    let steps = ((f64::from(settings.steps) * share).round() as u64).max(1);
    eprintln!(
        "transform: tries {} of them, {steps} steps each",
        candidates.len()
    );
    let mut trials: Vec<(TransformTrial, Option<Loss>)> = Vec::new();
    for (transform, loss) in candidates {
        let trial = try_candidate(prepared, transform, loss, steps)?;
        trials.push((trial, loss));
    }
    let chosen = best(&trials);
    let (transform, loss) = chosen
        .map(|(trial, loss)| (trial.transform.clone(), *loss))
        .unwrap_or_default();
    eprintln!(
        "transform {}: chosen on validation data",
        candidate_name(&transform, loss)
    );
    let trials = trials.iter().map(|(trial, loss)| Trial {
        transform: transform_name(&trial.transform),
        loss: *loss,
        steps: steps as i64,
        agreement: trial.validation.agreement,
    });
    let choice = Choice {
        run,
        loss,
        transform,
        trials: trials.collect(),
    };
    folder.write_toml(CHOICE, &choice)?;
    Ok(choice)
}

/// Trains with a candidate for some steps, and validates.
fn try_candidate(
    prepared: &Prepared,
    transform: OutputTransform,
    loss: Option<Loss>,
    steps: u64,
) -> Result<TransformTrial, TrainError> {
    let mut run = prepared.run.clone();
    run.rule.steps = steps;
    if let (Some(learned), Some(loss)) = (&mut run.learned, loss) {
        learned.loss = loss;
    }
    let name = candidate_name(&transform, loss);
    let mut progress = Counter::new(&format!("trial of {name}"), "steps");
    let trial = try_transform(
        &run,
        transform,
        steps,
        (&prepared.train, &prepared.validation),
        &mut Trainer::local(run.rule),
        |step| progress.at(step as usize, steps as usize),
    )?;
    progress.finish();
    eprintln!(
        "transform {name}: {:.1} % agreement after {steps} steps",
        100.0 * trial.validation.agreement
    );
    Ok(trial)
}

/// Returns the trial with the highest agreement; what replaces a raw transform is better by a
/// margin.
fn best(trials: &[(TransformTrial, Option<Loss>)]) -> Option<&(TransformTrial, Option<Loss>)> {
    let mut chosen: Option<&(TransformTrial, Option<Loss>)> = None;
    for trial in trials {
        let is_raw = chosen.is_some_and(|(best, _)| best.transform.is_raw());
        let margin = if is_raw { MARGIN } else { 0.0 };
        let agreement = trial.0.validation.agreement;
        if chosen.is_none_or(|(best, _)| agreement > best.validation.agreement + margin) {
            chosen = Some(trial);
        }
    }
    chosen
}

fn candidate_name(transform: &OutputTransform, loss: Option<Loss>) -> String {
    let transform = transform_name(transform);
    loss.map_or_else(
        || transform.clone(),
        |loss| format!("{transform}, loss {loss}"),
    )
}

/// The transform's name in flags and files.
pub(super) fn transform_name(transform: &OutputTransform) -> String {
    let table = toml::Table::try_from(transform).unwrap_or_default();
    table
        .get("kind")
        .and_then(toml::Value::as_str)
        .unwrap_or("raw")
        .to_owned()
}
