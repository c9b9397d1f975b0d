//! `cargo xtask bench loadgen`: how many requests/s the generator sends on time from one core,
//! beside `wrk` from the same core against the same server.
//!
//! The server answers every request with the same bytes and has a core of its own. The generator
//! keeps a schedule, so the figure that counts is the highest rate whose runs are valid; `wrk`
//! sends as fast as answers come (closed loop), in C.

use anyhow::Result;
use serde_json::Value;

use super::spread::Spread;
use super::wrk::Wrk;
use crate::cluster::pinned;
use crate::models::{Load, figure};
use crate::process::Processes;
use crate::workspace::{cargo, is_installed, release, scratch, shell};

/// Arguments of `cargo xtask bench loadgen`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rates to try, in requests/s
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "5000,10000,15000,20000,25000,30000"
    )]
    rates: Vec<u32>,
    /// Seconds of each run
    #[arg(long, default_value_t = 5)]
    seconds: u32,
    /// Runs at each rate, with different seeds
    #[arg(long, default_value_t = 3)]
    runs: u32,
    /// Core of the generator
    #[arg(long, default_value_t = 0)]
    core: usize,
    /// Core of the server
    #[arg(long, default_value_t = 1)]
    server_core: usize,
}

/// Runs the benchmark.
pub(super) fn run(args: &Args) -> Result<()> {
    cargo("build --release -p parapet-loadgen --bins --example trivial_server")?;
    let (sh, folder) = (shell()?, scratch("bench-loadgen"));
    let mut processes = Processes::new(&folder)?;
    let server = pinned(
        &sh,
        Some(args.server_core),
        &release("examples/trivial_server"),
    );
    let address = processes.start_ready("server", server, "http://")?;
    println!(
        "{:>12} {:>6} {:>14} {:>14} {:>12} {:>10}",
        "requests/s", "runs", "valid", "p99 lag, ms", "p50, ms", "failed"
    );
    for &rate in &args.rates {
        let mut reports: Vec<Value> = Vec::new();
        for seed in 1..=args.runs {
            let more = &["--seed", &seed.to_string()];
            let (rate, seconds) = (rate.into(), args.seconds);
            let load = Load {
                address: &address,
                model: "trivial",
                rate,
                seconds,
                more,
            };
            reports.push(load.run(Some(args.core))?);
        }
        let range = |pointer: &str| {
            let found = reports
                .iter()
                .filter_map(|report| figure(report, pointer).ok());
            let Spread {
                lowest, highest, ..
            } = Spread::new(found);
            format!("{lowest:.2} - {highest:.2}")
        };
        let valid = reports
            .iter()
            .filter(|report| report["valid"] == true)
            .count();
        let mut failed = 0.0;
        for report in &reports {
            failed += figure(report, "/counts/planned")? - figure(report, "/counts/answered")?;
        }
        println!(
            "{rate:>12} {:>6} {valid:>14} {:>14} {:>12} {failed:>10}",
            args.runs,
            range("/lag/p99"),
            range("/service/p50")
        );
    }
    if !is_installed("wrk") {
        println!("wrk is not installed; `apt install wrk` adds it to the comparison");
        return Ok(());
    }
    let full = Wrk::new(&folder, "trivial", 64, args.seconds)?.run(&address, Some(args.core))?;
    println!("wrk, one thread, 64 connections, same core: {full}");
    Ok(())
}
