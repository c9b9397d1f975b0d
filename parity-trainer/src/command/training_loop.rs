//! Drives a training, whatever is learned: run folder, log, checkpoints, signals.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use parapet_decoder::Calibration;
use parity_trainer::run::{Checkpoint, CurveLabels, LogRecord, RunFolder, lock};
use parity_trainer::{StepReport, TrainError, Trained, Trainer};

use super::interrupt::Interrupt;
use super::settings::Common;
use crate::progress::Progress;

const RUNS: &str = ".runs";
pub(super) const RESUME: &str = "the same command with --resume goes on from the checkpoint";
/// Records of the log, about.
const RECORDS: usize = 500;
/// Weight of the newest step in the smoothed figures.
const NEWEST: f64 = 0.05;

/// The folder of a run: the one that was named, or that of `name` in the repository.
pub(super) fn run_folder(settings: &Common, name: &str) -> RunFolder {
    RunFolder(settings.run.clone().unwrap_or_else(|| settings.out.join(RUNS).join(name)))
}

/// Keeps other trainings away from the run's folder and from the entry `name` of `out`.
pub(super) fn lock_training(
    folder: &RunFolder,
    out: &Path,
    name: &str,
) -> Result<[File; 2], TrainError> {
    let entry = lock(&out.join(RUNS).join(format!("{name}.lock")), &out.join(name), "name")?;
    Ok([entry, folder.lock()?])
}

#[derive(Debug)]
pub(super) struct TrainingLoop<'a> {
    pub(super) name: &'a str,
    pub(super) folder: &'a RunFolder,
    pub(super) digest: &'a str,
    pub(super) config: &'a str,
    pub(super) environment: toml::Table,
    pub(super) resume: bool,
    pub(super) settings: &'a Common,
    pub(super) interrupt: &'a Interrupt,
    pub(super) labels: CurveLabels<'a>,
}

impl TrainingLoop<'_> {
    /// Trains to the end, from the last checkpoint if there is to be gone on.
    pub(super) fn run(
        &self,
        mut trainer: Trainer,
    ) -> Result<(Trained, Option<Calibration>), TrainError> {
        let (name, folder) = (self.name, self.folder);
        self.interrupt.wait_for_step();
        self.begin(&mut trainer)?;
        folder.write_config(self.config)?;
        folder.write("environment.toml", &self.environment.to_string())?;

        let mut progress = Progress::of_steps(name);
        let (begun, before) = (Instant::now(), trainer.steps_done() as usize);
        let (mut last, mut saved_at, mut saved_best) = (None, Instant::now(), None);
        while !trainer.is_done() {
            let report = trainer.step()?;
            let record = smoothed(last.as_ref(), &report, before, begun);
            let (agreement, rows) = (100.0 * record.agreement, record.rows_per_second);
            let (loss, rate) = (record.loss, self.labels.rate);
            progress.figures(format!("loss {loss:.4}  {rate} {agreement:.1} %  {rows:.0} rows/s"));
            progress.at(report.step, report.steps);
            last = Some(record);
            for news in trainer.news() {
                progress.tell(&format!("{name}: {news}"));
            }
            if is_logged(&report) {
                folder.log(&record)?;
            }
            let is_interrupted = self.interrupt.is_asked();
            if self.is_due(report.step, saved_at) || is_interrupted || trainer.is_done() {
                let path = folder
                    .save(&Checkpoint { run: self.digest.to_owned(), state: trainer.state()? })?;
                saved_at = Instant::now();
                let best = trainer.best().map(|best| best.step);
                if best != saved_best {
                    trainer.save_best(&folder.best_weights())?;
                    saved_best = best;
                }
                progress.say(&format!("{name}: checkpoint {}", path.display()));
            }
            if is_interrupted && !trainer.is_done() {
                progress.finish();
                return Err(TrainError::Interrupted(RESUME));
            }
        }
        progress.finish();
        if let Some(best) = trainer.best() {
            let (step, agreement) = (best.step, 100.0 * best.validation.agreement);
            eprintln!(
                "{name}: best weights after step {step}, {agreement:.1} % agreement on validation"
            );
        }
        folder.draw(&self.labels)?;
        trainer.save_best(&folder.best_weights())?;
        let finished = trainer.finish()?;
        self.interrupt.end_at_once(RESUME)?;
        Ok(finished)
    }

    fn begin(&self, trainer: &mut Trainer) -> Result<(), TrainError> {
        let (name, folder) = (self.name, self.folder);
        if !(self.resume && folder.is_begun()) {
            return folder.begin();
        }
        let found = folder.resume(self.digest)?;
        for (path, problem) in &found.skipped {
            eprintln!(
                "warning: {}: not a whole checkpoint: {problem}; going on from the one before",
                path.display()
            );
        }
        if let Some(checkpoint) = found.checkpoint {
            trainer.restore(checkpoint.state)?;
            eprintln!("{name}: goes on after step {}", trainer.steps_done());
        } else {
            eprintln!("{name}: the run had no checkpoint yet; begins at step 0");
        }
        Ok(())
    }

    fn is_due(&self, step: usize, saved_at: Instant) -> bool {
        match self.settings.checkpoint_steps {
            Some(every) => step.is_multiple_of(every.max(1) as usize),
            None => saved_at.elapsed() >= Duration::from_secs_f64(self.settings.checkpoint_every),
        }
    }
}

/// The record of a step, loss and agreement smoothed over those since the `last` one; an earlier
/// process did the first `before` steps.
fn smoothed(
    last: Option<&LogRecord>,
    report: &StepReport,
    before: usize,
    begun: Instant,
) -> LogRecord {
    let smooth = |last: Option<f64>, newest: f64| match last {
        Some(last) => last + NEWEST * (newest - last),
        None => newest,
    };
    let steps = report.step.saturating_sub(before).max(1);
    let rows = (report.rows / report.step.max(1) * steps) as f64;
    LogRecord {
        step: report.step as u64,
        epoch: report.epoch,
        loss: smooth(last.map(|last| last.loss), report.loss),
        learning_rate: report.learning_rate,
        gradient_norm: report.gradient_norm,
        agreement: smooth(last.map(|last| last.agreement), report.agreement),
        validation_agreement: report.validation.map(|validation| validation.agreement),
        validation_loss: report.validation.map(|validation| validation.loss),
        rows_per_second: rows / begun.elapsed().as_secs_f64().max(1e-9),
    }
}

fn is_logged(report: &StepReport) -> bool {
    let every = report.steps.div_ceil(RECORDS).max(1);
    let is_end = report.step == 1 || report.step == report.steps;
    is_end || report.step.is_multiple_of(every) || report.validation.is_some()
}

/// Versions, seed and digests for `environment.toml`, and `more`.
pub(super) fn environment(
    seed: u64,
    data_sha256: &str,
    run_sha256: &str,
    more: &[(&str, String)],
) -> toml::Table {
    let libtorch = option_env!("PARITY_TRAINER_LIBTORCH").unwrap_or("unknown");
    let own = [
        ("parity-trainer", env!("CARGO_PKG_VERSION").to_owned()),
        ("libtorch", libtorch.to_owned()),
        ("threads", tch::get_num_threads().to_string()),
        ("seed", seed.to_string()),
        ("data-sha256", data_sha256.to_owned()),
        ("run-sha256", run_sha256.to_owned()),
    ];
    own.iter().chain(more).map(|(key, value)| ((*key).to_owned(), value.as_str().into())).collect()
}
