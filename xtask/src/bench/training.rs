//! `cargo xtask bench training`: steps/s of the trainer against the same networks in PyTorch's
//! Python, on as many threads. The two take turns, block by block, each a process of its own.

use super::report::{in_turns, ratio, spread};
use crate::prelude::*;

/// Networks, as the trainer and as the script name them, and steps a block.
const CASES: [(&str, &str, u32); 4] = [
    ("lenet:16", "lenet:16", 150),
    ("lenet:32", "lenet:32", 80),
    ("resnet8:16", "resnet8:16", 40),
    ("mlp:784,400,400", "mlp:400", 400),
];
const BATCH: &str = "64";
/// Threads of both.
const THREADS: &str = "1";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A Python with PyTorch, of libtorch's version if the figures are to say something
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// Blocks of each, in turns
    #[arg(long, default_value_t = 5)]
    blocks: u64,
}

pub(super) fn run(args: &Args) -> Result<()> {
    step("building the trainer's loop");
    // The development profile optimises the trainer, too; libtorch, which nearly all the time goes
    // to, is the same.
    cargo("build -p parity-trainer --example training_speed")?;
    let (sh, ours, python) = (shell()?, debug("examples/training_speed"), &args.python);
    let script = "parity-trainer/benches/pytorch_speed.py";
    println!(
        "| network | batch | parity-trainer, steps/s | PyTorch | ratio (lowest-highest) |\n\
         |---|---|---|---|---|"
    );
    for (network, name, steps) in CASES {
        let steps = steps.to_string();
        let speeds = in_turns(args.blocks, 2, |_, arm| {
            let command = match arm {
                0 => cmd!(sh, "{ours} {network} {BATCH} {steps} {THREADS}"),
                _ => cmd!(sh, "{python} {script} {name} {BATCH} {steps} {THREADS}"),
            };
            let number = command.quiet().read()?.trim().parse::<f64>();
            Ok([number.context("a command printed no number")?])
        })?;
        let [ours, theirs] = [0, 1].map(|arm| spread(&speeds[arm], 0).median);
        let ratio = ratio(&speeds[0], &speeds[1], 0).text(2);
        println!("| {network} | {BATCH} | {ours:.1} | {theirs:.1} | {ratio} |");
    }
    Ok(())
}
