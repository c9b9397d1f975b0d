//! Drives a training, whatever is learned: run folder, log, checkpoints, signals.

mod log;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use parapet_decoder::Calibration;
use parity_trainer::run::{Checkpoint, CurveLabels, RunFolder};
use parity_trainer::{SetupError, TrainError, Trained, Trainer};

use super::interrupt::Interrupt;
use crate::progress::Progress;
use log::Log;

/// Advice on how to resume an interrupted training.
pub(crate) const RESUME: &str = "the same command with --resume goes on from the checkpoint";

/// When checkpoints are written.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Pace {
    Every(Duration),
    Steps(u32),
}

impl Pace {
    /// Each so many `seconds`, unless a number of `steps` is given.
    pub(crate) fn new(seconds: f64, steps: Option<u32>) -> Self {
        steps.map_or(Self::Every(Duration::from_secs_f64(seconds)), |steps| {
            Self::Steps(steps.max(1))
        })
    }
}

/// One training in its folder.
#[derive(Debug)]
pub(crate) struct TrainingLoop<'a> {
    /// Of the entry that is to be.
    pub(crate) name: &'a str,
    pub(crate) folder: &'a RunFolder,
    /// Digest of all that decides how the training goes.
    pub(crate) digest: &'a str,
    /// `config.toml`.
    pub(crate) config: &'a str,
    pub(crate) environment: &'a toml::Table,
    pub(crate) resume: bool,
    pub(crate) pace: Pace,
    pub(crate) interrupt: &'a Interrupt,
    pub(crate) labels: CurveLabels<'a>,
}

impl TrainingLoop<'_> {
    /// Trains to the end, from the last checkpoint if there is to be gone on.
    pub(crate) fn run(
        &self,
        mut trainer: Trainer,
    ) -> Result<(Trained, Option<Calibration>), TrainError> {
        let (name, folder) = (self.name, self.folder);
        self.interrupt.wait_for_step();
        self.begin(&mut trainer)?;
        folder.write_config(self.config)?;
        folder.write("environment.toml", &self.environment.to_string())?;

        let mut progress = Progress::new(name, self.labels.rate, trainer.steps_done());
        let mut log = Log::new(trainer.steps());
        let mut saved = Saved {
            at: Instant::now(),
            best_step: None,
        };
        while !trainer.is_done() {
            let report = trainer.step()?;
            progress.step(report);
            for news in trainer.news() {
                progress.tell(&format!("{name}: {news}"));
            }
            if let Some(record) = log.step(&report) {
                folder.log(&record)?;
            }
            let interrupted = self.interrupt.is_asked();
            let due = match self.pace {
                Pace::Steps(every) => report.step.is_multiple_of(every as usize),
                Pace::Every(interval) => saved.at.elapsed() >= interval,
            };
            if due || interrupted || trainer.is_done() {
                let path = self.save(&mut trainer, &mut saved)?;
                progress.say(&format!("{name}: checkpoint {}", path.display()));
            }
            if interrupted && !trainer.is_done() {
                progress.finish();
                return Err(SetupError::Interrupted {
                    hint: RESUME.to_owned(),
                }
                .into());
            }
        }
        progress.finish();
        if let Some(best) = trainer.best() {
            let agreement = 100.0 * best.validation.agreement;
            eprintln!(
                "{name}: best weights after step {}, {agreement:.1} % agreement on validation",
                best.step
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
            return Ok(folder.begin()?);
        }
        let found = folder.resume(self.digest)?;
        for torn in &found.skipped {
            eprintln!("warning: {torn}; going on from the one before");
        }
        if let Some(checkpoint) = found.checkpoint {
            trainer.restore(&checkpoint.state)?;
            eprintln!("{name}: goes on after step {}", trainer.steps_done());
        } else {
            eprintln!("{name}: the run had no checkpoint yet; begins at step 0");
        }
        Ok(())
    }

    fn save(&self, trainer: &mut Trainer, saved: &mut Saved) -> Result<PathBuf, TrainError> {
        let path = self.folder.save(&Checkpoint {
            run: self.digest.to_owned(),
            state: trainer.state()?,
        })?;
        saved.at = Instant::now();
        let best = trainer.best().map(|best| best.step);
        if best != saved.best_step {
            trainer.save_best(&self.folder.best_weights())?;
            saved.best_step = best;
        }
        Ok(path)
    }
}

struct Saved {
    at: Instant,
    best_step: Option<u64>,
}

pub(crate) fn environment(seed: u64, data_sha256: &str, run_sha256: &str) -> toml::Table {
    let mut table = toml::Table::new();
    let mut note = |key: &str, value: &str| table.insert(key.to_owned(), value.into());
    note("parity-trainer", env!("CARGO_PKG_VERSION"));
    note(
        "libtorch",
        option_env!("PARITY_TRAINER_LIBTORCH").unwrap_or("unknown"),
    );
    note("threads", &tch::get_num_threads().to_string());
    note("seed", &seed.to_string());
    note("data-sha256", data_sha256);
    note("run-sha256", run_sha256);
    table
}
