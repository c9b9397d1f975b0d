//! `cargo xtask bench loadgen`: how many requests/s the generator sends on time from one core,
//! beside `wrk` from the same core against the same server.
//!
//! The server answers every request with the same bytes and has a core of its own. The generator
//! keeps a schedule, so the figure that counts is the highest rate whose runs are valid; `wrk`
//! sends as fast as answers come (closed loop), in C.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::load::Load;
use super::wrk::Wrk;
use crate::processes::Servers;
use crate::resources::pinned;
use crate::{cargo, workspace};

/// Arguments of `cargo xtask bench loadgen`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rates to try, in requests/s
    #[arg(long, value_delimiter = ',', default_values_t = [5_000, 10_000, 15_000, 20_000, 25_000, 30_000])]
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
pub(crate) fn run(args: &Args) -> Result<()> {
    cargo::run(&[
        "build",
        "--release",
        "-p",
        "parapet-loadgen",
        "--bins",
        "--example",
        "trivial_server",
    ])?;
    fs::create_dir_all(workspace::demo()).context("cannot make .parapet/demo")?;
    let server = Server::start(args.server_core)?;
    println!(
        "{:>12} {:>6} {:>14} {:>14} {:>12} {:>10}",
        "requests/s", "runs", "valid", "p99 lag, ms", "p50, ms", "failed"
    );
    for &rate in &args.rates {
        let reports: Vec<Value> = (1..=args.runs)
            .map(|seed| server.load(args, rate, seed))
            .collect::<Result<_>>()?;
        let figures = |pointer: &str| -> String {
            let mut values: Vec<f64> = reports
                .iter()
                .filter_map(|report| report.pointer(pointer)?.as_f64())
                .collect();
            values.sort_by(f64::total_cmp);
            match (values.first(), values.last()) {
                (Some(low), Some(high)) => format!("{low:.2} - {high:.2}"),
                _ => "-".to_owned(),
            }
        };
        let valid = reports
            .iter()
            .filter(|report| report["valid"] == true)
            .count();
        let failed: u64 = reports
            .iter()
            .filter_map(|report| {
                Some(
                    report["counts"]["planned"].as_u64()?
                        - report["counts"]["answered"].as_u64()?,
                )
            })
            .sum();
        println!(
            "{rate:>12} {:>6} {valid:>14} {:>14} {:>12} {failed:>10}",
            reports.len(),
            figures("/lag/p99"),
            figures("/service/p50")
        );
    }
    match Wrk::find(&workspace::demo(), "trivial", 64, args.seconds)? {
        Some(wrk) => {
            let full = wrk.run(server.url.trim_start_matches("http://"), Some(args.core))?;
            println!("wrk, one thread, 64 connections, same core: {full}");
        }
        None => println!("wrk is not installed; `apt-get install wrk` adds it to the comparison"),
    }
    Ok(())
}

struct Server {
    _running: Servers,
    url: String,
}

impl Server {
    fn start(core: usize) -> Result<Self> {
        let program = workspace::target().join("release/examples/trivial_server");
        let mut running = Servers::default();
        let log = workspace::demo().join("trivial_server.log");
        let url = running.start(pinned(&program, Some(core)), "the server", &log)?;
        ensure!(url.starts_with("http://"), "the server did not start");
        Ok(Self {
            _running: running,
            url,
        })
    }

    fn load(&self, args: &Args, rate: u32, seed: u32) -> Result<Value> {
        let seed = seed.to_string();
        let (rate, seconds) = (rate.into(), args.seconds);
        let load = Load {
            url: &self.url,
            model: "trivial",
            rate,
            seconds,
            more: &["--seed", &seed],
        };
        load.run(Some(args.core), &workspace::demo().join("loadgen.json"))
    }
}
