//! Trainings of several seeds side by side, of which the best is gone on with.

use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parity_trainer::run::RunFolder;
use parity_trainer::{TrainError, device};

use super::prepare::Inputs;
use super::settings::Settings;
use crate::command::interrupt::Interrupt;
use crate::command::settings::to_toml;
use crate::command::training_loop::RESUME;

/// Time between two looks at the trainings.
const LOOK: Duration = Duration::from_millis(100);

/// Trains each seed in a process and a run of its own in `folder`, and returns the settings of the
/// one that was best on validation data. Its run has ended, so that it is resumed at its end.
pub(super) fn best(
    inputs: &Inputs,
    (name, folder): (&str, &RunFolder),
    resume: bool,
    threads: usize,
    interrupt: &Interrupt,
) -> Result<Settings, TrainError> {
    // All find the deployed model's outputs in the cache.
    inputs.answered()?;
    let settings = inputs.settings.absolute();
    let (first, count) = (settings.common.seed, settings.seeds());
    let threads = (threads / count as usize).max(1).to_string();
    interrupt.wait_for_step();
    let (mut trainings, mut children, mut outcome) = (Vec::new(), Vec::new(), Ok(()));
    for seed in first..first.saturating_add(count.into()) {
        let run = folder.0.join(format!("seed-{seed}"));
        let mut own = settings.clone();
        (own.seeds, own.common.seed, own.common.run) = (None, seed, Some(run.clone()));
        let mut apart = own.clone();
        apart.student = None;
        apart.common.out = run.join("models");
        apart.common.name = Some(format!("{name}-seed{seed}"));
        apart.common.json = None;
        let config = format!("seed-{seed}.toml");
        let written = to_toml(&apart).and_then(|settings| folder.write(&config, &settings));
        let place = folder.0.join(config);
        match written.and_then(|()| start(&place, &threads, resume).map_err(failed)) {
            Ok(child) => children.push((child, false)),
            Err(error) => outcome = Err(error),
        }
        trainings.push((own, RunFolder(run)));
    }
    wait(children, outcome, interrupt)?;
    let mut best: Option<(f64, Settings)> = None;
    for (own, run) in trainings {
        let score = score(&own, &run)?;
        eprintln!("{name}: seed {}: {score:.4} on validation data", own.common.seed);
        if best.as_ref().is_none_or(|(most, _)| score > *most) {
            best = Some((score, own));
        }
    }
    let (_, best) = best.ok_or_else(|| failed("no training"))?;
    eprintln!("{name}: seed {} is the best", best.common.seed);
    Ok(best)
}

fn failed(error: impl std::fmt::Display) -> TrainError {
    TrainError::Failed(format!("cannot train seeds side by side: {error}"))
}

/// Starts a training of the settings in `config`. Signals from the terminal do not reach it, and
/// what it tells is told.
fn start(config: &Path, threads: &str, resume: bool) -> io::Result<Child> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--threads", threads, "--device", &device::name(), "train", "--config"])
        .arg(config)
        .args(resume.then_some("--resume-if-begun"))
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(told) = child.stderr.take() {
        thread::spawn(move || {
            BufReader::new(told).lines().map_while(Result::ok).for_each(|line| eprintln!("{line}"));
        });
    }
    Ok(child)
}

/// Waits until all have ended; if one fails or the user asks for it, with a checkpoint. Each with
/// true if it was told to end.
fn wait(
    mut children: Vec<(Child, bool)>,
    mut outcome: Result<(), TrainError>,
    interrupt: &Interrupt,
) -> Result<(), TrainError> {
    loop {
        let mut is_any_running = false;
        for (child, is_told) in &mut children {
            match child.try_wait().map_err(failed)? {
                Some(status) if status.success() => {}
                Some(status) => outcome = outcome.and(Err(failed(format!("one: {status}")))),
                None => {
                    is_any_running = true;
                    if outcome.is_err() && !std::mem::replace(is_told, true) {
                        let told = kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM);
                        told.map_err(failed)?;
                    }
                }
            }
        }
        if interrupt.is_asked() {
            outcome = Err(TrainError::Interrupted(RESUME));
        }
        if !is_any_running {
            return outcome;
        }
        thread::sleep(LOOK);
    }
}

/// A run's figure on validation data, by which its weights were chosen, over all its rows.
fn score(settings: &Settings, run: &RunFolder) -> Result<f64, TrainError> {
    let mut sum = 0.0;
    for row in settings.row_folders(run) {
        let figures = row.records()?.into_iter().filter_map(|record| match settings.has_slots() {
            true => record.validation_loss.map(|loss| -loss),
            false => record.validation_agreement,
        });
        sum += figures.fold(f64::NEG_INFINITY, f64::max);
    }
    Ok(sum)
}
