//! Medians and the tables.

use std::fmt;
use std::fmt::Write as _;

use super::memory::Memory;
use super::processes::Seconds;
use super::{Load, Shape};
use crate::bench::spread::Spread;

/// The runs of one system.
#[derive(Debug, Default)]
pub(super) struct Cell(Vec<Seconds>);

/// Phase of a run that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Push,
    Pull,
    Both,
}

impl Phase {
    const ALL: [Self; 3] = [Self::Push, Self::Pull, Self::Both];

    const fn name(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::Pull => "pull",
            Self::Both => "push and pull",
        }
    }

    const fn of(self, seconds: Seconds) -> f64 {
        match self {
            Self::Push => seconds.push,
            Self::Pull => seconds.pull,
            Self::Both => seconds.both,
        }
    }
}

impl Cell {
    pub(super) fn add(&mut self, seconds: Seconds) {
        self.0.push(seconds);
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = if self.median < 100.0 { 1 } else { 0 };
        let Self {
            lowest,
            median,
            highest,
        } = self;
        write!(
            f,
            "{median:.digits$} ({lowest:.digits$}-{highest:.digits$})"
        )
    }
}

/// One size at one shape, all systems.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) shape: Shape,
    pub(super) load: Load,
    pub(super) cells: Vec<Cell>,
}

impl Row {
    fn is_small(&self) -> bool {
        self.load.bytes <= 4096
    }

    /// Gbit/s of values, or thousands of operations/s for small ones, of all workers together;
    /// pushes and pulls both count where both are done.
    fn rate(&self, cell: &Cell, phase: Phase) -> Spread {
        let operations = (self.load.keys * self.load.rounds * self.shape.workers) as f64;
        let ways = if phase == Phase::Both { 2.0 } else { 1.0 };
        let unit = if self.is_small() {
            1e-3
        } else {
            self.load.bytes as f64 * 8.0 / 1e9
        };
        Spread::new(
            cell.0
                .iter()
                .map(|&run| ways * operations * unit / phase.of(run))
                .collect(),
        )
    }

    /// One of ours over theirs, by medians.
    fn ratio(&self, ours: &Cell, phase: Phase) -> String {
        let Some(theirs) = self.cells.get(2) else {
            return "-".into();
        };
        format!(
            "{:.2}",
            self.rate(ours, phase).median / self.rate(theirs, phase).median
        )
    }

    fn size(&self) -> String {
        match self.load.bytes {
            bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
            bytes if bytes >= 1 << 10 => format!("{} KiB", bytes >> 10),
            bytes => format!("{bytes} B"),
        }
    }

    const fn unit(&self) -> &'static str {
        if self.load.bytes <= 4096 {
            "thousand op/s"
        } else {
            "Gbit/s"
        }
    }

    /// One line of the table for each phase.
    fn lines(&self) -> impl Iterator<Item = String> + '_ {
        let Shape { workers, servers } = self.shape;
        Phase::ALL.into_iter().map(move |phase| {
            let rates = self
                .cells
                .iter()
                .map(|cell| self.rate(cell, phase).to_string());
            let ratios = self
                .cells
                .iter()
                .take(2)
                .map(|cell| self.ratio(cell, phase));
            let cells = rates
                .chain((self.cells.len() < 3).then(|| "not run".into()))
                .chain(ratios);
            let cells = cells.collect::<Vec<_>>().join(" | ");
            let (size, unit, phase) = (self.size(), self.unit(), phase.name());
            format!("| {workers} + {servers} | {size} | {phase} | {unit} | {cells} |")
        })
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// The results as Markdown.
pub(super) fn render(rows: &[Row], memory: &[Memory], runs: usize) -> String {
    let mut text =
        format!("{HEAD}Medians of {runs} runs (lowest-highest); runs of the three take turns.\n\n");
    text.push_str(COLUMNS);
    rows.iter().for_each(|row| {
        let _ = write!(text, "{row}");
    });
    text.push_str(GOAL);
    if !memory.is_empty() {
        text.push_str(MEMORY);
        memory.iter().for_each(|line| {
            let _ = writeln!(text, "{line}");
        });
    }
    text
}

const HEAD: &str = "\
## Push and pull over loopback

Written by `cargo xtask bench parameter-server --mxnet-python PYTHON` (a Python with mxnet==1.9.1 and numpy==1.23.5; without it,
our side alone). Workers and servers are processes of their own on one machine. One key a message; all keys are under way at a
time, and a key's next round begins when its last has ended. Every round is a clock under BSP: the servers add up what the workers
push, which is checked at the end. mxnet's kvstore is `dist_sync` (ps-lite inside),
    with the same keys, values and rounds. On one
machine our nodes connect through Unix sockets,
    between machines with TCP: both are here; mxnet has TCP. Gbit/s
count values only, of all workers together,
    by the slowest worker's time; starting processes and the first rounds are outside of
it. ";

const COLUMNS: &str = "\
| workers + servers | value | | unit | Parapet | Parapet over TCP | mxnet | ratio | ratio over TCP |
|---|---|---|---|---|---|---|---|---|
";

const GOAL: &str = "\
\nParapet sums up a 64-bit checksum of every message at both ends and refuses numbers that are \
not finite; mxnet does neither. The
goal is a ratio of 1.5 from 64 KiB on, and 150 thousand op/s at 64 B.
";

const MEMORY: &str = "
### Memory

The highest resident memory (`VmHWM`) of a server process with one dense shard: alone,
    after every row has been pushed to twice;
then of the two servers, one of which has copied the shard to the other while pushes went on. The goal is 1.2 times parameters
and optimiser state, beside buffers,
    which have bounds (received messages 64 MiB, the log 64 MiB, vectors to be used again 32 MiB
for each connection, messages to be sent 16 MiB for each): they count here, too.

| parameters | rule | server | parameters and state | highest | ratio |
|---|---|---|---|---|---|
";
