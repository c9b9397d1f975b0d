//! `cargo xtask bench loadgen`: how many requests/s the generator sends on time from one core,
//! beside `wrk` from the same core against the same server, which has a core of its own.

use super::peers::wrk;
use super::report::Spread;
use crate::models::figure;
use crate::prelude::*;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Rates to try, in requests/s
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "5000,10000,15000,20000,25000,30000"
    )]
    rates: Vec<u32>,
}

const SECONDS: u32 = 5;
const RUNS: u32 = 3;
const CORE: Place = Place::Core(0);
const SERVER: Place = Place::Core(1);

pub(super) fn run(args: &Args) -> Result<()> {
    cargo("build --release -p parapet-loadgen --bins --example trivial_server")?;
    let (sh, mut processes) = (shell()?, Processes::new(&scratch("bench-loadgen"))?);
    let server = SERVER.command(&sh, release("examples/trivial_server"));
    let address = processes.start_ready("server", server, "http://")?;
    println!(
        "{:>12} {:>6} {:>14} {:>14} {:>12} {:>10}",
        "requests/s", "runs", "valid", "p99 lag, ms", "p50, ms", "failed"
    );
    for &rate in &args.rates {
        let mut reports: Vec<Value> = Vec::new();
        for seed in 1..=RUNS {
            let (seed, pace) = (seed.to_string(), (rate.into(), SECONDS));
            let target = (address.as_str(), "trivial");
            reports.push(models::load(target, pace, &["--seed", &seed], &CORE)?);
        }
        let range = |pointer: &str| {
            let found = reports
                .iter()
                .filter_map(|report| figure(report, pointer).ok());
            let found = Spread::new(found);
            format!("{:.2} - {:.2}", found.lowest, found.highest)
        };
        let valid = reports.iter().filter(|report| report["valid"] == true);
        let valid = valid.count();
        let mut failed = 0.0;
        for report in &reports {
            failed += figure(report, "/counts/planned")? - figure(report, "/counts/answered")?;
        }
        println!(
            "{rate:>12} {:>6} {valid:>14} {:>14} {:>12} {failed:>10}",
            RUNS,
            range("/lag/p99"),
            range("/service/p50")
        );
    }
    if !is_installed("wrk") {
        println!("wrk is not installed; `apt install wrk` adds it to the comparison");
        return Ok(());
    }
    let (full, p99) = wrk((&address, "trivial"), (64, SECONDS), &CORE)?;
    println!("wrk, one thread, 64 connections, same core: {full:.0} requests/s, p99 {p99:.2} ms");
    Ok(())
}
