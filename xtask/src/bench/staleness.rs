//! `cargo xtask bench staleness`: one worker in four computes 4 times longer; how soon is a loss
//! reached, by what workers may miss of one another's updates, and how long do they wait for
//! servers?
//!
//! Each run is a process of its own (`staleness`, of the parameter server's second application).
//! Runs of all models take turns, seed by seed, so that whatever else the machine does meets all.

mod plot;
mod report;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::json;

use super::section;
use crate::processes::output_of;
use crate::{cargo, workspace};
use report::{Run, Table};

/// Consistency models, as the program reads them.
const MODELS: [&str; 11] = [
    "bsp",
    "bounded-delay:1",
    "bounded-delay:2",
    "bounded-delay:4",
    "bounded-delay:8",
    "ssp:1",
    "ssp:2",
    "ssp:4",
    "ssp:8",
    "eager-ssp:4",
    "eventual",
];

/// Arguments of `cargo xtask bench staleness`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Slow worker: never, always (one worker all the time) or turns:MILLISECONDS (one at a
    /// time, drawn anew)
    #[arg(long, value_delimiter = ',', default_value = "turns:100,always,never")]
    slowdowns: Vec<String>,
    /// Seeds, each a run of every model
    #[arg(long, default_value_t = 5)]
    seeds: u64,
    /// The loss to reach is that of BSP after so many clocks
    #[arg(long, default_value_t = 100)]
    clocks: usize,
    /// Where to write the tables; the plots come beside it
    #[arg(long, default_value = "parity-trainer/parameter-server/RESULTS.md")]
    out: PathBuf,
    /// Where to write every run [default: bench-staleness.json in cargo's target folder]
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Runs the benchmark.
pub(crate) fn run(args: &Args) -> Result<()> {
    let package = [
        "--release",
        "-p",
        "parapet-cluster",
        "--example",
        "sparse-logistic-regression",
    ];
    cargo::run(&[&["build"], &package[..]].concat())?;
    let program = workspace::target().join("release/examples/sparse-logistic-regression");
    let clocks = args.clocks.to_string();
    let mut all = Vec::new();
    for slowdown in &args.slowdowns {
        let mut table = Table::new(slowdown, args.clocks, MODELS);
        for seed in 1..=args.seeds.max(1) {
            // The order changes, too.
            let turns: Vec<usize> = match seed % 2 {
                0 => (0..MODELS.len()).rev().collect(),
                _ => (0..MODELS.len()).collect(),
            };
            for place in turns {
                let Some(&model) = MODELS.get(place) else {
                    continue;
                };
                let mut command = Command::new(&program);
                command.args([
                    "staleness",
                    "--consistency",
                    model,
                    "--slowdown",
                    slowdown,
                    "--clocks",
                    &clocks,
                ]);
                command.args(["--seed", &seed.to_string()]);
                let run = output_of(&mut command)
                    .and_then(|text| Run::parse(&text))
                    .with_context(|| format!("{model}, {slowdown}, seed {seed}"))?;
                eprintln!("{slowdown}, seed {seed}, {model}: {run}");
                all.push(json!({ "slowdown": slowdown, "model": model, "seed": seed,
                    "run": run.document }));
                table.add(place, run);
            }
        }
        let text = table.markdown();
        println!("{text}");
        let out = workspace::root().join(&args.out);
        let plot = format!(
            "staleness-{}.svg",
            slowdown.split(':').next().unwrap_or(slowdown)
        );
        let with_plot = format!("{text}\n![Time to the loss, by slack]({plot})\n");
        section::write(
            &out,
            "Measured",
            &format!("cargo xtask bench staleness, {slowdown}"),
            &with_plot,
        )?;
        let path = out.with_file_name(plot);
        workspace::write(&path, plot::svg(&table)?)?;
    }
    let default = || workspace::target().join("bench-staleness.json");
    let path = args
        .json
        .as_ref()
        .map_or_else(default, |json| workspace::root().join(json));
    workspace::write(&path, format!("{:#}\n", json!(all)))?;
    println!("written: {} and {}", args.out.display(), path.display());
    Ok(())
}
