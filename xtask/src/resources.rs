//! Use of the machine by processes: cores, processor time, memory.

use std::fs;

use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

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

/// Resident memory of a process in MiB.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) now: f64,
    /// The most so far.
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

/// Time of all processors of this machine since it was started, in hundredths of a second: all,
/// idle, and taken away by the hypervisor. Nothing where it is not told.
pub(crate) fn processor_times() -> [u64; 3] {
    times_of(&fs::read_to_string("/proc/stat").unwrap_or_default())
}

/// proc(5): user, nice, system, idle, iowait, irq, softirq, steal; guests are within user.
fn times_of(stat: &str) -> [u64; 3] {
    let first = stat.lines().next().unwrap_or_default();
    let times = first
        .split_whitespace()
        .skip(1)
        .take(8)
        .map_while(|time| time.parse().ok());
    let times: Vec<u64> = times.collect();
    let at = |place: usize| times.get(place).copied().unwrap_or_default();
    [times.iter().sum(), at(3) + at(4), at(7)]
}

/// In words: how busy the machine was between the two, and how much of its time went to others.
pub(crate) fn describe(before: [u64; 3], after: [u64; 3]) -> String {
    let [all, idle, stolen] =
        [0, 1, 2].map(|place| after[place].saturating_sub(before[place]) as f64);
    let percent = |time: f64| 100.0 * time / all.max(1.0);
    format!(
        "the processors were idle {:.0} % of the time, and taken away by the hypervisor {:.1} %",
        percent(idle),
        percent(stolen)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_told_in_percent() {
        let before = times_of("cpu  10 0 10 70 10 0 0 0 0 0\ncpu0 1 1 1 1\n");
        let after = times_of("cpu  60 0 20 100 10 0 0 10 50 0\n");
        for (before, after, idle, stolen) in [
            (before, after, 30, "10.0"),
            (times_of(""), times_of(""), 0, "0.0"),
        ] {
            let expected = format!(
                "the processors were idle {idle} % of the time, and taken away by the hypervisor \
                 {stolen} %"
            );
            assert_eq!(describe(before, after), expected);
        }
    }
}
