//! The choice of the output transform, and of a learned code's loss.

use std::sync::Arc;

use parapet_encoder::OutputTransform;
use parity_trainer::backend::Place;
use parity_trainer::run::{RunFolder, other_run};
use parity_trainer::{Loss, ParityRun, TrainError, Trainer};
use serde::{Deserialize, Serialize};

use super::prepare::{Inputs, Sets};
use crate::progress::Progress;

/// By how much another transform has to be better than raw outputs in its trial.
const MARGIN: f64 = 0.005;
const LOSSES: [Loss; 2] = [Loss::Mse, Loss::Kl];
pub(super) const CHOICE: &str = "transform.toml";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Candidate {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    loss: Option<Loss>,
    transform: OutputTransform,
}

impl Candidate {
    pub(super) fn of(run: &ParityRun) -> Self {
        Self {
            loss: run.learned.as_ref().map(|learned| learned.loss),
            transform: run.code.transform.clone(),
        }
    }

    pub(super) fn apply(&self, run: &mut ParityRun) {
        run.code.transform = self.transform.clone();
        if let (Some(learned), Some(loss)) = (&mut run.learned, self.loss) {
            learned.loss = loss;
        }
    }

    fn name(&self) -> String {
        let transform = transform_name(&self.transform);
        match self.loss {
            Some(loss) => format!("{transform}, loss {loss}"),
            None => transform,
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Choice {
    run: String,
    chosen: Candidate,
}

/// Chooses the output transform, and a learned code's loss, on validation data, by trials if there
/// is a choice; a resumed run keeps its choice.
pub(super) fn choose(
    inputs: &Inputs,
    sets: &Sets,
    folder: &RunFolder,
    resume: bool,
) -> Result<Candidate, TrainError> {
    let settings = &inputs.settings;
    let candidates = candidates(inputs, sets);
    if let [only] = candidates.as_slice() {
        return Ok(only.clone());
    }
    if resume && let Some(choice) = folder.read_toml::<Choice>(CHOICE)? {
        if choice.run == inputs.digest {
            return Ok(choice.chosen);
        }
        return Err(other_run(&folder.0.join(CHOICE)));
    }
    let count = candidates.len();
    let share = settings.trial_share / count.max(1) as f64;
    let steps = ((f64::from(settings.steps) * share).round() as u64).max(1);
    eprintln!("transform: tries {count} of them, {steps} steps each");
    // The highest agreement; what replaces a raw transform is better by a margin.
    let (mut chosen, mut least) = (Candidate::of(&inputs.run), f64::NEG_INFINITY);
    for candidate in candidates {
        let agreement = try_candidate(inputs, sets, &candidate, steps)?;
        if agreement > least {
            least = match candidate.transform.is_raw() {
                true => agreement + MARGIN,
                false => agreement,
            };
            chosen = candidate;
        }
    }
    eprintln!("transform {}: chosen on validation data", chosen.name());
    let run = inputs.digest.clone();
    let choice = Choice { run, chosen };
    folder.write_toml(CHOICE, &choice)?;
    Ok(choice.chosen)
}

/// Returns the candidates for trials: the transforms, for a learned code each with the losses. Raw
/// outputs are not among those of a learned code if others are: networks want them scaled.
fn candidates(inputs: &Inputs, sets: &Sets) -> Vec<Candidate> {
    let settings = &inputs.settings;
    let mut transforms = settings.transform.candidates(&sets.0);
    let losses = match settings.is_learned() {
        false => vec![None],
        true if settings.loss.is_some() => vec![settings.loss],
        true => LOSSES.map(Some).to_vec(),
    };
    let has_scaled = transforms.iter().any(|transform| !transform.is_raw());
    if settings.is_learned() && has_scaled {
        transforms.retain(|transform| !transform.is_raw());
    }
    let mut all = Vec::new();
    for transform in transforms {
        for &loss in &losses {
            let transform = transform.clone();
            all.push(Candidate { loss, transform });
        }
    }
    all
}

/// Trains with a candidate for some steps, and returns the agreement on validation data.
fn try_candidate(
    inputs: &Inputs,
    (train, validation): &Sets,
    candidate: &Candidate,
    steps: u64,
) -> Result<f64, TrainError> {
    let mut run = inputs.run.clone();
    candidate.apply(&mut run);
    run.rule.steps = steps;
    // Only the end of a cooled-down run is compared.
    run.validate_every = u64::MAX;
    let name = candidate.name();
    let mut progress = Progress::new(&format!("trial of {name}"), "steps");
    let (train, validation) = (Arc::clone(train), Arc::clone(validation));
    let mut trainer = Trainer::parity(run, train, validation, Place::InProcess)?;
    let mut agreement = 0.0;
    while !trainer.is_done() {
        match trainer.step() {
            Ok(step) => agreement = step.validation.map_or(agreement, |made| made.agreement),
            Err(TrainError::Diverged { .. }) => break,
            Err(error) => return Err(error),
        }
        progress.at(trainer.steps_done() as usize, steps as usize);
    }
    progress.finish();
    let percent = 100.0 * agreement;
    eprintln!("transform {name}: {percent:.1} % agreement after {steps} steps");
    Ok(agreement)
}

/// The transform's name in flags and files.
pub(crate) fn transform_name(transform: &OutputTransform) -> String {
    let table = toml::Table::try_from(transform).unwrap_or_default();
    let kind = table.get("kind").and_then(toml::Value::as_str);
    kind.unwrap_or("raw").to_owned()
}
