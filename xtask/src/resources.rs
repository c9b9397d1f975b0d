//! What a process uses of the machine: which core, how much processor time, how much memory.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// A command that runs on `core` alone, if one is given.
pub(crate) fn pinned(program: impl AsRef<Path>, core: Option<usize>) -> Command {
    let program = program.as_ref();
    match core {
        None => Command::new(program),
        Some(core) => {
            let mut command = Command::new("taskset");
            command.args(["-c", &core.to_string()]).arg(program);
            command
        }
    }
}

/// Keeps this thread, and what it starts from now on, on `core`.
///
/// # Errors
/// Where there is no such core.
pub(crate) fn stay_on(core: usize) -> Result<()> {
    let mut cores = CpuSet::new();
    cores.set(core).with_context(|| format!("core {core}"))?;
    sched_setaffinity(Pid::from_raw(0), &cores).with_context(|| format!("this machine has no core {core}"))
}

/// Processor time that a process has taken so far, in seconds, to a hundredth.
///
/// # Errors
/// If it has ended.
pub(crate) fn processor_seconds(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    // The name in brackets may hold anything.
    let (_, fields) = stat.rsplit_once(')').with_context(|| format!("{path} has no name"))?;
    let mut ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u32>);
    let mut next = || -> Result<u32> { Ok(ticks.next().context("is cut short")??) };
    let (user, system) = (next()?, next()?);
    // Linux tells it in hundredths of a second on every architecture.
    Ok(f64::from(user + system) / 100.0)
}

/// Resident memory of a process in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) now: u64,
    /// The most so far.
    pub(crate) highest: u64,
}

/// # Errors
/// If the process has ended.
pub(crate) fn memory(pid: u32) -> Result<Memory> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let bytes = |name: &str| -> Result<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        Ok(kib.with_context(|| format!("no {name} in {path}"))? << 10)
    };
    Ok(Memory { now: bytes("VmRSS:")?, highest: bytes("VmHWM:")? })
}

/// In units of 2^20 bytes, to print.
pub(crate) fn mb(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
