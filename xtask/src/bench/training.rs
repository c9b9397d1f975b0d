//! `cargo xtask bench training`: steps/s of the trainer against the same networks in PyTorch's
//! Python, on as many threads.
//!
//! The two take turns, block by block and each first in every other one, so that whatever else the
//! machine does meets both; the ratio is the median of the blocks' ratios. Each block is a process
//! of its own that warms up before its clock starts.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use super::spread::Spread;
use crate::processes::output_of;
use crate::workspace::step;
use crate::{cargo, workspace};

/// Networks, samples (groups) a step and steps a block.
const CASES: [(&str, &str, u32, u32); 4] = [
    ("lenet:16", "lenet:16", 64, 150),
    ("lenet:32", "lenet:32", 64, 80),
    ("resnet8:16", "resnet8:16", 64, 40),
    ("mlp:784,400,400", "mlp:400", 64, 400),
];

/// Arguments of `cargo xtask bench training`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A Python with PyTorch, of libtorch's version if the figures are to say something
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// Threads of both
    #[arg(long, default_value_t = 1)]
    threads: u32,
    /// Blocks of each, in turns
    #[arg(long, default_value_t = 5)]
    blocks: u32,
    /// Steps of a block, as a part of the published ones, for a quick look
    #[arg(long, default_value_t = 1.0)]
    share: f64,
}

/// Runs the benchmark.
pub(crate) fn run(args: &Args) -> Result<()> {
    step("building the trainer's loop");
    // The development profile optimises the trainer, too; libtorch, which nearly all the time goes
    // to, is the same.
    cargo::run(&[
        "build",
        "-p",
        "parity-trainer",
        "--example",
        "training_speed",
    ])?;
    let ours = workspace::target().join("debug/examples/training_speed");
    let script = workspace::root().join("parity-trainer/benches/pytorch_speed.py");
    println!(
        "| network | batch | parity-trainer, steps/s | PyTorch, steps/s | ratio [least, most] |"
    );
    println!("|---|---|---|---|---|");
    for (network, name, batch, steps) in CASES {
        let (mut rust, mut python, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        let steps = ((f64::from(steps) * args.share) as u32).max(1);
        let rest = [batch, steps, args.threads].map(|number| number.to_string());
        for block in 0..args.blocks.max(1) {
            let ours = || figure(Command::new(&ours).arg(network).args(&rest));
            let theirs = || {
                figure(
                    Command::new(&args.python)
                        .arg(&script)
                        .arg(name)
                        .args(&rest),
                )
            };
            let (ours, theirs) = if block % 2 == 0 {
                let ours = ours()?;
                (ours, theirs()?)
            } else {
                let theirs = theirs()?;
                (ours()?, theirs)
            };
            rust.push(ours);
            python.push(theirs);
            ratios.push(ours / theirs);
        }
        let (rust, python) = (Spread::new(rust).median, Spread::new(python).median);
        let Spread {
            lowest,
            median,
            highest,
        } = Spread::new(ratios);
        println!(
            "| {network} | {batch} | {rust:.1} | {python:.1} | {median:.2} [{lowest:.2}, \
                {highest:.2}] |"
        );
    }
    Ok(())
}

/// The number that a command prints.
fn figure(command: &mut Command) -> Result<f64> {
    output_of(command)?
        .trim()
        .parse()
        .context("a command printed no number")
}
