//! `cargo xtask bench fidelity`: the simulator against a real run of the same small configuration.
//!
//! The real run is the variant of `loadgen/experiments/tail.toml` (12 + 6 instances) with 2 %
//! stragglers: with 1 % the 99th percentile lies on the edge between 19 and 33 ms, and two real
//! runs differ by half. The delays that the simulator cannot know (sockets, threads that wake late,
//! the model itself) are taken from the lower half of the latencies without redundancy, where
//! neither stragglers nor queues show; everything else is compared.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::tail;
use crate::demo::binary;
use crate::workspace;
use crate::workspace::step;

/// Arguments of `cargo xtask bench fidelity`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Compare with the last `cargo xtask bench tail --only p2` instead of running the strategies
    /// anew
    #[arg(long)]
    reuse: bool,
    /// Requests to each strategy of the real run
    #[arg(long, default_value_t = 20_000)]
    requests: usize,
    /// Queries of each simulated strategy
    #[arg(long, default_value_t = 400_000)]
    queries: u64,
    /// Seed of both
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Names in the experiment.
const STRATEGIES: [&str; 4] = ["none", "equal_resources", "hedge", "coded"];

/// Limit of the difference between the two, as a share.
const BOUND: f64 = 0.10;

/// Emulated service time of the experiment.
const SERVICE_MS: f64 = 18.0;

/// Runs the benchmark.
pub(crate) fn run(args: &Args) -> Result<()> {
    if !args.reuse {
        tail::run(&tail::Args::only(
            "p2",
            args.requests,
            args.seed,
            &STRATEGIES,
        ))?;
    }
    let folder = tail::folder();
    let real = report(&folder.join("p2.json"))?;
    let setup = folder.join("fidelity.toml");
    workspace::write(&setup, simulation(&folder.join("p2.toml"), &real)?)?;
    let simulated = folder.join("fidelity.json");
    step("simulating the same");
    let status = Command::new(binary("parapet-loadgen"))
        .arg("simulate")
        .arg("--experiment")
        .arg(&setup)
        .args(["--strategy", &STRATEGIES.join(",")])
        .args([
            "--queries",
            &args.queries.to_string(),
            "--seed",
            &args.seed.to_string(),
        ])
        .arg("--compare-json")
        .arg(&simulated)
        .stdout(std::process::Stdio::null())
        .status()
        .context("cannot start parapet-loadgen")?;
    ensure!(status.success(), "parapet-loadgen failed ({status})");
    let simulated = report(&simulated)?;
    println!(
        "{:<18} {:>8} {:>10} {:>10} {:>8}",
        "strategy", "", "real, ms", "sim., ms", "ratio"
    );
    let mut worst: f64 = 0.0;
    for name in STRATEGIES {
        for percentile in ["p50", "p99", "p99_9"] {
            let (real, simulated) = (
                figure(&real, name, percentile)?,
                figure(&simulated, name, percentile)?,
            );
            let ratio = simulated / real;
            worst = worst.max((ratio - 1.0).abs());
            println!("{name:<18} {percentile:>8} {real:>10.2} {simulated:>10.2} {ratio:>8.3}");
        }
    }
    ensure!(
        worst <= BOUND,
        "a percentile is {:.1} % off, more than {} %",
        worst * 100.0,
        BOUND * 100.0
    );
    println!("All within {:.1} %.", worst * 100.0);
    Ok(())
}

fn report(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path)
        .with_context(|| format!("{}: cannot read it; run without --reuse", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is no report", path.display()))
}

fn strategy<'a>(report: &'a Value, name: &str) -> Result<&'a Value> {
    let strategies = report["strategies"]
        .as_array()
        .context("a report without strategies")?;
    strategies
        .iter()
        .find(|strategy| strategy["name"] == name)
        .with_context(|| format!("the report has no strategy {name}"))
}

fn figure(report: &Value, name: &str, percentile: &str) -> Result<f64> {
    strategy(report, name)?["latency"][percentile]
        .as_f64()
        .context("a report without percentiles")
}

/// The same experiment with the delays of the real run. What a latency has beyond the service time
/// is taken for a shifted exponential, whose `-ln(1 - q)` is linear in the latency: two quantiles
/// of the lower half give it.
fn simulation(experiment: &Path, real: &Value) -> Result<String> {
    let points = strategy(real, "none")?["spectrum"]
        .as_array()
        .context("a report without a spectrum")?;
    let point = |above: f64| -> Option<(f64, f64)> {
        points.iter().find_map(|point| {
            let (quantile, ms) = (point["quantile"].as_f64()?, point["ms"].as_f64()?);
            (quantile >= above).then_some((-(1.0 - quantile).ln(), ms - SERVICE_MS))
        })
    };
    let ((low, low_ms), (high, high_ms)) = point(0.1)
        .zip(point(0.45))
        .context("a spectrum without its lower half")?;
    let mean = ((high_ms - low_ms) / (high - low)).max(0.0);
    let shift = (low_ms - low * mean).max(0.0);
    ensure!(shift > 0.0, "the median is below the emulated service time");
    let text = fs::read_to_string(experiment).with_context(|| {
        format!(
            "{}: cannot read it; run without --reuse",
            experiment.display()
        )
    })?;
    Ok(format!(
        "{text}\n[simulation.network]\n\
         client = {{ constant_ms = {:.4} }}\n\
         to_instance = {{ constant_ms = {:.4} }}\n\
         to_frontend = {{ constant_ms = {:.4}, exponential_ms = {mean:.4} }}\n",
        shift / 2.0,
        shift / 4.0,
        shift / 4.0,
    ))
}
