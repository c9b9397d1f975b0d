//! The choice of the output transform, of a learned code's loss, and of the network for slots.

use std::sync::Arc;
use std::time::Instant;

use parapet_encoder::OutputTransform;
use parity_trainer::backend::Place;
use parity_trainer::network::NetworkSpec;
use parity_trainer::run::{RunFolder, other_run};
use parity_trainer::{Loss, ParityRun, TrainError, Trainer, Validation};
use serde::{Deserialize, Serialize};

use super::prepare::{Inputs, Sets};
use super::settings::Settings;
use crate::progress::Progress;

/// By how much another transform has to be better than raw outputs in its trial.
const MARGIN: f64 = 0.005;
/// Steps that tell how long one takes.
const TIMED_STEPS: u32 = 8;
const VALIDATION_TIME: f64 = 0.2;
const MOST_STEPS: u64 = 50_000;
/// Peak learning rate for a stack's network, which begins near its end, and how many times as high
/// a one a network with batch norm takes.
const SLOTS_LEARNING_RATE: f64 = 1e-2;
const WITH_BATCH_NORM: f64 = 2.0;
/// The same for one without that learns numbers: at the full rate a LeNet's units died after 3000
/// steps of learning boxes.
const WITHOUT_SOFTMAX: f64 = 0.3;
const LOSSES: [Loss; 2] = [Loss::Mse, Loss::Kl];
pub(super) const CHOICE: &str = "choice.toml";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Candidate {
    network: NetworkSpec,
    loss: Loss,
    transform: OutputTransform,
    /// Of the run.
    steps: u64,
}

impl Candidate {
    pub(super) fn of(run: &ParityRun) -> Self {
        Self {
            network: run.network.clone(),
            loss: run.loss,
            transform: run.code.transform.clone(),
            steps: run.rule.steps,
        }
    }

    pub(super) fn apply(&self, run: &mut ParityRun, settings: &Settings) {
        run.rule.steps = self.steps;
        if settings.has_slots() && settings.common.learning_rate.is_none() {
            let factor = match (self.network.has_batch_norm(), self.loss) {
                (true, _) => WITH_BATCH_NORM,
                (false, Loss::Kl) => 1.0,
                (false, Loss::Mse) => WITHOUT_SOFTMAX,
            };
            run.rule.learning_rate = factor * SLOTS_LEARNING_RATE;
        }
        run.validate_every = settings.validate_every(self.steps);
        run.network = self.network.clone();
        run.loss = self.loss;
        run.code.transform = self.transform.clone();
    }

    fn name(&self) -> String {
        let (network, loss) = (&self.network, self.loss);
        format!("{network}, {} outputs, loss {loss}", transform_name(&self.transform))
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Choice {
    run: String,
    chosen: Candidate,
}

/// Chooses on validation data, by trials if there is a choice; a resumed run keeps its choice.
pub(super) fn choose(
    inputs: &Inputs,
    sets: &Sets,
    folder: &RunFolder,
    resume: bool,
) -> Result<Candidate, TrainError> {
    let settings = &inputs.settings;
    if resume && let Some(choice) = folder.read_toml::<Choice>(CHOICE)? {
        if choice.run == inputs.digest {
            return Ok(choice.chosen);
        }
        return Err(other_run(&folder.0.join(CHOICE)));
    }
    let candidates = candidates(inputs, sets)?;
    let count = candidates.len();
    let share = settings.trial_share / count.max(1) as f64;
    if count > 1 {
        eprintln!("choice: tries {count} candidates");
    }
    // The highest agreement, where what replaces a raw transform is better by a margin; of networks
    // for slots, which learn the same targets, the lowest loss: it is less of a matter of chance.
    let (mut chosen, mut least) = (Candidate::of(&inputs.run), f64::NEG_INFINITY);
    for candidate in candidates {
        // The only one needs no trial.
        if count == 1 {
            chosen = candidate;
            break;
        }
        let steps = (candidate.steps as f64 * share).round() as u64;
        let Some(made) = try_candidate(inputs, sets, &candidate, steps.max(1))? else { continue };
        let (score, margin) = match (settings.has_slots(), candidate.transform.is_raw()) {
            (true, _) => (-made.loss, 0.0),
            (false, true) => (made.agreement, MARGIN),
            (false, false) => (made.agreement, 0.0),
        };
        if score > least {
            least = score + margin;
            chosen = candidate;
        }
    }
    if count > 1 {
        eprintln!("{}: chosen on validation data", chosen.name());
    }
    let choice = Choice { run: inputs.digest.clone(), chosen };
    folder.write_toml(CHOICE, &choice)?;
    Ok(choice.chosen)
}

/// Returns the candidates for trials: the networks for slots; the transforms, for a learned code
/// each with the losses. Raw outputs are not among those of a learned code if others are: networks
/// want them scaled.
fn candidates(inputs: &Inputs, sets: &Sets) -> Result<Vec<Candidate>, TrainError> {
    let settings = &inputs.settings;
    if settings.has_slots() {
        let mut candidate = Candidate::of(&inputs.run);
        if let Some(only) = settings.transform.candidates(&sets.0).into_iter().next() {
            candidate.transform = only;
        }
        let networks = match settings.network {
            Some(_) => vec![inputs.run.network.clone()],
            None => inputs.students()?,
        };
        let mut candidates = Vec::new();
        for network in networks {
            candidate.network = network;
            candidate.steps = affordable_steps(inputs, sets, &candidate)?;
            candidates.push(candidate.clone());
        }
        return Ok(candidates);
    }
    let mut transforms = settings.transform.candidates(&sets.0);
    let losses = match settings.is_learned() {
        true if settings.loss.is_none() => LOSSES.to_vec(),
        _ => vec![inputs.run.loss],
    };
    if settings.is_learned() && transforms.iter().any(|transform| !transform.is_raw()) {
        transforms.retain(|transform| !transform.is_raw());
    }
    let mut all = Vec::new();
    for transform in transforms {
        for &loss in &losses {
            all.push(Candidate {
                network: inputs.run.network.clone(),
                loss,
                transform: transform.clone(),
                steps: inputs.run.rule.steps,
            });
        }
    }
    Ok(all)
}

/// The steps of a candidate's run: those of the settings, or as many as there is time for, as the
/// first few are seen to take.
fn affordable_steps(
    inputs: &Inputs,
    sets: &Sets,
    candidate: &Candidate,
) -> Result<u64, TrainError> {
    let settings = &inputs.settings;
    if let Some(steps) = settings.steps {
        return Ok(steps.into());
    }
    // Of so few that the deployed model is asked about as large a share as in the run.
    let few = sets.0.head(settings.code().k.max(2 * settings.common.batch as usize));
    let mut trainer = trial(inputs, &(Arc::new(few), Arc::clone(&sets.1)), candidate, u64::MAX)?;
    trainer.step()?;
    let begun = Instant::now();
    for _ in 0..TIMED_STEPS {
        trainer.step()?;
    }
    let second = f64::from(TIMED_STEPS) / begun.elapsed().as_secs_f64();
    let seconds = 60.0 * settings.minutes() * (1.0 - VALIDATION_TIME);
    Ok(((seconds * second) as u64).clamp(1, MOST_STEPS))
}

/// A training with a candidate for some steps.
fn trial(
    inputs: &Inputs,
    sets: &Sets,
    candidate: &Candidate,
    steps: u64,
) -> Result<Trainer, TrainError> {
    let mut run = inputs.run.clone();
    candidate.apply(&mut run, &inputs.settings);
    run.rule.steps = steps;
    // Only the end of a cooled-down run is compared.
    run.validate_every = u64::MAX;
    let (train, validation) = sets.clone();
    Trainer::parity(run, train, validation, Place::InProcess)
}

/// Trains with a candidate for some steps, and returns the last validation; none if it diverged.
fn try_candidate(
    inputs: &Inputs,
    sets: &Sets,
    candidate: &Candidate,
    steps: u64,
) -> Result<Option<Validation>, TrainError> {
    let (name, mut made) = (candidate.name(), None);
    let mut progress = Progress::new(&format!("trial of {name}"), "steps");
    let mut trainer = trial(inputs, sets, candidate, steps)?;
    while !trainer.is_done() {
        match trainer.step() {
            Ok(step) => made = step.validation.or(made),
            Err(TrainError::Diverged { .. }) => break,
            Err(error) => return Err(error),
        }
        progress.at(trainer.steps_done() as usize, steps as usize);
    }
    progress.finish();
    match &made {
        Some(Validation { agreement, loss }) => {
            let percent = 100.0 * agreement;
            eprintln!("{name}: {percent:.1} % agreement, loss {loss:.4} after {steps} steps");
        }
        None => eprintln!("{name}: diverged"),
    }
    Ok(made)
}

/// The transform's name in flags and files.
pub(crate) fn transform_name(transform: &OutputTransform) -> String {
    let table = toml::Table::try_from(transform).unwrap_or_default();
    table.get("kind").and_then(toml::Value::as_str).unwrap_or("raw").to_owned()
}
