//! Use of the machine by processes: cores, processor time, memory.

use crate::prelude::*;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use std::fs;

/// Keeps this thread, and what it starts from now on, on `core`.
pub(crate) fn stay_on(core: usize) -> Result<()> {
    let mut cores = CpuSet::new();
    cores.set(core).with_context(|| format!("core {core}"))?;
    sched_setaffinity(Pid::from_raw(0), &cores)
        .with_context(|| format!("this machine has no core {core}"))
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {path}"))
}

/// Processor time that a process has taken so far, in seconds, to a hundredth.
pub(crate) fn processor_seconds(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let stat = read(&path)?;
    // The name in brackets may hold anything.
    let (_, fields) = stat
        .rsplit_once(')')
        .with_context(|| format!("{path} has no name"))?;
    let mut ticks = 0;
    for field in fields.split_whitespace().skip(11).take(2) {
        ticks += field.parse::<u32>().with_context(|| path.clone())?;
    }
    // Linux tells it in hundredths of a second on every architecture.
    Ok(f64::from(ticks) / 100.0)
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) now: f64,
    pub(crate) highest: f64,
}

pub(crate) fn memory(pid: u32) -> Result<Memory> {
    let path = format!("/proc/{pid}/status");
    let status = read(&path)?;
    let mib = |name: &str| -> Result<f64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        Ok(kib.with_context(|| format!("no {name} in {path}"))? / 1024.0)
    };
    Ok(Memory {
        now: mib("VmRSS:")?,
        highest: mib("VmHWM:")?,
    })
}
