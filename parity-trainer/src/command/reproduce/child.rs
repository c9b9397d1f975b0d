//! This program, run again with another command line.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use nix::sys::prctl;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeValLike;
use nix::unistd::{Pid, getppid};
use parity_trainer::{TrainError, device};

use super::Stop;
use super::recipe::{CommandLine, Roots};
use super::record::Cost;
use crate::command::interrupt::{EXIT_CODE, Interrupt};

/// Interval at which it is checked whether a child has ended or the user wants an end.
const PATIENCE: Duration = Duration::from_millis(50);
const INTERRUPTED: i32 = EXIT_CODE as i32;
/// Names the process that a child ends with, in the child's environment.
const PARENT: &str = "PARAPET_REPRODUCE_PROCESS";

/// In a child of [`run`]: gets SIGTERM when that process is gone, be it by `kill -9`, and so ends
/// with a checkpoint.
pub(crate) fn end_with_parent() {
    let parent = std::env::var(PARENT).ok();
    let Some(parent) = parent.and_then(|parent| parent.parse().ok()) else {
        return;
    };
    // The parent may have gone before the request: then the signal would never be sent.
    if prctl::set_pdeathsig(Signal::SIGTERM).is_err() || getppid() != Pid::from_raw(parent) {
        let _ = kill(Pid::this(), Signal::SIGTERM);
    }
}

/// Runs `line` to its end; returns how it ended and what it cost.
pub(super) fn run(
    line: &CommandLine,
    roots: &Roots,
    threads: usize,
    interrupt: &Interrupt,
) -> Result<(Result<(), Stop>, Cost), TrainError> {
    eprintln!("$ {line}");
    let failed =
        |error| TrainError::Failed(format!("cannot run a command of this program: {error}"));
    let (begun, before) = (Instant::now(), processor_seconds());
    let child = Command::new(std::env::current_exe().map_err(failed)?)
        .args(["--threads", &threads.to_string()])
        .args(["--device", &device::name()])
        .args(line.arguments(roots))
        .env(PARENT, std::process::id().to_string())
        // A child is told of Ctrl-C once, so that it writes its checkpoint: it is not in the
        // terminal's group, which hears of every one.
        .process_group(0)
        .spawn();
    let mut child = Running(child.map_err(failed)?);
    let mut is_told = false;
    let status = loop {
        if let Some(status) = child.0.try_wait().map_err(failed)? {
            break status;
        }
        if interrupt.is_asked() && !is_told {
            is_told = true;
            let process = i32::try_from(child.0.id()).unwrap_or_default();
            // It may have ended just now.
            let _ = kill(Pid::from_raw(process), Signal::SIGTERM);
        }
        std::thread::sleep(PATIENCE);
    };
    let ended = match (status.code(), status.signal()) {
        (Some(0), _) => Ok(()),
        (Some(INTERRUPTED), _) => Err(Stop::NotRun("interrupted".to_owned())),
        _ if interrupt.is_asked() => Err(Stop::NotRun("interrupted".to_owned())),
        (Some(code), _) => Err(Stop::Failed(format!(
            "`{line}` ended with exit code {code}"
        ))),
        (None, signal) => {
            let signal = signal.unwrap_or_default();
            Err(Stop::Failed(format!(
                "`{line}` was ended by signal {signal}"
            )))
        }
    };
    let cost = Cost {
        seconds: begun.elapsed().as_secs_f64(),
        processor_seconds: (processor_seconds() - before).max(0.0),
        at_least: false,
    };
    Ok((ended, cost))
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
