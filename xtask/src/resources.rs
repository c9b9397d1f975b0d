//! Use of the machine by a process: core, processor time, memory.

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
pub(crate) fn stay_on(core: usize) -> Result<()> {
    let mut cores = CpuSet::new();
    cores.set(core).with_context(|| format!("core {core}"))?;
    sched_setaffinity(Pid::from_raw(0), &cores)
        .with_context(|| format!("this machine has no core {core}"))
}

/// Processor time that a process has taken so far, in seconds, to a hundredth.
pub(crate) fn processor_seconds(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    // The name in brackets may hold anything.
    let (_, fields) = stat
        .rsplit_once(')')
        .with_context(|| format!("{path} has no name"))?;
    let mut ticks = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(str::parse::<u32>);
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

pub(crate) fn memory(pid: u32) -> Result<Memory> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let bytes = |name: &str| -> Result<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        Ok(kib.with_context(|| format!("no {name} in {path}"))? << 10)
    };
    Ok(Memory {
        now: bytes("VmRSS:")?,
        highest: bytes("VmHWM:")?,
    })
}

/// In units of 2^20 bytes, to print.
pub(crate) fn mb(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Time of all processors of this machine since it was started, in hundredths of a second.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ProcessorTime {
    all: u64,
    idle: u64,
    /// Something was to be done, and the hypervisor let another machine run.
    stolen: u64,
}

impl ProcessorTime {
    /// Nothing where it is not told.
    pub(crate) fn so_far() -> Self {
        fs::read_to_string("/proc/stat")
            .map(|stat| Self::read(&stat))
            .unwrap_or_default()
    }

    /// proc(5): user, nice, system, idle, iowait, irq, softirq, steal; guests are within user.
    fn read(stat: &str) -> Self {
        let first = stat.lines().next().unwrap_or_default();
        let times: Vec<u64> = first
            .split_whitespace()
            .skip(1)
            .take(8)
            .map_while(|time| time.parse().ok())
            .collect();
        let at = |place: usize| times.get(place).copied().unwrap_or_default();
        Self {
            all: times.iter().sum(),
            idle: at(3) + at(4),
            stolen: at(7),
        }
    }

    /// In words: how busy the machine was, and how much of its time went to others.
    pub(crate) fn since(&self, before: &Self) -> String {
        let all = self.all.saturating_sub(before.all).max(1) as f64;
        let percent = |now: u64, before: u64| 100.0 * now.saturating_sub(before) as f64 / all;
        let idle = percent(self.idle, before.idle);
        let stolen = percent(self.stolen, before.stolen);
        format!(
            "the processors were idle {idle:.0} % of the time, and taken away by the hypervisor \
                {stolen:.1} %"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::ProcessorTime;

    #[test]
    fn time_is_told_in_percent() {
        let before = ProcessorTime::read("cpu  10 0 10 70 10 0 0 0 0 0\ncpu0 1 1 1 1\n");
        let after = ProcessorTime::read("cpu  60 0 20 100 10 0 0 10 50 0\n");
        let expected =
            "the processors were idle 30 % of the time, and taken away by the hypervisor 10.0 %";
        assert_eq!(after.since(&before), expected);
        assert_eq!(
            ProcessorTime::read("").since(&before),
            ProcessorTime::default().since(&before)
        );
    }
}
