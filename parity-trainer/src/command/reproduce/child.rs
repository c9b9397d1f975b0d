//! This program, run again with another command line.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use nix::sys::prctl;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeValLike;
use nix::unistd::{Pid, getppid};
use parity_trainer::{SetupError, TrainError, device};

use super::command_line::{CommandLine, Roots};
use super::record::Cost;
use crate::command::interrupt::{EXIT_CODE, Interrupt};

/// Interval at which it is checked whether a child has ended or the user wants an end.
const PATIENCE: Duration = Duration::from_millis(50);
/// The exit code of a command that was interrupted and can go on.
const INTERRUPTED: i32 = EXIT_CODE as i32;

/// Names the process that a child ends with, in the child's environment.
const PARENT: &str = "PARAPET_REPRODUCE_PROCESS";

/// In a child of [`Children`]: gets SIGTERM when that process is gone, be it by `kill -9`, and so
/// ends with a checkpoint.
pub(crate) fn end_with_parent() {
    let Some(parent) = std::env::var(PARENT)
        .ok()
        .and_then(|parent| parent.parse().ok())
    else {
        return;
    };
    // The parent may have gone before the request: then the signal would never be sent.
    if prctl::set_pdeathsig(Signal::SIGTERM).is_err() || getppid() != Pid::from_raw(parent) {
        let _ = kill(Pid::this(), Signal::SIGTERM);
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Well,
    Interrupted,
    Badly(String),
}

/// Starts children, one at a time.
#[derive(Debug)]
pub(super) struct Children<'a> {
    program: PathBuf,
    roots: &'a Roots,
    threads: usize,
    interrupt: &'a Interrupt,
}

impl<'a> Children<'a> {
    pub(super) fn new(
        roots: &'a Roots,
        threads: usize,
        interrupt: &'a Interrupt,
    ) -> Result<Self, TrainError> {
        let program = std::env::current_exe().map_err(|source| SetupError::Child { source })?;
        Ok(Self {
            program,
            roots,
            threads,
            interrupt,
        })
    }

    /// Runs `line` to its end; tells how that was and what it cost. A child is told of Ctrl-C
    /// once, so that it writes its checkpoint: it is not in the terminal's group, which hears
    /// of every one.
    pub(super) fn run(&self, line: &CommandLine) -> Result<(Ended, Cost), TrainError> {
        eprintln!("$ {line}");
        let (begun, before) = (Instant::now(), processor_seconds());
        let child = Command::new(&self.program)
            .arg("--threads")
            .arg(self.threads.to_string())
            .arg("--device")
            .arg(device::chosen().to_string())
            .args(line.arguments(self.roots))
            .env(PARENT, std::process::id().to_string())
            .process_group(0)
            .spawn()
            .map_err(|source| SetupError::Child { source })?;
        let mut child = Running(child);
        let mut told = false;
        let status = loop {
            if let Some(status) = child
                .0
                .try_wait()
                .map_err(|source| SetupError::Child { source })?
            {
                break status;
            }
            if self.interrupt.is_asked() && !told {
                told = true;
                // It may have ended just now.
                let _ = kill(
                    Pid::from_raw(i32::try_from(child.0.id()).unwrap_or_default()),
                    Signal::SIGTERM,
                );
            }
            std::thread::sleep(PATIENCE);
        };
        let ended = match (status.code(), status.signal()) {
            (Some(0), _) => Ended::Well,
            (Some(INTERRUPTED), _) => Ended::Interrupted,
            _ if self.interrupt.is_asked() => Ended::Interrupted,
            (Some(code), _) => Ended::Badly(format!("`{line}` ended with exit code {code}")),
            (None, signal) => Ended::Badly(format!(
                "`{line}` was ended by signal {}",
                signal.unwrap_or_default()
            )),
        };
        let cost = Cost {
            seconds: begun.elapsed().as_secs_f64(),
            processor_seconds: (processor_seconds() - before).max(0.0),
            at_least: false,
        };
        Ok((ended, cost))
    }
}

/// Processor time of all children that have ended; other work on the machine, or a pause of it,
/// does not count.
fn processor_seconds() -> f64 {
    getrusage(UsageWho::RUSAGE_CHILDREN).map_or(0.0, |usage| {
        (usage.user_time() + usage.system_time()).num_microseconds() as f64 / 1e6
    })
}

/// A child that does not outlive an error here.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}
