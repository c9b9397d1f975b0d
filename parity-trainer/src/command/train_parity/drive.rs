//! Drives the training of one parity row: log, checkpoints, signals.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parapet_decoder::Calibration;
use parapet_encoder::OutputTransform;
use parity_trainer::run::{Checkpoint, LogRecord, RunError, RunFolder};
use parity_trainer::{
    Loss, ParityRun, ParityTrainer, SetupError, StepReport, TrainError, Trained, TransformTrial,
    candidate_transforms, try_transform,
};
use serde::{Deserialize, Serialize};

use super::learned;
use super::prepare::Prepared;
use super::settings::Settings;
use crate::progress::Progress;

/// Records of the log, about.
const RECORDS: u64 = 500;
/// By how much another transform has to be better than raw outputs in its trial.
const MARGIN: f64 = 0.005;

/// The choice of an output transform, in the run's folder.
pub(super) const CHOICE: &str = "transform.toml";

/// What was chosen on validation data.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Choice {
    /// Digest of the run.
    run: String,
    /// What a learned code's training lessens.
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

/// Ctrl-C and SIGTERM ask for an end after the current step; a second one ends at once.
#[derive(Debug, Clone)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    pub(crate) fn listen() -> Result<Self, TrainError> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            let register = || {
                signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&flag))?;
                signal_hook::flag::register(signal, Arc::clone(&flag))
            };
            register().map_err(|source| SetupError::Signal { source })?;
        }
        Ok(Self(flag))
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Chooses the output transform, and a learned code's loss, on validation data, by trials if there is a choice; a resumed run keeps its choice.
pub(super) fn choose(
    settings: &Settings,
    prepared: &Prepared,
    folder: &RunFolder,
    resume: bool,
    interrupt: &Interrupt,
) -> Result<Choice, TrainError> {
    let transforms = candidate_transforms(settings.transform, &prepared.train);
    let candidates = learned::candidates(settings, transforms);
    let run = prepared.digest.clone();
    if let [(transform, loss)] = candidates.as_slice() {
        return Ok(Choice { run, loss: *loss, transform: transform.clone(), trials: Vec::new() });
    }
    if resume && let Some(choice) = folder.read::<Choice>(CHOICE)? {
        if choice.run == prepared.digest {
            return Ok(choice);
        }
        return Err(RunError::OtherRun { path: folder.path().join(CHOICE) }.into());
    }
    let share = settings.trial_share / candidates.len().max(1) as f64;
    let steps = ((f64::from(settings.steps) * share).round() as u64).max(1);
    let mut trials: Vec<(TransformTrial, Option<Loss>)> = Vec::new();
    for (transform, loss) in candidates {
        let mut run = prepared.run.clone();
        run.rule.steps = steps;
        if let (Some(learned), Some(loss)) = (&mut run.learned, loss) {
            learned.loss = loss;
        }
        let name = candidate_name(&transform, loss);
        let mut progress = crate::progress::Counter::new(&format!("trial of {name}"), "steps");
        let trial = try_transform(
            &run,
            transform,
            steps,
            (&prepared.train, &prepared.validation),
            &mut ParityTrainer::local(run.rule),
            |step| progress.at(step as usize, steps as usize),
        )?;
        progress.finish();
        eprintln!(
            "transform {name}: {:.1} % agreement after {steps} steps",
            100.0 * trial.validation.agreement
        );
        trials.push((trial, loss));
        if interrupt.is_asked() {
            return Err(SetupError::Interrupted { hint: "run the same command again".to_owned() }.into());
        }
    }
    let mut chosen: Option<&(TransformTrial, Option<Loss>)> = None;
    for trial in &trials {
        let margin = if chosen.is_some_and(|(best, _)| best.transform.is_raw()) { MARGIN } else { 0.0 };
        let agreement = trial.0.validation.agreement;
        if chosen.is_none_or(|(best, _)| agreement > best.validation.agreement + margin) {
            chosen = Some(trial);
        }
    }
    let (transform, loss) = chosen.map(|(trial, loss)| (trial.transform.clone(), *loss)).unwrap_or_default();
    eprintln!("transform {}: chosen on validation data", candidate_name(&transform, loss));
    let trials = trials.iter().map(|(trial, loss)| Trial {
        transform: transform_name(&trial.transform),
        loss: *loss,
        steps: steps as i64,
        agreement: trial.validation.agreement,
    });
    let choice = Choice { run, loss, transform, trials: trials.collect() };
    folder.write_toml(CHOICE, &choice)?;
    Ok(choice)
}

fn candidate_name(transform: &OutputTransform, loss: Option<Loss>) -> String {
    let transform = transform_name(transform);
    loss.map_or_else(|| transform.clone(), |loss| format!("{transform}, loss {loss}"))
}

/// The transform's name in flags and files.
pub(super) fn transform_name(transform: &OutputTransform) -> String {
    let table = toml::Table::try_from(transform).unwrap_or_default();
    table.get("kind").and_then(toml::Value::as_str).unwrap_or("raw").to_owned()
}

/// Trains `run` in `folder`, from its last checkpoint if `resume`.
pub(super) fn train_row(
    settings: &Settings,
    prepared: &Prepared,
    run: ParityRun,
    name: &str,
    folder: &RunFolder,
    resume: bool,
    interrupt: &Interrupt,
) -> Result<(Trained, Option<Calibration>), TrainError> {
    let digest = settings.digest(&[&prepared.digest, &run.row.to_string()])?;
    let steps = run.rule.steps;
    let (train, validation) = (Arc::clone(&prepared.train), Arc::clone(&prepared.validation));
    let mut trainer =
        ParityTrainer::new(run.clone(), train, validation, &mut ParityTrainer::local(run.rule))?;
    if resume && folder.is_begun() {
        let found = folder.resume(&digest)?;
        for torn in &found.skipped {
            eprintln!("warning: {torn}; going on from the one before");
        }
        if let Some(checkpoint) = found.checkpoint {
            trainer.restore(&checkpoint.state)?;
            eprintln!("{name}: goes on after step {}", trainer.steps_done());
        } else {
            eprintln!("{name}: the run had no checkpoint yet; begins at step 0");
        }
    } else {
        folder.begin()?;
    }
    folder.write_config(&settings.to_toml()?)?;
    folder.write("environment.toml", &environment(settings, prepared, &digest))?;

    let mut progress = Progress::new(name, "agreement", trainer.steps_done());
    let mut log = Log::new(steps);
    let mut saved = Saved { at: Instant::now(), best_step: None };
    while !trainer.is_done() {
        let report = trainer.step()?;
        progress.step(report);
        if let Some(record) = log.step(&report) {
            folder.log(&record)?;
        }
        let interrupted = interrupt.is_asked();
        let due = match settings.checkpoint_steps {
            Some(every) => report.step.is_multiple_of(every.max(1) as usize),
            None => saved.at.elapsed() >= Duration::from_secs_f64(settings.checkpoint_every),
        };
        if due || interrupted || trainer.is_done() {
            let path = save(folder, &mut trainer, &digest, &mut saved)?;
            progress.say(&format!("{name}: checkpoint {}", path.display()));
        }
        if interrupted && !trainer.is_done() {
            progress.finish();
            let hint = "the same command with --resume goes on from the checkpoint".to_owned();
            return Err(SetupError::Interrupted { hint }.into());
        }
    }
    progress.finish();
    if let Some(best) = trainer.best() {
        let agreement = 100.0 * best.validation.agreement;
        eprintln!("{name}: best weights after step {}, {agreement:.1} % agreement on validation", best.step);
    }
    folder.draw(&format!("{name}: {} k = {}", run.code.encoder, run.code.k))?;
    trainer.save_best(&folder.best_weights())?;
    trainer.finish()
}

struct Saved {
    at: Instant,
    best_step: Option<u64>,
}

fn save(
    folder: &RunFolder,
    trainer: &mut ParityTrainer,
    digest: &str,
    saved: &mut Saved,
) -> Result<std::path::PathBuf, TrainError> {
    let path = folder.save(&Checkpoint { run: digest.to_owned(), state: trainer.state()? })?;
    saved.at = Instant::now();
    let best = trainer.best().map(|best| best.step);
    if best != saved.best_step {
        trainer.save_best(&folder.best_weights())?;
        saved.best_step = best;
    }
    Ok(path)
}

/// Gathers steps into records.
struct Log {
    every: u64,
    begun: Instant,
    rows: usize,
    steps: u32,
    loss: f64,
    agreement: f64,
}

impl Log {
    fn new(steps: u64) -> Self {
        Self {
            every: steps.div_ceil(RECORDS).max(1),
            begun: Instant::now(),
            rows: 0,
            steps: 0,
            loss: 0.0,
            agreement: 0.0,
        }
    }

    fn step(&mut self, report: &StepReport) -> Option<LogRecord> {
        if self.steps == 0 && self.rows == 0 {
            // Of a resumed run, the rows before are not this process's.
            self.rows = report.rows - report.rows / report.step.max(1);
        }
        self.steps += 1;
        self.loss += report.loss;
        self.agreement += report.agreement;
        let step = report.step as u64;
        let due = step.is_multiple_of(self.every) || report.step == 1 || report.step == report.steps;
        if !due && report.validation.is_none() {
            return None;
        }
        let (steps, seconds) = (f64::from(self.steps), self.begun.elapsed().as_secs_f64().max(1e-9));
        let record = LogRecord {
            step,
            epoch: report.epoch,
            loss: self.loss / steps,
            learning_rate: report.learning_rate,
            gradient_norm: report.gradient_norm,
            agreement: self.agreement / steps,
            validation_agreement: report.validation.map(|validation| validation.agreement),
            validation_loss: report.validation.map(|validation| validation.loss),
            rows_per_second: (report.rows - self.rows) as f64 / seconds,
        };
        (self.begun, self.rows) = (Instant::now(), report.rows);
        (self.steps, self.loss, self.agreement) = (0, 0.0, 0.0);
        Some(record)
    }
}

fn environment(settings: &Settings, prepared: &Prepared, digest: &str) -> String {
    let mut table = toml::Table::new();
    let mut note = |key: &str, value: &str| table.insert(key.to_owned(), value.into());
    note("parity-trainer", env!("CARGO_PKG_VERSION"));
    note("libtorch", option_env!("PARITY_TRAINER_LIBTORCH").unwrap_or("unknown"));
    note("deployed-runtime", &prepared.deployed.runtime);
    note("threads", &tch::get_num_threads().to_string());
    note("seed", &settings.seed.to_string());
    note("data-sha256", &prepared.data.sha256);
    note("deployed", &prepared.deployed.file.display().to_string());
    note("deployed-sha256", &prepared.deployed.sha256);
    note("network", &prepared.run.network.to_string());
    if let Some(learned) = &prepared.run.learned {
        note("decoder-network", &learned.decoder.to_string());
    }
    note("run-sha256", digest);
    table.to_string()
}
