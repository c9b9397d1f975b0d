//! The core that a process keeps to, and the processor time that it takes.

use crate::prelude::*;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use std::fs;

/// Keeps this thread, and what it starts from now on, on `core`.
pub(super) fn stay_on(core: usize) -> Result<()> {
    let mut cores = CpuSet::new();
    cores.set(core).with_context(|| format!("core {core}"))?;
    sched_setaffinity(Pid::from_raw(0), &cores)
        .with_context(|| format!("this machine has no core {core}"))
}

/// Processor time that a process has taken so far, in seconds, to a hundredth.
pub(super) fn processor_seconds(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    // The name in brackets may hold anything.
    let fields = stat.rsplit_once(')');
    let (_, fields) = fields.with_context(|| format!("{path} has no name"))?;
    let mut ticks = 0;
    for field in fields.split_whitespace().skip(11).take(2) {
        ticks += field.parse::<u32>().with_context(|| path.clone())?;
    }
    // Linux tells it in hundredths of a second on every architecture.
    Ok(f64::from(ticks) / 100.0)
}
