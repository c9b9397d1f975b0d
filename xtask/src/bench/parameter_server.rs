//! `cargo xtask bench parameter-server`: push and pull over loopback, workers and servers as
//! processes of their own, beside mxnet's kvstore where a Python with mxnet is given.
//!
//! Both do the same rounds: every key is pushed, pulled, or both, again and again, with all keys
//! under way. The servers add up. Runs of the two take turns, and medians count.

mod memory;
mod processes;
mod report;

use std::path::PathBuf;

use anyhow::{Context, Result};

use super::section;
use crate::{cargo, workspace};
use processes::{System, measure};
use report::{Cell, Row};

/// Arguments of `cargo xtask bench parameter-server`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A Python with mxnet 1.9.1 and numpy 1.23.5, to compare with
    #[arg(long)]
    mxnet_python: Option<PathBuf>,
    /// Runs of each system at each size
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Mebibytes that each worker pushes, and pulls, in a run
    #[arg(long, default_value_t = 2048)]
    mebibytes: u64,
    /// Operations of each worker in a run of 64-byte values
    #[arg(long, default_value_t = 400_000)]
    operations: u64,
    /// Only values of these sizes, in bytes
    #[arg(long, value_delimiter = ',')]
    sizes: Vec<usize>,
    /// Millions of parameters of the server whose memory is measured; 0 for none
    #[arg(long, default_value_t = 100)]
    millions: u64,
    /// Where to write the tables
    #[arg(long, default_value = "parity-trainer/parameter-server/RESULTS.md")]
    out: PathBuf,
}

/// Workers and servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    workers: u64,
    servers: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Load {
    bytes: usize,
    keys: u64,
    rounds: u64,
}

impl Load {
    /// Keys so that a few megabytes are under way, as the layers of a network would be.
    fn new(bytes: usize, args: &Args) -> Self {
        let keys = match bytes {
            ..=4096 => 1024,
            4097..=262_144 => 64,
            262_145..=2_097_152 => 16,
            _ => 8,
        };
        let total = match bytes {
            ..=4096 => args.operations,
            _ => args.mebibytes * (1 << 20) / bytes as u64,
        };
        Self {
            bytes,
            keys,
            rounds: (total / keys).max(1),
        }
    }
}

/// Runs the benchmark.
pub(crate) fn run(args: &Args) -> Result<()> {
    let crate_of_examples = ["build", "--release", "-p", "parapet-cluster"];
    let examples = ["--example", "throughput", "--example", "memory"];
    cargo::run(&[&crate_of_examples[..], &examples[..]].concat())?;
    let mut systems = vec![System::Parapet, System::OverTcp];
    systems.extend(args.mxnet_python.clone().map(System::Mxnet));
    let mut rows = Vec::new();
    for shape in [
        Shape {
            workers: 1,
            servers: 1,
        },
        Shape {
            workers: 2,
            servers: 2,
        },
    ] {
        for bytes in [64, 64 << 10, 1 << 20, 4 << 20] {
            if !args.sizes.is_empty() && !args.sizes.contains(&bytes) {
                continue;
            }
            let load = Load::new(bytes, args);
            let mut cells: Vec<Cell> = systems.iter().map(|_| Cell::default()).collect();
            for run in 1..=args.runs {
                // The order changes, too.
                let turns = systems.iter().zip(&mut cells);
                let turns: Vec<_> = if run % 2 == 0 {
                    turns.rev().collect()
                } else {
                    turns.collect()
                };
                for (system, cell) in turns {
                    let seconds = measure(system, shape, load).with_context(|| {
                        format!(
                            "run {run} of {} with values of {bytes} bytes",
                            system.name()
                        )
                    })?;
                    cell.add(seconds);
                }
            }
            let row = Row { shape, load, cells };
            print!("{row}");
            rows.push(row);
        }
    }
    let memory = if args.millions == 0 {
        Vec::new()
    } else {
        memory::measure(args.millions)?
    };
    memory.iter().for_each(|line| println!("{line}"));
    let path = workspace::root().join(&args.out);
    let tables = report::render(&rows, &memory, args.runs);
    section::write(
        &path,
        "Measured",
        "cargo xtask bench parameter-server",
        &tables,
    )?;
    println!("written: {}", path.display());
    Ok(())
}
