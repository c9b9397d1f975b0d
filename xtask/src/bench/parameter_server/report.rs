//! Medians and the table.

use std::fmt;
use std::fmt::Write as _;

use super::processes::Seconds;
use super::{Load, Shape};

/// The runs of one system.
#[derive(Debug, Default)]
pub(super) struct Cell {
    push: Vec<f64>,
    pull: Vec<f64>,
    both: Vec<f64>,
}

impl Cell {
    pub(super) fn add(&mut self, seconds: Seconds) {
        self.push.push(seconds.push);
        self.pull.push(seconds.pull);
        self.both.push(seconds.both);
    }

    fn medians(&self) -> [f64; 3] {
        [median(&self.push), median(&self.pull), median(&self.both)]
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match (sorted.len() % 2, sorted.get(middle), middle.checked_sub(1).and_then(|at| sorted.get(at))) {
        (0, Some(above), Some(below)) => (above + below) / 2.0,
        (_, Some(middle), _) => *middle,
        _ => f64::NAN,
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

    /// Gbit/s of values, or thousands of operations/s for small ones: of all workers, for push, pull, and both (which
    /// counts both ways).
    fn rates(&self, cell: &Cell) -> [f64; 3] {
        let operations = (self.load.keys * self.load.rounds * self.shape.workers) as f64;
        let unit = if self.is_small() { 1e-3 } else { self.load.bytes as f64 * 8.0 / 1e9 };
        let [push, pull, both] = cell.medians();
        [operations * unit / push, operations * unit / pull, 2.0 * operations * unit / both]
    }

    /// Ours over theirs.
    fn ratios(&self) -> Option<[f64; 3]> {
        let [ours, theirs] = &self.cells[..] else { return None };
        let (ours, theirs) = (self.rates(ours), self.rates(theirs));
        Some(std::array::from_fn(|at| {
            ours.get(at).unwrap_or(&f64::NAN) / theirs.get(at).unwrap_or(&f64::NAN)
        }))
    }

    fn size(&self) -> String {
        match self.load.bytes {
            bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
            bytes if bytes >= 1 << 10 => format!("{} KiB", bytes >> 10),
            bytes => format!("{bytes} B"),
        }
    }

    fn unit(&self) -> &'static str {
        if self.is_small() { "thousand op/s" } else { "Gbit/s" }
    }
}

fn three(rates: [f64; 3], digits: usize) -> String {
    rates.map(|rate| format!("{rate:.digits$}")).join(" / ")
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shape { workers, servers } = self.shape;
        write!(f, "{workers} + {servers}, {:>7}, {}: push / pull / both", self.size(), self.unit())?;
        for cell in &self.cells {
            write!(f, "  {}", three(self.rates(cell), 1))?;
        }
        self.ratios().map_or(Ok(()), |ratios| write!(f, "  ratio {}", three(ratios, 2)))
    }
}

/// The results as Markdown.
pub(super) fn render(rows: &[Row], runs: usize) -> String {
    let mut text = String::from(HEAD);
    for row in rows {
        let Shape { workers, servers } = row.shape;
        let theirs = row.cells.get(1).map_or("not run".into(), |cell| three(row.rates(cell), 1));
        let ratios = row.ratios().map_or("-".into(), |ratios| three(ratios, 2));
        let ours = row.cells.first().map_or(String::new(), |cell| three(row.rates(cell), 1));
        let _ = writeln!(
            text,
            "| {workers} + {servers} | {} | {} | {ours} | {theirs} | {ratios} |",
            row.size(),
            row.unit()
        );
    }
    let _ = write!(text, "\nMedians of {runs} runs, in turns.\n{TAIL}");
    text
}

const HEAD: &str = "\
# Push and pull over loopback

`cargo xtask bench-parameter-server --mxnet-python PYTHON` writes this file. Workers and servers are processes of their own on
one machine; one key a message, all keys under way; the servers add up. Gbit/s count values only, of all workers together;
\"both\" counts push and pull. mxnet is 1.9.1's kvstore `dist_sync` (ps-lite inside), which does the same rounds.

| workers + servers | value | unit | Parapet: push / pull / both | mxnet: push / pull / both | ratio |
|---|---|---|---|---|---|
";

const TAIL: &str = "\
\nParapet checks a 64-bit checksum of every message and refuses numbers that are not finite; mxnet does neither. The goal is a
ratio of 1.5 from 64 KiB on, and 150 thousand op/s at 64 B.
";
